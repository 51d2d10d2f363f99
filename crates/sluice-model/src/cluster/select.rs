//! Which endpoints serve: what the slices of a service hold for a port, reduced to a pool for
//! Cluster policy and one for Local policy.

use crate::fact::{Conditions, Family, Hints, Protocol};
use crate::name::Name;
use crate::route::Backend;

use super::slices::Kept;

/// One endpoint of a service port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) backend: Backend,
    conditions: Conditions,
    hints: Option<&'a Hints>,
}

impl Candidate<'_> {
    /// May be given new connections.
    pub(super) fn is_ready(&self) -> bool {
        self.conditions.ready
    }

    /// On its way out but answering: better than nothing.
    fn is_last_resort(&self) -> bool {
        self.conditions.serving && self.conditions.terminating
    }
}

/// The endpoints for a service port, which meets slice ports of the same name and protocol.
///
/// Sorted by address and port, each once. Where slices disagree about one, a pod that lives is
/// believed before one that is being terminated and had the same address, then one that is ready,
/// then one of this node, then the slice whose name comes first: arrival does not matter.
pub(super) fn candidates<'a>(
    slices: &'a [Kept],
    family: Family,
    name: &Name,
    protocol: Protocol,
) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for slice in slices.iter().filter(|slice| slice.family == family) {
        let same = slice
            .ports
            .iter()
            .filter(|port| port.name.as_ref() == Some(name) && port.protocol == protocol);
        for port in same.filter_map(|port| port.port) {
            found.reserve(slice.endpoints.len());
            found.extend(slice.targets().map(|(target, hints)| Candidate {
                backend: Backend {
                    ip: target.ip,
                    port,
                    local: target.is_local(),
                },
                conditions: target.conditions(),
                hints,
            }));
        }
    }
    found.sort_by_key(|c| {
        let Backend { ip, port, local } = c.backend;
        let Conditions {
            ready, terminating, ..
        } = c.conditions;
        (ip, port, terminating, !ready, !local)
    });
    found.dedup_by_key(|c| (c.backend.ip, c.backend.port));
    found
}

/// Where this proxy stands, as hints see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standpoint {
    pub(super) node: Name,
    /// The node's zone; never empty.
    pub(super) zone: Option<Name>,
}

/// The endpoints of a service port by policy.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Under Cluster policy.
    pub(super) cluster: Vec<Backend>,
    /// Under Local policy.
    pub(super) local: Vec<Backend>,
    /// Whether any endpoint in the cluster can serve, wherever it is.
    pub(super) exists: bool,
}

/// Chooses. Each policy falls back to terminating endpoints by itself: one node's last endpoint
/// may be on its way out while others are ready elsewhere.
pub(super) fn select(candidates: &[Candidate<'_>], standpoint: &Standpoint) -> Selection {
    let rule = HintRule::choose(candidates, standpoint);
    let pool = |admit: &dyn Fn(&Candidate<'_>) -> bool| -> Vec<Backend> {
        candidates
            .iter()
            .filter(|c| admit(c))
            .map(|c| c.backend)
            .collect()
    };
    let mut cluster = pool(&|c| c.is_ready() && rule.admits(c, standpoint));
    if cluster.is_empty() {
        cluster = pool(&|c| c.is_last_resort());
    }
    let mut local = pool(&|c| c.backend.local && c.is_ready());
    if local.is_empty() {
        local = pool(&|c| c.backend.local && c.is_last_resort());
    }
    Selection {
        exists: !cluster.is_empty(),
        cluster,
        local,
    }
}

/// Which hints are followed. They are never followed into an empty pool, and one ready endpoint
/// without them shows that their author is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HintRule {
    Ignore,
    SameZone,
    SameNode,
}

impl HintRule {
    fn choose(candidates: &[Candidate<'_>], standpoint: &Standpoint) -> HintRule {
        let ready = || candidates.iter().filter(|c| c.is_ready());
        let agreed = |rule: HintRule, given: &dyn Fn(&Hints) -> bool| {
            ready().all(|c| c.hints.is_some_and(given))
                && ready().any(|c| rule.admits(c, standpoint))
        };
        if agreed(HintRule::SameNode, &|hints| !hints.nodes.is_empty()) {
            HintRule::SameNode
        } else if agreed(HintRule::SameZone, &|hints| !hints.zones.is_empty()) {
            HintRule::SameZone
        } else {
            HintRule::Ignore
        }
    }

    fn admits(self, candidate: &Candidate<'_>, standpoint: &Standpoint) -> bool {
        match self {
            HintRule::Ignore => true,
            HintRule::SameZone => standpoint.zone.as_ref().is_some_and(|zone| {
                candidate
                    .hints
                    .is_some_and(|hints| hints.zones.contains(zone))
            }),
            HintRule::SameNode => candidate
                .hints
                .is_some_and(|hints| hints.nodes.contains(&standpoint.node)),
        }
    }
}
