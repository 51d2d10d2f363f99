//! Who exists in a sandbox, and with which addresses.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

use super::SandboxError;
use super::links::exists;

/// The addresses and links of a sandbox. The default is the cluster of `examples/`.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldSpec {
    /// The node's addresses on its uplink `eth0`, with their on-link prefix. The first of each
    /// family is everybody else's gateway. A family without one is absent from the sandbox.
    pub node: Vec<IpNet>,
    /// Addresses of other nodes.
    pub other_nodes: Vec<IpAddr>,
    /// Addresses of the client beyond the uplink.
    pub outside: Vec<IpAddr>,
    /// Pods of the node, each with its addresses (one per family) and a namespace of its own.
    pub local_pods: Vec<Vec<IpAddr>>,
    /// Pods of other nodes: every address of these prefixes exists.
    pub remote_pods: Vec<IpNet>,
    /// How the node's own pods are attached to it.
    pub pod_link: PodLink,
}

/// How the node's pods are attached. Pods are routed in both cases, never switched to each other,
/// so that answers from pod to pod pass the node and its connection tracking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodLink {
    /// One interface per pod, named by this prefix and a number. At most ten characters.
    Interfaces(String),
    /// All pods on a bridge of this name.
    Bridge(String),
}

impl Default for WorldSpec {
    fn default() -> Self {
        let net = |text: &str| text.parse::<IpNet>().expect("a literal prefix");
        let ip = |text: &str| text.parse::<IpAddr>().expect("a literal address");
        WorldSpec {
            node: vec![net("192.0.2.11/24"), net("2001:db8:1::11/64")],
            other_nodes: vec![ip("192.0.2.12"), ip("2001:db8:1::12")],
            outside: vec![ip("192.0.2.200"), ip("2001:db8:1::200")],
            local_pods: (1..=4)
                .map(|n| {
                    vec![
                        ip(&format!("198.51.100.{n}")),
                        ip(&format!("fd00:10:1::{n}")),
                    ]
                })
                .collect(),
            remote_pods: vec![net("198.51.100.128/25"), net("fd00:10:2::/64")],
            pod_link: PodLink::Interfaces("pod".into()),
        }
    }
}

impl WorldSpec {
    /// Adds pods of the node, one per address, where no pod has that address yet.
    pub fn add_local_pods(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        for address in addresses {
            if !self
                .local_pods
                .iter()
                .flatten()
                .any(|known| *known == address)
            {
                self.local_pods.push(vec![address]);
            }
        }
    }

    /// Adds pods of other nodes where the ranges do not hold them yet.
    pub fn add_remote_pods(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        for address in addresses {
            if !self
                .remote_pods
                .iter()
                .any(|range| range.contains(&address))
            {
                self.remote_pods.push(IpNet::from(address));
            }
        }
    }

    /// The gateway of everybody but the node: its first address of each family.
    pub(super) fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        let first = |v4: bool| {
            let mut own = self.node.iter().map(IpNet::addr);
            own.find(|address| address.is_ipv4() == v4)
        };
        [first(true), first(false)].into_iter().flatten()
    }

    /// The node has an IPv6 address.
    pub(super) fn has_v6(&self) -> bool {
        self.node.iter().any(|address| address.addr().is_ipv6())
    }

    /// Takes away what is of a family that the kernel or the node does not have.
    pub(super) fn with_usable_families(mut self) -> Result<WorldSpec, SandboxError> {
        if !exists("ipv6") {
            self.node.retain(|address| address.addr().is_ipv4());
        }
        let usable: Vec<bool> = self.gateways().map(|gateway| gateway.is_ipv4()).collect();
        if usable.is_empty() {
            return Err(SandboxError::Specification("an address of the node"));
        }
        let keep = |address: &IpAddr| usable.contains(&address.is_ipv4());
        self.other_nodes.retain(keep);
        self.outside.retain(keep);
        self.remote_pods.retain(|range| keep(&range.addr()));
        for pod in &mut self.local_pods {
            pod.retain(keep);
        }
        self.local_pods.retain(|pod| !pod.is_empty());
        Ok(self)
    }
}

impl PodLink {
    /// The name of the node's end of the link to pod `number`.
    pub(super) fn port(&self, number: usize) -> String {
        match self {
            PodLink::Interfaces(prefix) => format!("{prefix}{number}"),
            PodLink::Bridge(_) => format!("veth{number}"),
        }
    }
}

/// A place to act from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A process on the node itself.
    Node,
    /// The client beyond the uplink.
    Outside,
    /// A process on another node.
    OtherNode,
    /// The pod with this address, of this node or another.
    Pod(IpAddr),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Node => f.write_str("node"),
            Place::Outside => f.write_str("outside"),
            Place::OtherNode => f.write_str("other node"),
            Place::Pod(ip) => write!(f, "pod {ip}"),
        }
    }
}
