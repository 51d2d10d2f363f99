//! A batch: many changes that the kernel makes all together or not at all.

use super::object::{Chain, ElementRef, Rule, Set};
use super::object_wire::{self as wire, chain, list, rule, set, table};
use super::{Family, SUBSYSTEM, family_header, msg};
use crate::message::{self, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST};
use crate::wire::{ATTR_MAX, Attrs, Nest, Writer};

/// `NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END` (`linux/netfilter/nfnetlink.h`).
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// `NFNL_BATCH_GENID`.
const BATCH_GENID: u16 = 1;
/// `struct nfgenmsg` of begin and end: the subsystem as resource id, network order.
const BATCH_HEADER: [u8; 4] = [0, 0, 0, 10];
/// Offset of a message's attributes: `struct nlmsghdr` and `struct nfgenmsg`.
const ATTRIBUTES: usize = message::HEADER + 4;

/// A table by family and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId<'a> {
    /// Family.
    pub family: Family,
    /// Name.
    pub name: &'a str,
}

/// A set by table and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetId<'a> {
    /// Table.
    pub table: TableId<'a>,
    /// Name.
    pub name: &'a str,
}

/// What happens to elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementOp {
    /// They are added. One that is there already, alike, is fine; with another value it fails.
    Add,
    /// They are removed; one that is not there fails.
    Delete,
    /// They are removed if they are there (kernel 6.3 and newer).
    Destroy,
}

/// A message of the batch.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    tag: u32,
    /// Index, within the call, of the first element of an element list.
    first_element: usize,
}

