//! nf_tables: expressions, objects, batches, lists and events.
//!
//! Numbers follow `linux/netfilter/nf_tables.h` and `linux/netfilter/nfnetlink.h`.

mod batch;
mod dump;
mod event;
mod expr;
mod expr_wire;
mod keys;
mod object;
mod object_wire;
mod socket;
mod text;
pub mod userdata;

pub use batch::{Batch, ElementOp, SetId, TableId};
pub use dump::{ChainInfo, RuleInfo, SetInfo, TableInfo};
pub use event::{Change, Event, Events, ObjectKind};
pub use expr::{
    Base, CmpOp, CtKey, Dir, DynsetOp, Expr, FibResult, Lookup, MetaKey, NatKind, Reg, RejectKind,
    Verdict, fib, nat,
};
pub use keys::{DataType, KeyLayout};
pub use object::{
    Chain, Data, DataRef, Element, ElementEnd, ElementRef, Hook, HookKind, Policy, Rule, Set,
    SetData, SetFlags,
};
pub use socket::{CommitError, Socket};

pub(crate) use dump::decode_anything;

use std::fmt;

/// `NFNL_SUBSYS_NFTABLES`, in the upper half of a message type.
const SUBSYSTEM: u16 = 10 << 8;

/// The family of a table (`linux/netfilter.h`, `NFPROTO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// `NFPROTO_IPV4`, 2: `ip` in nft.
    Ipv4,
    /// `NFPROTO_IPV6`, 10: `ip6` in nft.
    Ipv6,
}

impl Family {
    /// The kernel's number.
    pub const fn raw(self) -> u8 {
        match self {
            Family::Ipv4 => 2,
            Family::Ipv6 => 10,
        }
    }

    /// The family of a number; `None` for inet, bridge and the like.
    pub const fn from_raw(raw: u8) -> Option<Family> {
        match raw {
            2 => Some(Family::Ipv4),
            10 => Some(Family::Ipv6),
            _ => None,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "ip",
            Family::Ipv6 => "ip6",
        })
    }
}

/// Message types (`enum nf_tables_msg_types`). The `DESTROY` ones are of kernel 6.3 and newer.
mod msg {
    pub(super) const NEWTABLE: u16 = 0;
    pub(super) const GETTABLE: u16 = 1;
    pub(super) const DELTABLE: u16 = 2;
    pub(super) const NEWCHAIN: u16 = 3;
    pub(super) const GETCHAIN: u16 = 4;
    pub(super) const DELCHAIN: u16 = 5;
    pub(super) const NEWRULE: u16 = 6;
    pub(super) const GETRULE: u16 = 7;
    pub(super) const DELRULE: u16 = 8;
    pub(super) const NEWSET: u16 = 9;
    pub(super) const GETSET: u16 = 10;
    pub(super) const DELSET: u16 = 11;
    pub(super) const NEWSETELEM: u16 = 12;
    pub(super) const GETSETELEM: u16 = 13;
    pub(super) const DELSETELEM: u16 = 14;
    pub(super) const NEWGEN: u16 = 15;
    pub(super) const GETGEN: u16 = 16;
    pub(super) const NEWOBJ: u16 = 18;
    pub(super) const DELOBJ: u16 = 20;
    pub(super) const NEWFLOWTABLE: u16 = 22;
    pub(super) const DELFLOWTABLE: u16 = 24;
    pub(super) const DESTROYTABLE: u16 = 26;
    pub(super) const DESTROYSETELEM: u16 = 30;
}

/// `struct nfgenmsg`: family, version 0, resource id 0.
fn family_header(family: Option<Family>) -> [u8; 4] {
    [family.map_or(0, Family::raw), 0, 0, 0]
}
