//! iptables mode: the classical chains, and only what changed of them.
//!
//! A service port has chains of its own ([`compile()`](compile::compile)), named as kube-proxy names
//! them, and a line in each of a few chains that all share ([`fixed`]). A change rewrites the
//! service's chains that differ, and adds and deletes single lines in the shared ones: rewriting
//! those costs seconds where there are many services. Everything goes through
//! `iptables-restore --noflush` ([`driver`]), whose text exists only in `Display`.
//!
//! [`Compiler`] is pure: changed routes in, a transaction out.
//!
//! The rules are kube-proxy's but for these, which make both modes mean the same:
//! - `filter` KUBE-SERVICES ends with a jump to KUBE-EXTERNAL-SERVICES, so that processes of the
//!   node are refused like everybody else where an external address has no endpoints.
//! - What is still on its way to a service range behind that goes to KUBE-CLUSTER-IPS: ports that
//!   a cluster IP does not have are refused, addresses without a service dropped. While no service
//!   range is known the former stand in KUBE-SERVICES, and there are none of the latter.
//! - A guarded load-balancer address without endpoints answers only sources within its ranges.
//! - Node ports without endpoints are refused only where node ports are served.

pub mod cleanup;
pub mod compile;
mod deliver;
pub mod driver;
pub mod fixed;
pub mod ground;
mod list;
pub mod name;
mod resync;
pub mod rule;
pub mod ruleset;
mod table;
pub mod tool;
pub mod tx;

use sluice_model::fact::Family;
use sluice_model::route::{Changes, RouteChange};

use crate::drift::Drift;
use ground::Options;
use ruleset::Ruleset;
use table::{Intent, News};
use tx::{Observed, Outcome, Tx};

/// Both families as intended.
#[derive(Debug)]
pub struct Compiler {
    families: [Intent; 2],
}

impl Compiler {
    /// Nothing intended yet.
    pub fn new(options: &Options) -> Compiler {
        Compiler {
            families: Family::ALL.map(|family| Intent::new(family, options.clone())),
        }
    }

    /// Takes changes in; the result carries exactly them out on a kernel that holds what was
    /// intended before. What became of the transaction before must have been told
    /// ([`Compiler::settle`]), or it counts as carried out.
    pub fn update(&mut self, changes: &Changes) -> Tx {
        let mut tx = Tx::default();
        for intent in &mut self.families {
            let part = with_news(changes, intent.ground.family, |news| intent.update(news));
            tx.parts.extend(Some(part).filter(|part| !part.is_empty()));
        }
        tx
    }

    /// Takes changes in before a [`Compiler::resync`]. What the last transaction was to change
    /// counts as unknown unless its outcome was told.
    pub fn adopt(&mut self, changes: &Changes, _observed: &Observed) {
        for intent in &mut self.families {
            with_news(changes, intent.ground.family, |news| intent.adopt(news));
        }
    }

    /// What turns the kernel as listed into what is intended, and how far it was off. Chains of
    /// services are not compared: all are written the first time and where the table was flushed,
    /// later those that are in doubt.
    pub fn resync(&mut self, observed: &Observed) -> (Tx, [Drift; 2]) {
        let mut drifts = [Drift::default(), Drift::default()];
        let mut tx = Tx::default();
        for (intent, drift) in self.families.iter_mut().zip(&mut drifts) {
            if let Some(listing) = &observed.families[intent.ground.family as usize] {
                let (part, found) = intent.resync(listing);
                *drift = found;
                tx.parts.extend(Some(part).filter(|part| !part.is_empty()));
            }
        }
        (tx, drifts)
    }

    /// Takes in what became of the last transaction. What was left out is written again by the
    /// next [`Compiler::resync`].
    pub fn settle(&mut self, outcome: &Outcome) {
        for intent in &mut self.families {
            let family = intent.ground.family;
            intent.settle(outcome.left_out.iter().filter(|l| l.family == family));
        }
    }

    /// Whether something was left out and waits for the next [`Compiler::resync`].
    pub fn in_doubt(&self) -> bool {
        self.families.iter().any(Intent::in_doubt)
    }

    /// All rules of a family as intended, jumps included.
    pub fn ruleset(&self, family: Family) -> Ruleset {
        ruleset::intended(&self.families[family as usize])
    }
}

fn with_news<T>(changes: &Changes, family: Family, take: impl FnOnce(News<'_>) -> T) -> T {
    let of_family = |change: &&RouteChange| change.family() == Some(family);
    let routes: Vec<&RouteChange> = changes.routes.iter().filter(of_family).collect();
    let node = changes.node[family as usize].as_ref();
    take(News {
        node,
        routes: &routes,
        health: &changes.health,
    })
}
