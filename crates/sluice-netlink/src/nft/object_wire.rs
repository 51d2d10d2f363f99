//! Objects as attributes, both ways. Every decoder takes what the encoder wrote after the kernel
//! has listed it back.

use super::expr_wire::{self, LIST_ELEM};
use super::object::{
    Chain, DataRef, ElementEnd, ElementRef, Hook, HookKind, Policy, Rule, Set, SetData, SetFlags,
};
use super::userdata;
use crate::wire::{Attr, Attrs, Writer};

/// `enum nft_table_attributes`.
pub(super) mod table {
    pub(in crate::nft) const NAME: u16 = 1;
    pub(in crate::nft) const FLAGS: u16 = 2;
    pub(in crate::nft) const HANDLE: u16 = 4;
    pub(in crate::nft) const USERDATA: u16 = 6;
    pub(in crate::nft) const OWNER: u16 = 7;
}

/// `enum nft_chain_attributes`, `enum nft_hook_attributes`.
pub(super) mod chain {
    pub(in crate::nft) const TABLE: u16 = 1;
    pub(in crate::nft) const HANDLE: u16 = 2;
    pub(in crate::nft) const NAME: u16 = 3;
    pub(super) const HOOK: u16 = 4;
    pub(super) const POLICY: u16 = 5;
    pub(super) const TYPE: u16 = 7;
    pub(super) const FLAGS: u16 = 10;
    pub(super) const USERDATA: u16 = 12;
    pub(super) const HOOK_NUMBER: u16 = 1;
    pub(super) const HOOK_PRIORITY: u16 = 2;
    /// `NFT_CHAIN_BASE`.
    pub(super) const BASE: u32 = 1;
}

/// `enum nft_rule_attributes`.
pub(super) mod rule {
    pub(in crate::nft) const TABLE: u16 = 1;
    pub(in crate::nft) const CHAIN: u16 = 2;
    pub(in crate::nft) const HANDLE: u16 = 3;
    pub(super) const EXPRESSIONS: u16 = 4;
    pub(super) const USERDATA: u16 = 7;
}

/// `enum nft_set_attributes`, `enum nft_set_desc_attributes`, `enum nft_set_field_attributes`.
pub(super) mod set {
    pub(in crate::nft) const TABLE: u16 = 1;
    pub(in crate::nft) const NAME: u16 = 2;
    pub(super) const FLAGS: u16 = 3;
    pub(super) const KEY_TYPE: u16 = 4;
    pub(super) const KEY_LEN: u16 = 5;
    pub(super) const DATA_TYPE: u16 = 6;
    pub(super) const DATA_LEN: u16 = 7;
    pub(super) const DESC: u16 = 9;
    pub(super) const ID: u16 = 10;
    pub(super) const TIMEOUT: u16 = 11;
    pub(super) const USERDATA: u16 = 13;
    pub(in crate::nft) const HANDLE: u16 = 16;
    pub(super) const DESC_SIZE: u16 = 1;
    pub(super) const DESC_CONCAT: u16 = 2;
    pub(super) const FIELD_LEN: u16 = 1;
    /// `NFT_DATA_VERDICT`.
    pub(super) const VERDICT: u32 = 0xffff_ff00;
}

/// `enum nft_set_elem_list_attributes`.
pub(super) mod list {
    pub(in crate::nft) const TABLE: u16 = 1;
    pub(in crate::nft) const SET: u16 = 2;
    pub(in crate::nft) const ELEMENTS: u16 = 3;
}

/// `enum nft_set_elem_attributes`.
mod elem {
    pub(super) const KEY: u16 = 1;
    pub(super) const DATA: u16 = 2;
    pub(super) const FLAGS: u16 = 3;
    pub(super) const TIMEOUT: u16 = 4;
    pub(super) const EXPIRATION: u16 = 5;
    pub(super) const USERDATA: u16 = 6;
    pub(super) const KEY_END: u16 = 10;
    /// `NFT_SET_ELEM_INTERVAL_END`.
    pub(super) const END: u32 = 1;
    /// `NFT_SET_ELEM_CATCHALL`.
    pub(super) const CATCH_ALL: u32 = 2;
}

fn comment(attr: Option<Attr<'_>>) -> Option<&str> {
    userdata::comment(attr?.value, userdata::COMMENT)
}

fn put_comment(w: &mut Writer<'_>, kind: u16, comment: Option<&str>) {
    if let Some(comment) = comment {
        w.bytes(kind, &userdata::with_comment(userdata::COMMENT, comment));
    }
}

/// A table's attributes beside its family.
pub(super) fn put_table(w: &mut Writer<'_>, name: &str, comment: Option<&str>) {
    w.text(table::NAME, name);
    w.be32(table::FLAGS, 0);
    put_comment(w, table::USERDATA, comment);
}

