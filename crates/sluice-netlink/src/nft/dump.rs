//! What the kernel lists, decoded.

use super::object::{Chain, ElementRef, Rule, Set};
use super::object_wire::{self as wire, chain, list, rule, set, table};
use super::{Family, event};
use crate::message::{Message, Messages};
use crate::wire::Attrs;

/// A table as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Family; `None` for inet, bridge and the like.
    pub family: Option<Family>,
    /// Name.
    pub name: String,
    /// Handle.
    pub handle: u64,
    /// `NFT_TABLE_F_*`: 1 is dormant, 2 owned by one socket.
    pub flags: u32,
    /// Port id of the owning socket.
    pub owner: Option<u32>,
    /// Comment.
    pub comment: Option<String>,
}

/// A chain as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainInfo {
    /// The chain.
    pub chain: Chain,
    /// Handle.
    pub handle: u64,
}

/// A rule as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// The rule.
    pub rule: Rule,
    /// Handle, for [`Batch::delete_rule`](super::Batch::delete_rule).
    pub handle: u64,
}

/// A set as listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetInfo {
    /// The set.
    pub set: Set,
    /// Handle.
    pub handle: u64,
}

/// Family and attributes of a message: `struct nfgenmsg` comes first.
pub(super) fn split<'a>(message: &Message<'a>) -> Result<(u8, Attrs<'a>), &'static str> {
    let family = *message.body.first().ok_or("family")?;
    Ok((family, Attrs(message.body.get(4..).ok_or("header")?)))
}

fn handle(attrs: Attrs<'_>, kind: u16) -> u64 {
    attrs.find(kind).and_then(|a| a.be64()).unwrap_or(0)
}

/// The table that an object is in; the attribute is number 1 of all kinds.
pub(super) fn table_of<'a>(attrs: Attrs<'a>) -> Option<&'a str> {
    const { assert!(chain::TABLE == 1 && rule::TABLE == 1 && set::TABLE == 1 && list::TABLE == 1) }
    attrs.find(table::NAME)?.text()
}

pub(super) fn table(message: &Message<'_>) -> Result<TableInfo, &'static str> {
    let (family, attrs) = split(message)?;
    Ok(TableInfo {
        family: Family::from_raw(family),
        name: table_of(attrs).ok_or("table name")?.to_owned(),
        handle: handle(attrs, table::HANDLE),
        flags: attrs.find(table::FLAGS).and_then(|a| a.be32()).unwrap_or(0),
        owner: attrs.find(table::OWNER).and_then(|a| a.be32()),
        comment: wire::table_comment(attrs),
    })
}

pub(super) fn chain(attrs: Attrs<'_>) -> Result<ChainInfo, &'static str> {
    Ok(ChainInfo {
        chain: wire::get_chain(attrs)?,
        handle: handle(attrs, chain::HANDLE),
    })
}

pub(super) fn rule(attrs: Attrs<'_>) -> Result<RuleInfo, &'static str> {
    Ok(RuleInfo {
        rule: wire::get_rule(attrs)?,
        handle: handle(attrs, rule::HANDLE),
    })
}

pub(super) fn set(attrs: Attrs<'_>) -> Result<SetInfo, &'static str> {
    Ok(SetInfo {
        set: wire::get_set(attrs)?,
        handle: handle(attrs, set::HANDLE),
    })
}

/// Calls `each` for every element of an element message.
pub(super) fn elements<'a>(
    attrs: Attrs<'a>,
    mut each: impl FnMut(ElementRef<'a>),
) -> Result<(), &'static str> {
    let nest = attrs
        .find(list::ELEMENTS)
        .map_or(Attrs(&[]), |a| a.nested());
    for element in nest {
        each(wire::get_element(element.nested())?);
    }
    Ok(())
}

/// Every decoder over every message, for tests with arbitrary bytes; counts what was understood.
pub(crate) fn decode_anything(datagram: &[u8]) -> usize {
    let mut understood = 0;
    for message in Messages(datagram) {
        understood += usize::from(message.answer().is_some());
        understood += usize::from(event::decode(&message).is_some());
        let Ok((_, attrs)) = split(&message) else {
            continue;
        };
        understood += usize::from(table(&message).is_ok());
        understood += usize::from(chain(attrs).is_ok());
        understood += rule(attrs).map_or(0, |info| info.rule.to_string().len());
        understood += usize::from(set(attrs).is_ok());
        understood += usize::from(elements(attrs, |element| drop(element.to_owned())).is_ok());
    }
    understood
}
