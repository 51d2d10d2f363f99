//! The state of the cluster as far as this node's proxy needs it, and the changes that follow.

use std::sync::Arc;

use crate::fact::{Fact, Family};
use crate::route::{Changes, NodeView, Route};
use crate::settings::Settings;

/// All facts, the routes last handed out, and what is dirty between the two.
#[derive(Debug)]
pub struct Cluster {
    settings: Settings,
}

impl Cluster {
    /// An empty cluster seen from the configured node.
    pub fn new(settings: Settings) -> Cluster {
        Cluster { settings }
    }

    /// Takes a fact in. Cheap: work is done by [`Cluster::changes`].
    pub fn apply(&mut self, fact: Fact) {
        drop(fact);
    }

    /// Whether Services and slices have both been listed completely at least once.
    pub fn is_synced(&self) -> bool {
        false
    }

    /// Whether [`Cluster::changes`] may have something to say.
    pub fn is_dirty(&self) -> bool {
        false
    }

    /// What changed since the last call. Costs what changed. Empty before [`Cluster::is_synced`].
    pub fn changes(&mut self) -> Changes {
        Changes::default()
    }

    /// Every route as last handed out.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        std::iter::empty()
    }

    /// The node's view of a family as last handed out.
    pub fn node_view(&self, _family: Family) -> &NodeView {
        unreachable!("{:?}", self.settings)
    }
}