pub(super) fn table_comment(attrs: Attrs<'_>) -> Option<String> {
    comment(attrs.find(table::USERDATA)).map(str::to_owned)
}

pub(super) fn put_chain(w: &mut Writer<'_>, value: &Chain) {
    let Chain {
        name,
        hook,
        policy,
        comment,
    } = value;
    w.text(chain::NAME, name);
    if let Some(Hook {
        kind,
        number,
        priority,
    }) = hook
    {
        w.nest(chain::HOOK, |w| {
            w.be32(chain::HOOK_NUMBER, *number);
            w.be32(chain::HOOK_PRIORITY, *priority as u32);
        });
        w.text(chain::TYPE, kind.word());
        w.be32(chain::FLAGS, chain::BASE);
        // linux/netfilter.h: NF_DROP is 0, NF_ACCEPT is 1.
        w.be32(
            chain::POLICY,
            match policy {
                Policy::Accept => 1,
                Policy::Drop => 0,
            },
        );
    }
    put_comment(w, chain::USERDATA, comment.as_deref());
}

pub(super) fn get_chain(attrs: Attrs<'_>) -> Result<Chain, &'static str> {
    let name = attrs
        .find(chain::NAME)
        .and_then(|a| a.text())
        .ok_or("chain name")?;
    let hook = match attrs.find(chain::HOOK) {
        None => None,
        Some(nest) => Some(get_hook(attrs, nest.nested()).ok_or("chain hook")?),
    };
    Ok(Chain {
        name: name.to_owned(),
        hook,
        policy: match attrs.find(chain::POLICY).and_then(|a| a.be32()) {
            Some(0) => Policy::Drop,
            Some(_) | None => Policy::Accept,
        },
        comment: comment(attrs.find(chain::USERDATA)).map(str::to_owned),
    })
}

fn get_hook(attrs: Attrs<'_>, nest: Attrs<'_>) -> Option<Hook> {
    Some(Hook {
        kind: HookKind::from_word(attrs.find(chain::TYPE)?.text()?)?,
        number: nest.find(chain::HOOK_NUMBER)?.be32()?,
        priority: nest.find(chain::HOOK_PRIORITY)?.be32()? as i32,
    })
}

pub(super) fn put_rule(w: &mut Writer<'_>, value: &Rule) {
    let Rule {
        chain,
        exprs,
        comment,
    } = value;
    w.text(rule::CHAIN, chain);
    w.nest(rule::EXPRESSIONS, |w| {
        for expr in exprs {
            expr_wire::put(w, expr);
        }
    });
    put_comment(w, rule::USERDATA, comment.as_deref());
}

pub(super) fn get_rule(attrs: Attrs<'_>) -> Result<Rule, &'static str> {
    let chain = attrs
        .find(rule::CHAIN)
        .and_then(|a| a.text())
        .ok_or("rule chain")?;
    let list = attrs
        .find(rule::EXPRESSIONS)
        .map_or(Attrs(&[]), |a| a.nested());
    let exprs = list
        .filter(|element| element.kind == LIST_ELEM)
        .map(|element| expr_wire::get(element.nested()).ok_or("expression name"))
        .collect::<Result<_, _>>()?;
    Ok(Rule {
        chain: chain.to_owned(),
        exprs,
        comment: comment(attrs.find(rule::USERDATA)).map(str::to_owned),
    })
}

/// A set's attributes; `id` tells the sets of a batch apart.
pub(super) fn put_set(w: &mut Writer<'_>, value: &Set, id: u32) {
    let Set {
        name,
        key_type,
        key_len,
        fields,
        data,
        flags,
        size,
        timeout_ms,
        userdata,
    } = value;
    w.text(set::NAME, name);
    w.be32(set::FLAGS, flags.0);
    w.be32(set::KEY_TYPE, *key_type);
    w.be32(set::KEY_LEN, *key_len);
    match data {
        SetData::None => {}
        SetData::Verdict => {
            w.be32(set::DATA_TYPE, set::VERDICT);
            w.be32(set::DATA_LEN, 0);
        }
        SetData::Value { kind, len } => {
            w.be32(set::DATA_TYPE, *kind);
            w.be32(set::DATA_LEN, *len);
        }
    }
    w.be32(set::ID, id);
    if let Some(timeout) = timeout_ms {
        w.be64(set::TIMEOUT, *timeout);
    }
    if size.is_some() || !fields.is_empty() {
        w.nest(set::DESC, |w| put_description(w, *size, fields));
    }
    if !userdata.is_empty() {
        w.bytes(set::USERDATA, userdata);
    }
}

fn put_description(w: &mut Writer<'_>, size: Option<u32>, fields: &[u32]) {
    if let Some(size) = size {
        w.be32(set::DESC_SIZE, size);
    }
    if !fields.is_empty() {
        w.nest(set::DESC_CONCAT, |w| {
            for field in fields {
                w.nest(LIST_ELEM, |w| w.be32(set::FIELD_LEN, *field));
            }
        });
    }
}

pub(super) fn get_set(attrs: Attrs<'_>) -> Result<Set, &'static str> {
    let word = |kind| attrs.find(kind).and_then(|a| a.be32());
    let name = attrs
        .find(set::NAME)
        .and_then(|a| a.text())
        .ok_or("set name")?;
    let description = attrs.find(set::DESC).map_or(Attrs(&[]), |a| a.nested());
    let fields = description
        .find(set::DESC_CONCAT)
        .map_or(Attrs(&[]), |a| a.nested());
    Ok(Set {
        name: name.to_owned(),
        key_type: word(set::KEY_TYPE).unwrap_or(0),
        key_len: word(set::KEY_LEN).ok_or("set key length")?,
        fields: fields
            .map(|field| field.nested().find(set::FIELD_LEN)?.be32())
            .collect::<Option<_>>()
            .ok_or("set field length")?,
        data: match (word(set::DATA_TYPE), word(set::DATA_LEN)) {
            (None, _) => SetData::None,
            (Some(set::VERDICT), _) => SetData::Verdict,
            (Some(kind), len) => SetData::Value {
                kind,
                len: len.ok_or("set data length")?,
            },
        },
        flags: SetFlags(word(set::FLAGS).unwrap_or(0)),
        size: description.find(set::DESC_SIZE).and_then(|a| a.be32()),
        timeout_ms: attrs
            .find(set::TIMEOUT)
            .and_then(|a| a.be64())
            .filter(|ms| *ms != 0),
        userdata: attrs
            .find(set::USERDATA)
            .map_or(Vec::new(), |a| a.value.to_vec()),
    })
}

/// Writes one element as a list element.
pub(super) fn put_element(w: &mut Writer<'_>, value: &ElementRef<'_>) {
    let ElementRef {
        key,
        key_end,
        data,
        timeout_ms,
        expiration_ms,
        comment,
        end,
    } = *value;
    let nest = w.open(LIST_ELEM);
    match end {
        ElementEnd::Start => {}
        ElementEnd::End => w.be32(elem::FLAGS, elem::END),
        ElementEnd::CatchAll => w.be32(elem::FLAGS, elem::CATCH_ALL),
    }
    if end != ElementEnd::CatchAll {
        expr_wire::put_value(w, elem::KEY, key);
    }
    if let Some(key_end) = key_end {
        expr_wire::put_value(w, elem::KEY_END, key_end);
    }
    match data {
        DataRef::None => {}
        DataRef::Verdict(verdict) => expr_wire::put_verdict(w, elem::DATA, verdict),
        DataRef::Value(value) => expr_wire::put_value(w, elem::DATA, value),
    }
    if let Some(timeout) = timeout_ms {
        w.be64(elem::TIMEOUT, timeout);
    }
    if let Some(expiration) = expiration_ms {
        w.be64(elem::EXPIRATION, expiration);
    }
    put_comment(w, elem::USERDATA, comment);
    w.close(nest);
}

/// What others may have put into a set of ours must not hide the rest of it: an element is read
/// as far as it is understood.
pub(super) fn get_element(attrs: Attrs<'_>) -> Result<ElementRef<'_>, &'static str> {
    let long = |kind| attrs.find(kind).and_then(|a| a.be64());
    let flags = attrs.find(elem::FLAGS).and_then(|a| a.be32()).unwrap_or(0);
    let end = match (flags & elem::END, flags & elem::CATCH_ALL) {
        (0, 0) => ElementEnd::Start,
        (0, _) => ElementEnd::CatchAll,
        (_, _) => ElementEnd::End,
    };
    let key = attrs.find(elem::KEY).and_then(|a| expr_wire::value(&a));
    Ok(ElementRef {
        key: match end {
            ElementEnd::Start | ElementEnd::End => key.ok_or("element key")?,
            ElementEnd::CatchAll => &[],
        },
        key_end: attrs.find(elem::KEY_END).and_then(|a| expr_wire::value(&a)),
        data: attrs
            .find(elem::DATA)
            .map_or(DataRef::None, |attr| get_data(&attr)),
        timeout_ms: long(elem::TIMEOUT).filter(|ms| *ms != 0),
        expiration_ms: long(elem::EXPIRATION),
        comment: comment(attrs.find(elem::USERDATA)),
        end,
    })
}

/// Verdicts other than ours (`queue`) count as none, which differs from what any of ours has.
fn get_data<'a>(attr: &Attr<'a>) -> DataRef<'a> {
    match (expr_wire::value(attr), expr_wire::verdict(attr)) {
        (Some(value), _) => DataRef::Value(value),
        (None, Some(verdict)) => DataRef::Verdict(verdict),
        (None, None) => DataRef::None,
    }
}