/// Changes in the order in which they are made. Keep one and [`begin`](Batch::begin) it again:
/// its memory is reused.
///
/// Every method takes a `tag`, a number of the caller's that comes back with an error of that
/// change.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    set_ids: u32,
    too_long: Option<u32>,
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl Batch {
    /// An empty batch that does not care about the generation.
    pub fn new() -> Self {
        let mut batch = Batch {
            bytes: Vec::new(),
            entries: Vec::new(),
            set_ids: 0,
            too_long: None,
        };
        batch.begin(None);
        batch
    }

    /// Forgets all changes. With a generation, the kernel refuses the batch (`ERESTART`) if the
    /// ruleset has changed since.
    pub fn begin(&mut self, generation: Option<u32>) {
        self.bytes.clear();
        self.entries.clear();
        self.set_ids = 0;
        self.too_long = None;
        let start = message::begin(&mut self.bytes, BATCH_BEGIN, NLM_F_REQUEST, 0);
        let mut writer = Writer::new(&mut self.bytes);
        writer.raw(&BATCH_HEADER);
        if let Some(generation) = generation {
            writer.be32(BATCH_GENID, generation);
        }
        message::end(&mut self.bytes, start);
    }

    /// No changes.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Messages: an element list may take several.
    pub fn messages(&self) -> usize {
        self.entries.len()
    }

    /// Bytes on the wire, without the end mark.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a table, or accepts that it is there.
    pub fn add_table(&mut self, table: TableId<'_>, comment: Option<&str>, tag: u32) {
        self.push((msg::NEWTABLE, NLM_F_CREATE), table.family, tag, |w| {
            wire::put_table(w, table.name, comment);
        });
    }

    /// Removes a table with everything in it; fails if it is not there.
    pub fn delete_table(&mut self, table: TableId<'_>, tag: u32) {
        self.push((msg::DELTABLE, 0), table.family, tag, |w| {
            w.text(table::NAME, table.name)
        });
    }

    /// Removes a table with everything in it, if it is there (kernel 6.3 and newer).
    pub fn destroy_table(&mut self, table: TableId<'_>, tag: u32) {
        self.push((msg::DESTROYTABLE, 0), table.family, tag, |w| {
            w.text(table::NAME, table.name)
        });
    }

    /// Adds a chain, or accepts that it is there.
    pub fn add_chain(&mut self, table: TableId<'_>, value: &Chain, tag: u32) {
        self.push((msg::NEWCHAIN, NLM_F_CREATE), table.family, tag, |w| {
            w.text(chain::TABLE, table.name);
            wire::put_chain(w, value);
        });
    }

    /// Removes a chain; fails while a rule or an element refers to it.
    pub fn delete_chain(&mut self, table: TableId<'_>, name: &str, tag: u32) {
        self.push((msg::DELCHAIN, 0), table.family, tag, |w| {
            w.text(chain::TABLE, table.name);
            w.text(chain::NAME, name);
        });
    }

    /// Removes all rules of a chain.
    pub fn flush_chain(&mut self, table: TableId<'_>, name: &str, tag: u32) {
        self.push((msg::DELRULE, 0), table.family, tag, |w| {
            w.text(rule::TABLE, table.name);
            w.text(rule::CHAIN, name);
        });
    }

    /// Adds a rule at the end of its chain.
    pub fn add_rule(&mut self, table: TableId<'_>, value: &Rule, tag: u32) {
        self.push(
            (msg::NEWRULE, NLM_F_CREATE | NLM_F_APPEND),
            table.family,
            tag,
            |w| {
                w.text(rule::TABLE, table.name);
                wire::put_rule(w, value);
            },
        );
    }

    /// Removes a rule by the handle that a list tells.
    pub fn delete_rule(&mut self, table: TableId<'_>, chain: &str, handle: u64, tag: u32) {
        self.push((msg::DELRULE, 0), table.family, tag, |w| {
            w.text(rule::TABLE, table.name);
            w.text(rule::CHAIN, chain);
            w.be64(rule::HANDLE, handle);
        });
    }

    /// Adds a set or map, or accepts one that is there with the same layout.
    pub fn add_set(&mut self, table: TableId<'_>, value: &Set, tag: u32) {
        self.set_ids += 1;
        let id = self.set_ids;
        self.push((msg::NEWSET, NLM_F_CREATE), table.family, tag, |w| {
            w.text(set::TABLE, table.name);
            wire::put_set(w, value, id);
        });
    }

    /// Removes a set with its elements; fails while a rule refers to it.
    pub fn delete_set(&mut self, table: TableId<'_>, name: &str, tag: u32) {
        self.push((msg::DELSET, 0), table.family, tag, |w| {
            w.text(set::TABLE, table.name);
            w.text(set::NAME, name);
        });
    }

    /// Removes all elements of a set.
    pub fn flush_set(&mut self, table: TableId<'_>, name: &str, tag: u32) {
        self.push((msg::DELSETELEM, 0), table.family, tag, |w| {
            w.text(list::TABLE, table.name);
            w.text(list::SET, name);
        });
    }

    /// Adds or removes elements, in as many messages as they need.
    pub fn elements<'e>(
        &mut self,
        op: ElementOp,
        set: SetId<'_>,
        tag: u32,
        elements: impl IntoIterator<Item = ElementRef<'e>>,
    ) {
        let mut open: Option<(usize, Nest)> = None;
        for (index, element) in elements.into_iter().enumerate() {
            let (start, nest) = open
                .take()
                .unwrap_or_else(|| self.begin_elements((op, index), set, tag));
            let before = self.bytes.len();
            let mut writer = Writer::new(&mut self.bytes);
            wire::put_element(&mut writer, &element);
            if writer.is_too_long() {
                self.too_long.get_or_insert(tag);
            }
            if self.bytes.len() - nest.start() <= ATTR_MAX {
                open = Some((start, nest));
                continue;
            }
            // The list is full: this element opens the next one. One that fills a list by
            // itself is written nevertheless, and noticed as too long.
            let overflowing = self.bytes.split_off(before);
            let nest = if before == nest.start() + crate::wire::ATTR_HEADER {
                (start, nest)
            } else {
                self.end_elements(start, nest);
                self.begin_elements((op, index), set, tag)
            };
            self.bytes.extend_from_slice(&overflowing);
            open = Some(nest);
        }
        if let Some((start, nest)) = open {
            self.end_elements(start, nest);
        }
    }

    fn begin_elements(
        &mut self,
        (op, first_element): (ElementOp, usize),
        set: SetId<'_>,
        tag: u32,
    ) -> (usize, Nest) {
        let kind = match op {
            ElementOp::Add => (msg::NEWSETELEM, NLM_F_CREATE),
            ElementOp::Delete => (msg::DELSETELEM, 0),
            ElementOp::Destroy => (msg::DESTROYSETELEM, 0),
        };
        let start = self.open(kind, set.table.family, tag);
        if let Some(entry) = self.entries.last_mut() {
            entry.first_element = first_element;
        }
        let mut writer = Writer::new(&mut self.bytes);
        writer.text(list::TABLE, set.table.name);
        writer.text(list::SET, set.name);
        (start, writer.open(list::ELEMENTS))
    }

    fn end_elements(&mut self, start: usize, nest: Nest) {
        let mut writer = Writer::new(&mut self.bytes);
        writer.close(nest);
        let too_long = writer.is_too_long();
        self.close(start, too_long);
    }

    fn push(
        &mut self,
        kind: (u16, u16),
        family: Family,
        tag: u32,
        fill: impl FnOnce(&mut Writer<'_>),
    ) {
        let start = self.open(kind, family, tag);
        let mut writer = Writer::new(&mut self.bytes);
        fill(&mut writer);
        let too_long = writer.is_too_long();
        self.close(start, too_long);
    }

    fn open(&mut self, (kind, flags): (u16, u16), family: Family, tag: u32) -> usize {
        // Only the last message asks for an acknowledgement: with one per message, a large batch
        // overruns the receive buffer. The end mark cannot carry it, kernels before 6.10 or so
        // do not acknowledge that.
        if let Some(previous) = self.entries.last() {
            self.set_flags(previous.start, |flags| flags & !NLM_F_ACK);
        }
        let sequence = self.entries.len() as u32 + 1;
        let flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let start = message::begin(&mut self.bytes, SUBSYSTEM | kind, flags, sequence);
        self.bytes.extend_from_slice(&family_header(Some(family)));
        self.entries.push(Entry {
            start,
            tag,
            first_element: 0,
        });
        start
    }

    fn set_flags(&mut self, start: usize, change: impl FnOnce(u16) -> u16) {
        let flags = u16::from_ne_bytes([self.bytes[start + 6], self.bytes[start + 7]]);
        self.bytes[start + 6..start + 8].copy_from_slice(&change(flags).to_ne_bytes());
    }

    fn close(&mut self, start: usize, too_long: bool) {
        message::end(&mut self.bytes, start);
        if too_long && let Some(entry) = self.entries.last() {
            self.too_long.get_or_insert(entry.tag);
        }
    }

    /// The bytes so far: begin mark and changes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The end mark.
    pub(super) fn end_mark() -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ATTRIBUTES);
        let start = message::begin(&mut bytes, BATCH_END, NLM_F_REQUEST, 0);
        bytes.extend_from_slice(&BATCH_HEADER);
        message::end(&mut bytes, start);
        bytes
    }

    /// Tag of the first change that could not be expressed.
    pub(super) fn too_long(&self) -> Option<u32> {
        self.too_long
    }

    /// Tag of the change with this sequence number and, of an element list, the index of the
    /// element whose attribute is at `offset` of the message.
    pub(super) fn locate(
        &self,
        sequence: u32,
        offset: Option<u32>,
    ) -> Option<(u32, Option<usize>)> {
        let index = (sequence as usize).checked_sub(1)?;
        let entry = self.entries.get(index)?;
        let end = self
            .entries
            .get(index + 1)
            .map_or(self.bytes.len(), |next| next.start);
        let element = offset.and_then(|offset| {
            let message = self.bytes.get(entry.start..end)?;
            element_at(message, offset as usize).map(|at| entry.first_element + at)
        });
        Some((entry.tag, element))
    }
}

/// Index of the list element that covers `offset` of an element message.
fn element_at(message: &[u8], offset: usize) -> Option<usize> {
    let kind = u16::from_ne_bytes([message[4], message[5]]);
    if ![msg::NEWSETELEM, msg::DELSETELEM, msg::DESTROYSETELEM].contains(&(kind & 0xff)) {
        return None;
    }
    let elements = Attrs(message.get(ATTRIBUTES..)?)
        .find(list::ELEMENTS)?
        .value;
    // Both slices are of one buffer, so the distance between them is the offset of the list.
    let start = elements.as_ptr() as usize - message.as_ptr() as usize;
    let within = offset.checked_sub(start)?;
    let mut walked = 0;
    for (index, element) in Attrs(elements).enumerate() {
        walked += crate::wire::align(element.value.len() + crate::wire::ATTR_HEADER);
        if within < walked {
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
mod tests;
