//! Chains, rules, sets and elements.

use std::ops::BitOr;

use super::expr::{Expr, Verdict};
use super::keys::KeyLayout;

/// What a base chain may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookKind {
    /// `filter`.
    Filter,
    /// `nat`: first packets of connections only.
    Nat,
    /// `route`: a changed packet is routed again.
    Route,
}

impl HookKind {
    /// The kernel's word.
    pub const fn word(self) -> &'static str {
        match self {
            HookKind::Filter => "filter",
            HookKind::Nat => "nat",
            HookKind::Route => "route",
        }
    }

    pub(super) fn from_word(word: &str) -> Option<HookKind> {
        match word {
            "filter" => Some(HookKind::Filter),
            "nat" => Some(HookKind::Nat),
            "route" => Some(HookKind::Route),
            _ => None,
        }
    }
}

/// Where a base chain is called from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hook {
    /// Kind.
    pub kind: HookKind,
    /// `NF_INET_*` (`linux/netfilter.h`): see the constants.
    pub number: u32,
    /// Lower runs earlier.
    pub priority: i32,
}

impl Hook {
    /// `NF_INET_PRE_ROUTING`.
    pub const PREROUTING: u32 = 0;
    /// `NF_INET_LOCAL_IN`.
    pub const INPUT: u32 = 1;
    /// `NF_INET_FORWARD`.
    pub const FORWARD: u32 = 2;
    /// `NF_INET_LOCAL_OUT`.
    pub const OUTPUT: u32 = 3;
    /// `NF_INET_POST_ROUTING`.
    pub const POSTROUTING: u32 = 4;

    /// nft's word for the hook number.
    pub fn number_word(&self) -> &'static str {
        match self.number {
            Hook::PREROUTING => "prerouting",
            Hook::INPUT => "input",
            Hook::FORWARD => "forward",
            Hook::OUTPUT => "output",
            Hook::POSTROUTING => "postrouting",
            _ => "unknown",
        }
    }
}

/// What happens to a packet at the end of a base chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Policy {
    /// It goes on.
    #[default]
    Accept,
    /// It is dropped.
    Drop,
}

/// A chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// Name.
    pub name: String,
    /// Of a base chain.
    pub hook: Option<Hook>,
    /// Policy; only a base chain has another than accept.
    pub policy: Policy,
    /// Comment; nft reads up to 127 bytes, a longer one is cut when written.
    pub comment: Option<String>,
}

impl Chain {
    /// A chain that others call.
    pub fn regular(name: impl Into<String>) -> Chain {
        Chain {
            name: name.into(),
            hook: None,
            policy: Policy::Accept,
            comment: None,
        }
    }

    /// A chain that the kernel calls, of policy accept.
    pub fn base(name: impl Into<String>, hook: Hook) -> Chain {
        Chain {
            hook: Some(hook),
            ..Chain::regular(name)
        }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The chain it is in.
    pub chain: String,
    /// What it does.
    pub exprs: Vec<Expr>,
    /// Comment; nft reads up to 127 bytes, a longer one is cut when written.
    pub comment: Option<String>,
}

/// Flags of a set (`enum nft_set_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetFlags(pub u32);

impl SetFlags {
    /// None of them.
    pub const NONE: SetFlags = SetFlags(0);
    /// Goes away with the rule that uses it.
    pub const ANONYMOUS: SetFlags = SetFlags(1);
    /// Cannot change once it is used.
    pub const CONSTANT: SetFlags = SetFlags(1 << 1);
    /// Keys are ranges.
    pub const INTERVAL: SetFlags = SetFlags(1 << 2);
    /// Keys have values.
    pub const MAP: SetFlags = SetFlags(1 << 3);
    /// Elements time out.
    pub const TIMEOUT: SetFlags = SetFlags(1 << 4);
    /// Rules may change it: `dynamic` in nft.
    pub const EVAL: SetFlags = SetFlags(1 << 5);
    /// Values are named objects.
    pub const OBJECT: SetFlags = SetFlags(1 << 6);
    /// Ranges per field of a concatenation; needs [`Set::fields`].
    pub const CONCAT: SetFlags = SetFlags(1 << 7);
    /// Elements carry expressions.
    pub const EXPR: SetFlags = SetFlags(1 << 8);

    /// Whether all of `other` are set.
    pub const fn contains(self, other: SetFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for SetFlags {
    type Output = SetFlags;
    fn bitor(self, other: SetFlags) -> SetFlags {
        SetFlags(self.0 | other.0)
    }
}

/// What a set's keys map to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SetData {
    /// Nothing: a set.
    None,
    /// Verdicts.
    Verdict,
    /// Values.
    Value {
        /// nft's number of the type, see [`KeyLayout`].
        kind: u32,
        /// Bytes.
        len: u32,
    },
}

/// A set or map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Set {
    /// Name.
    pub name: String,
    /// nft's number of the key's type, see [`KeyLayout`].
    pub key_type: u32,
    /// Bytes of a key.
    pub key_len: u32,
    /// True lengths of a concatenation's fields (`NFTA_SET_DESC_CONCAT`). The kernel wants them
    /// with [`SetFlags::CONCAT`] and forgets them without.
    pub fields: Vec<u32>,
    /// Values.
    pub data: SetData,
    /// Flags.
    pub flags: SetFlags,
    /// Most elements it may have.
    pub size: Option<u32>,
    /// Time-out of an element that has no other, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Comment and declaration for nft, see [`super::userdata`].
    pub userdata: Vec<u8>,
}

impl Set {
    /// A set of exact keys.
    pub fn keyed(name: impl Into<String>, key: &KeyLayout) -> Set {
        Set {
            name: name.into(),
            key_type: key.kind,
            key_len: key.len,
            fields: Vec::new(),
            data: SetData::None,
            flags: SetFlags::NONE,
            size: None,
            timeout_ms: None,
            userdata: Vec::new(),
        }
    }

