//! What is to be done in the kernel, and what was found there: the two values that pass between
//! the compiler and the driver.

use std::fmt;

use sluice_model::fact::{Family, Protocol};
use sluice_model::route::{At, Backend};
use sluice_netlink::nft::{Chain, Rule, Set};

use super::compile::Element;
use super::element::ChainId;
use super::program::Program;

/// One atomic change over both families.
#[derive(Debug, Default, PartialEq)]
pub struct Tx {
    /// A part per family that has something to do.
    pub parts: Vec<Part>,
}

impl Tx {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.ops.is_empty())
    }

    /// Number of kernel objects touched.
    pub fn len(&self) -> usize {
        self.parts
            .iter()
            .flat_map(|part| &part.ops)
            .map(Op::weight)
            .sum()
    }
}

/// The part of a change that concerns one family's table.
#[derive(Debug, PartialEq)]
pub struct Part {
    /// Family.
    pub family: Family,
    /// In the order in which they must happen.
    pub ops: Vec<Op>,
    /// Idle class chains to delete afterwards, in a batch of their own: kernels before 6.2 see
    /// late that nothing refers to them any more, and must not fail the change for that.
    pub sweep: Vec<ChainId>,
}

/// One operation on the table.
#[derive(Debug, PartialEq)]
pub enum Op {
    /// Create the table.
    AddTable,
    /// Delete the table with all that is in it.
    DeleteTable,
    /// Create a set or map.
    AddSet(Set),
    /// Delete a set or map.
    DeleteSet(String),
    /// Create a chain.
    AddChain(Chain),
    /// Delete all rules of a chain.
    FlushChain(String),
    /// Delete a chain.
    DeleteChain(String),
    /// Append a rule.
    AddRule(Rule),
    /// Add elements; sorted by set.
    Add(Vec<Element>),
    /// Delete elements; sorted by set.
    Remove(Vec<Element>),
    /// Delete an element that this program cannot have written.
    RemoveForeign(ForeignElement),
    /// Forget clients that were given an endpoint which is no longer there.
    Forget(Forget),
}

impl Op {
    fn weight(&self) -> usize {
        self.elements().map_or(1, <[Element]>::len)
    }

    /// The elements that it adds or deletes; `None` for operations on one object.
    pub(super) fn elements(&self) -> Option<&[Element]> {
        match self {
            Op::Add(elements) | Op::Remove(elements) => Some(elements),
            Op::AddTable
            | Op::DeleteTable
            | Op::AddSet(_)
            | Op::DeleteSet(_)
            | Op::AddChain(_)
            | Op::FlushChain(_)
            | Op::DeleteChain(_)
            | Op::AddRule(_)
            | Op::RemoveForeign(_)
            | Op::Forget(_) => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::AddTable => write!(f, "add table"),
            Op::DeleteTable => write!(f, "delete table"),
            Op::AddSet(set) => write!(f, "add set {}", set.name),
            Op::DeleteSet(name) => write!(f, "delete set {name}"),
            Op::AddChain(chain) => write!(f, "add chain {}", chain.name),
            Op::FlushChain(name) => write!(f, "flush chain {name}"),
            Op::DeleteChain(name) => write!(f, "delete chain {name}"),
            Op::AddRule(rule) => write!(f, "add rule {rule}"),
            Op::Add(elements) => write!(f, "add {} elements", elements.len()),
            Op::Remove(elements) => write!(f, "delete {} elements", elements.len()),
            Op::RemoveForeign(element) => write!(f, "delete foreign element of {}", element.set),
            Op::Forget(forget) => write!(
                f,
                "forget clients of {:?}/{} (affinity {} s)",
                forget.at, forget.protocol, forget.seconds
            ),
        }
    }
}

/// An element as read, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignElement {
    /// Its set.
    pub set: String,
    /// Key.
    pub key: Vec<u8>,
    /// Last key of a range.
    pub end: Option<Vec<u8>>,
}

/// Affinity entries to remove: those of one frontend that point to one of these endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct Forget {
    /// Time-out, which names the map.
    pub seconds: u32,
    /// Frontend.
    pub at: At,
    /// Protocol of the frontend.
    pub protocol: Protocol,
    /// Endpoints that are gone.
    pub gone: Vec<Backend>,
}

/// What the kernel holds, per family ([`Family::ALL`]'s order); `None` where there is no table.
#[derive(Debug, Default)]
pub struct Observed {
    /// The tables.
    pub tables: [Option<ObservedTable>; 2],
}

impl Observed {
    /// The table of a family.
    pub fn table(&self, family: Family) -> Option<&ObservedTable> {
        self.tables[family as usize].as_ref()
    }
}

/// Whether the hooks of a table are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// Yes.
    #[default]
    Active,
    /// No (`flags dormant` in nft): everything is there, and no packet sees it.
    Dormant,
}

/// A table as read.
#[derive(Debug, Default)]
pub struct ObservedTable {
    /// Whether packets go through it.
    pub activity: Activity,
    /// Chains, rules and set definitions.
    pub program: Program,
    /// Elements of our sets, without those the kernel learned.
    pub elements: Vec<Element>,
    /// Learned affinity entries, by time-out.
    pub clients: Vec<(u32, Element)>,
    /// Elements that decode to nothing we write.
    pub foreign: Vec<ForeignElement>,
}
