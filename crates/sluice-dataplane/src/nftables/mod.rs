//! nftables mode: services are data.
//!
//! The table's program ([`program`]) depends only on the node. A service is a handful of elements
//! ([`element`]) in a few sets and maps: its addresses lead to a *class chain* shared by all
//! services of the same kind and size, and that chain picks an endpoint from one big map. So a
//! change costs the elements that changed. `docs/nftables.md` shows a table and reads it.
//!
//! [`Compiler`] is pure: changed routes in, a transaction out. [`driver::Driver`] carries it out
//! and reads the kernel back.

pub mod compile;
pub mod driver;
pub mod element;
pub mod layout;
pub mod program;
mod read;
mod resync;
pub mod rule;
mod table;
pub mod tx;

use sluice_model::fact::Family;
use sluice_model::route::Changes;

use crate::drift::Drift;
use resync::slot_hints;
use table::Table;
use tx::{Observed, Tx};

/// Both tables as intended.
#[derive(Debug)]
pub struct Compiler {
    tables: [Table; 2],
}

impl Compiler {
    /// Empty tables. `mark` is the one-bit packet mark that asks for masquerade.
    pub fn new(mark: u32) -> Compiler {
        Compiler {
            tables: Family::ALL.map(|family| Table::new(family, mark)),
        }
    }

    /// Takes changes in; the result carries exactly them out on a kernel that holds what was
    /// intended before.
    pub fn update(&mut self, changes: &Changes) -> Tx {
        let parts = self
            .tables
            .iter_mut()
            .zip(Family::ALL)
            .map(|(table, family)| {
                let node = changes.node[family as usize].as_ref();
                table.update(
                    node,
                    changes.routes.iter().filter(|c| c.family() == Some(family)),
                )
            });
        Tx {
            parts: parts
                .filter(|p| !p.ops.is_empty() || !p.sweep.is_empty())
                .collect(),
        }
    }

    /// Takes changes in before a [`Compiler::resync`] with the same observation. Endpoints keep
    /// the slots that they have in the kernel.
    pub fn adopt(&mut self, changes: &Changes, observed: &Observed) {
        for (table, family) in self.tables.iter_mut().zip(Family::ALL) {
            let hints = slot_hints(observed.table(family));
            let node = changes.node[family as usize].as_ref();
            let routes = changes.routes.iter().filter(|c| c.family() == Some(family));
            table.adopt(node, routes, &hints);
        }
    }

    /// What turns the kernel as read into what is intended, and how far it was off.
    pub fn resync(&mut self, observed: &Observed) -> (Tx, [Drift; 2]) {
        let mut drifts = [Drift::default(), Drift::default()];
        let mut tx = Tx::default();
        for (table, family) in self.tables.iter_mut().zip(Family::ALL) {
            let (part, drift) = table.resync(observed.table(family));
            drifts[family as usize] = drift;
            if !part.ops.is_empty() {
                tx.parts.push(part);
            }
        }
        (tx, drifts)
    }
}