    /// A map from exact keys to values.
    pub fn map(name: impl Into<String>, key: &KeyLayout, data: &KeyLayout) -> Set {
        Set {
            data: SetData::Value {
                kind: data.kind,
                len: data.len,
            },
            flags: SetFlags::MAP,
            ..Set::keyed(name, key)
        }
    }

    /// A map from exact keys to verdicts.
    pub fn verdict_map(name: impl Into<String>, key: &KeyLayout) -> Set {
        Set {
            data: SetData::Verdict,
            flags: SetFlags::MAP,
            ..Set::keyed(name, key)
        }
    }

    /// A set of ranges; of a concatenation, a range per field (`key_end` of its elements).
    pub fn ranges(name: impl Into<String>, key: &KeyLayout) -> Set {
        let flags = match key.fields.is_empty() {
            true => SetFlags::INTERVAL,
            false => SetFlags::INTERVAL | SetFlags::CONCAT,
        };
        Set {
            fields: key.fields.clone(),
            flags,
            ..Set::keyed(name, key)
        }
    }
}

/// What an element maps to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Data {
    /// Nothing.
    #[default]
    None,
    /// A verdict.
    Verdict(Verdict),
    /// A value.
    Value(Vec<u8>),
}

/// What an element maps to, borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataRef<'a> {
    /// Nothing.
    #[default]
    None,
    /// A verdict.
    Verdict(Verdict<&'a str>),
    /// A value.
    Value(&'a [u8]),
}

/// Which end of a range an element of a plain interval set is. The range `a` to `b` is an
/// element `a` and an end element `b + 1`; concatenations have `key_end` instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementEnd {
    /// A key, or the start of a range.
    #[default]
    Start,
    /// The first key behind a range (`NFT_SET_ELEM_INTERVAL_END`).
    End,
    /// Neither: it stands for every key that no other element has, and its own is empty
    /// (`NFT_SET_ELEM_CATCHALL`, `*` in nft).
    CatchAll,
}

/// An element of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Element {
    /// Key.
    pub key: Vec<u8>,
    /// Last key of the range, in sets of concatenated ranges.
    pub key_end: Option<Vec<u8>>,
    /// What it maps to.
    pub data: Data,
    /// Time-out other than the set's, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Time left, milliseconds.
    pub expiration_ms: Option<u64>,
    /// Comment; nft reads up to 127 bytes, a longer one is cut when written.
    pub comment: Option<String>,
    /// Which end of a range it is.
    pub end: ElementEnd,
}

impl Element {
    /// The same, borrowed.
    pub fn as_ref(&self) -> ElementRef<'_> {
        let Element {
            key,
            key_end,
            data,
            timeout_ms,
            expiration_ms,
            comment,
            end,
        } = self;
        ElementRef {
            key,
            key_end: key_end.as_deref(),
            data: match data {
                Data::None => DataRef::None,
                Data::Verdict(verdict) => DataRef::Verdict(verdict.as_ref()),
                Data::Value(value) => DataRef::Value(value),
            },
            timeout_ms: *timeout_ms,
            expiration_ms: *expiration_ms,
            comment: comment.as_deref(),
            end: *end,
        }
    }
}

/// An element of a set, borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ElementRef<'a> {
    /// Key.
    pub key: &'a [u8],
    /// Last key of the range, in sets of concatenated ranges.
    pub key_end: Option<&'a [u8]>,
    /// What it maps to.
    pub data: DataRef<'a>,
    /// Time-out other than the set's, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Time left, milliseconds.
    pub expiration_ms: Option<u64>,
    /// Comment; nft reads up to 127 bytes, a longer one is cut when written.
    pub comment: Option<&'a str>,
    /// Which end of a range it is.
    pub end: ElementEnd,
}

impl<'a> ElementRef<'a> {
    /// A key of a set.
    pub fn key(key: &'a [u8]) -> Self {
        ElementRef {
            key,
            ..ElementRef::default()
        }
    }

    /// A key of a map with its value.
    pub fn value(key: &'a [u8], value: &'a [u8]) -> Self {
        ElementRef {
            key,
            data: DataRef::Value(value),
            ..ElementRef::default()
        }
    }

    /// A key of a verdict map.
    pub fn verdict(key: &'a [u8], verdict: Verdict<&'a str>) -> Self {
        ElementRef {
            key,
            data: DataRef::Verdict(verdict),
            ..ElementRef::default()
        }
    }

    /// The same with bytes of its own.
    pub fn to_owned(&self) -> Element {
        let ElementRef {
            key,
            key_end,
            data,
            timeout_ms,
            expiration_ms,
            comment,
            end,
        } = *self;
        Element {
            key: key.to_vec(),
            key_end: key_end.map(<[u8]>::to_vec),
            data: match data {
                DataRef::None => Data::None,
                DataRef::Verdict(verdict) => Data::Verdict(verdict.to_owned()),
                DataRef::Value(value) => Data::Value(value.to_vec()),
            },
            timeout_ms,
            expiration_ms,
            comment: comment.map(str::to_owned),
            end,
        }
    }
}
