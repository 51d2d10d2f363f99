//! Who takes part, worked out from the manifests.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use anyhow::Context as _;
use ipnet::IpNet;
use sluice_model::fact::{Fact, Family, Kind, Node, Protocol, Service, Slice};
use sluice_model::name::{Name, ObjectKey};
use sluice_model::settings::{DetectLocal, Settings};

use crate::sandbox::{PodLink, WorldSpec};

/// The node on which the proxy works.
const NODE: &str = "node-a";

/// Which host of a pod range is the client pod. No example has an endpoint there.
const CLIENT: usize = 100;

/// The manifests, taken apart.
#[derive(Debug)]
pub(super) struct Cast {
    facts: Vec<Fact>,
    pub(super) services: Vec<(ObjectKey, Service)>,
    pub(super) slices: Vec<(ObjectKey, Slice)>,
    node: Node,
    others: Vec<Node>,
}

impl Cast {
    pub(super) fn from_facts(facts: Vec<Fact>) -> anyhow::Result<Cast> {
        let mut services = Vec::new();
        let mut slices = Vec::new();
        let mut node = None;
        let mut others = Vec::new();
        for fact in &facts {
            match fact {
                Fact::Service(key, Some(service)) => {
                    services.push((key.clone(), Service::clone(service)));
                }
                Fact::Slice(key, Some(slice)) => slices.push((key.clone(), Slice::clone(slice))),
                Fact::Node(name, Some(own)) if **name == *NODE => node = Some(Node::clone(own)),
                Fact::Node(_, Some(other)) => others.push(Node::clone(other)),
                Fact::Service(_, None)
                | Fact::Slice(_, None)
                | Fact::Node(_, None)
                | Fact::Endpoints(..)
                | Fact::Cidrs(..)
                | Fact::LocalAddresses(_)
                | Fact::Begin(_)
                | Fact::Synced(_) => {}
            }
        }
        services.sort_by(|a, b| a.0.cmp(&b.0));
        let node = node.with_context(|| format!("the manifests have no Node {NODE}"))?;
        Ok(Cast {
            facts,
            services,
            slices,
            node,
            others,
        })
    }

    /// The node's pods are told by the node's own ranges.
    pub(super) fn settings(&self) -> Settings {
        Settings {
            detect_local: DetectLocal::NodeCidr,
            ..Settings::for_node(NODE)
        }
    }

    /// How many services there are.
    pub(super) fn count(&self) -> usize {
        self.services.len()
    }

    /// All facts as a source lists them.
    pub(super) fn listing(&self) -> Vec<Fact> {
        const KINDS: [Kind; 5] = [
            Kind::Nodes,
            Kind::Cidrs,
            Kind::Services,
            Kind::Slices,
            Kind::Endpoints,
        ];
        let begin = KINDS.into_iter().map(Fact::Begin);
        let end = KINDS.into_iter().map(Fact::Synced);
        begin.chain(self.facts.iter().cloned()).chain(end).collect()
    }

    /// The sandbox in which everybody has the address that the manifests say.
    pub(super) fn world(&self) -> WorldSpec {
        let addresses = |nodes: &[Node]| -> Vec<IpAddr> {
            nodes
                .iter()
                .flat_map(|node| node.addresses.clone())
                .collect()
        };
        let own = std::slice::from_ref(&self.node);
        let mut spec = WorldSpec {
            node: addresses(own).into_iter().map(on_link).collect(),
            other_nodes: addresses(&self.others),
            local_pods: vec![self.client()],
            remote_pods: self
                .others
                .iter()
                .flat_map(|node| node.pod_cidrs.clone())
                .collect(),
            pod_link: PodLink::Interfaces("pod".into()),
            ..WorldSpec::default()
        };
        let (local, remote): (Vec<_>, Vec<_>) = self
            .endpoint_addresses()
            .partition(|(_, node)| node.is_some_and(|n| **n == *NODE));
        spec.add_local_pods(local.into_iter().map(|(ip, _)| ip));
        spec.add_remote_pods(remote.into_iter().map(|(ip, _)| ip));
        spec
    }

    fn endpoint_addresses(&self) -> impl Iterator<Item = (IpAddr, Option<&Name>)> {
        let endpoints = self.slices.iter().flat_map(|(_, slice)| &slice.endpoints);
        endpoints.map(|endpoint| (endpoint.ip, endpoint.node.as_ref()))
    }

    /// Addresses of a pod of the node that is no endpoint.
    pub(super) fn client(&self) -> Vec<IpAddr> {
        let ranges = self.node.pod_cidrs.iter();
        ranges
            .filter_map(|range| range.hosts().nth(CLIENT - 1))
            .collect()
    }

    /// An unused pod address on another node, the `number`th of its family.
    pub(super) fn spare(&self, family: Family, number: usize) -> anyhow::Result<IpAddr> {
        let used: BTreeSet<IpAddr> = self.endpoint_addresses().map(|(ip, _)| ip).collect();
        let ranges = self.others.iter().flat_map(|node| &node.pod_cidrs);
        let mut free = ranges
            .filter(|range| Family::of_net(**range) == family)
            .flat_map(IpNet::hosts)
            .filter(|ip| !used.contains(ip));
        free.nth(number)
            .context("the manifests have no other node with free pod addresses")
    }

    /// This address is a pod's of the node under test.
    pub(super) fn is_local(&self, ip: IpAddr) -> bool {
        self.endpoint_addresses()
            .any(|(known, node)| known == ip && node.is_some_and(|node| **node == *NODE))
    }

    /// Addresses of the node under test.
    pub(super) fn node_addresses(&self) -> &[IpAddr] {
        &self.node.addresses
    }

    /// Every server that the slices promise.
    pub(super) fn servers(&self) -> BTreeSet<(SocketAddr, Protocol)> {
        let mut servers = BTreeSet::new();
        for (_, slice) in &self.slices {
            for port in &slice.ports {
                let number = port.port.unwrap_or(0);
                let endpoints = slice.endpoints.iter().filter(|_| number > 0);
                servers.extend(
                    endpoints.map(|each| (SocketAddr::new(each.ip, number), port.protocol)),
                );
            }
        }
        servers
    }

    /// The slices of a service in a family.
    pub(super) fn slices_of(
        &self,
        service: &ObjectKey,
        family: Family,
    ) -> impl Iterator<Item = &(ObjectKey, Slice)> {
        self.slices.iter().filter(move |(key, slice)| {
            key.namespace == service.namespace
                && slice.service.as_ref() == Some(&service.name)
                && slice.family == Some(family)
        })
    }
}

/// A node address with the prefix of the uplink's network.
fn on_link(ip: IpAddr) -> IpNet {
    let length = match ip {
        IpAddr::V4(_) => 24,
        IpAddr::V6(_) => 64,
    };
    IpNet::new_assert(ip, length)
}
