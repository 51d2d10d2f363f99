//! From a service and its endpoints to routes.

use std::sync::Arc;

use ipnet::IpNet;

use crate::fact::{Family, ServicePort, TrafficPolicy};
use crate::name::ObjectKey;
use crate::route::{Frontend, Masquerade, Path, Pool, PoolChoice, PortKey, Refusal, Route, Scope};
use crate::settings::Settings;

use super::claims::{Claims, Place};
use super::node::{Outlook, merged};
use super::select::{Candidate, Selection, select};
use super::spec::Spec;

/// What a service's routes are made from, beside its endpoints.
pub(super) struct Maker<'a> {
    pub(super) key: &'a Arc<ObjectKey>,
    pub(super) spec: &'a Spec,
    pub(super) settings: &'a Settings,
    pub(super) outlook: &'a Outlook,
    pub(super) claims: &'a Claims,
    /// Shared by all routes that need one.
    pub(super) empty: &'a Pool,
}

impl Maker<'_> {
    /// The route of the service's port number `index` in a family, and remarks about places that
    /// another service holds.
    pub(super) fn route(
        &self,
        index: u16,
        port: &ServicePort,
        family: Family,
        candidates: &[Candidate<'_>],
    ) -> (Route, Vec<String>) {
        let mut notes = Vec::new();
        let selection = select(candidates, &self.outlook.standpoint);
        let mut frontends = Vec::with_capacity(1);
        for (place, scope) in self.spec.places(port, family) {
            match self.taken(place, index) {
                None => frontends.push(self.frontend(place, scope, &selection)),
                Some(note) => notes.push(note),
            }
        }
        let uses = |choice: PoolChoice| {
            frontends.iter().any(|frontend| match frontend.path {
                Path::Uniform(chosen, _) => chosen == choice,
                Path::Split => true,
            })
        };
        let pool = |choice, backends: Vec<_>| {
            if backends.is_empty() || !uses(choice) {
                self.empty.clone()
            } else {
                Pool::new(backends)
            }
        };
        let route = Route {
            key: PortKey {
                service: ObjectKey::clone(self.key),
                port: port.name.clone(),
                protocol: port.protocol,
            },
            family,
            cluster: pool(PoolChoice::Cluster, selection.cluster),
            local: pool(PoolChoice::Local, selection.local),
            affinity: self.spec.affinity,
            frontends,
        };
        (route, notes)
    }

    /// `None` if this port has the place, else who does.
    fn taken(&self, place: Place, index: u16) -> Option<String> {
        let holder = self.claims.holder(place)?;
        if holder.service == *self.key {
            return (holder.port != index).then(|| {
                format!(
                    "{place} is wanted by two ports of this Service; only the one whose name \
                     comes first is served there, give the other one another number"
                )
            });
        }
        Some(format!(
            "{place} belongs to Service {}, which comes first (the older one, or by name where \
             ages are unknown or equal); this one is served there when that one goes, use \
             another address or port",
            holder.service
        ))
    }

    fn frontend(&self, place: Place, scope: Scope, selection: &Selection) -> Frontend {
        let path = match scope {
            Scope::Cluster => Path::Uniform(
                match self.spec.internal {
                    TrafficPolicy::Cluster => PoolChoice::Cluster,
                    TrafficPolicy::Local => PoolChoice::Local,
                },
                self.cluster_masquerade(place.family),
            ),
            Scope::ExternalIp | Scope::LoadBalancer | Scope::NodePort => match self.spec.external {
                TrafficPolicy::Cluster => Path::Uniform(PoolChoice::Cluster, Masquerade::Always),
                TrafficPolicy::Local => Path::Split,
            },
        };
        let starved = match path {
            Path::Uniform(PoolChoice::Cluster, _) => selection.cluster.is_empty(),
            Path::Uniform(PoolChoice::Local, _) | Path::Split => selection.local.is_empty(),
        };
        let refusal = if selection.exists {
            Refusal::Drop
        } else {
            Refusal::Reject
        };
        Frontend {
            at: place.at,
            scope,
            path,
            allow: match scope {
                Scope::LoadBalancer => self.allow(place.family),
                Scope::Cluster | Scope::ExternalIp | Scope::NodePort => None,
            },
            refusal: starved.then_some(refusal),
        }
    }

    fn cluster_masquerade(&self, family: Family) -> Masquerade {
        if self.settings.masquerade_all {
            Masquerade::Always
        } else if self.outlook.knows_pods[family as usize] {
            Masquerade::NotPods
        } else {
            Masquerade::Never
        }
    }

    /// A connection of this node to its own load balancer's address carries that address as its
    /// source, so a range that lets the node in must let these in.
    fn allow(&self, family: Family) -> Option<Vec<IpNet>> {
        let ranges = self.spec.ranges(family)?;
        let node_ip = self.outlook.node_ip[family as usize];
        let lets_node_in = node_ip.is_some_and(|ip| ranges.iter().any(|net| net.contains(&ip)));
        if !lets_node_in {
            return Some(ranges.to_vec());
        }
        let own = self.spec.load_balancers(family).map(IpNet::from);
        Some(merged(ranges.iter().copied().chain(own).collect()))
    }
}
