//! What all rules of one family have in common: the node and the options of this mode.

use ipnet::IpNet;
use sluice_model::fact::Family;
use sluice_model::route::{NodePortMatch, NodeView, PodMatch};

use super::rule::{Match, PortChoice, Sense};

/// Options of this mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The packet mark that asks for masquerade; one bit.
    pub mark: u32,
    /// Whether 127.0.0.1 accepts node ports. IPv4 only, and the kernel must have `route_localnet`
    /// set; IPv6 has nothing like it.
    pub localhost: LocalhostNodePorts,
    /// How masquerade chooses source ports.
    pub source_ports: PortChoice,
    /// What happens to packets that fit no connection.
    pub invalid: InvalidPackets,
    /// The nfacct counter [`COUNT_INVALID`] exists. A rule that names a missing one fails.
    pub count_invalid: Counter,
    /// The nfacct counter [`COUNT_LOCALHOST`] exists.
    pub count_localhost: Counter,
}

/// Counts packets dropped as invalid.
pub const COUNT_INVALID: &str = "ct_state_invalid_dropped_pkts";
/// Counts connections to node ports by way of loopback.
pub const COUNT_LOCALHOST: &str = "localhost_nps_accepted_pkts";

impl Options {
    /// kube-proxy's defaults, without counters. `mark` asks for masquerade.
    pub fn with_mark(mark: u32) -> Options {
        Options {
            mark,
            localhost: LocalhostNodePorts::Open,
            source_ports: PortChoice::Random,
            invalid: InvalidPackets::Dropped,
            count_invalid: Counter::Absent,
            count_localhost: Counter::Absent,
        }
    }
}

/// iptables.localhostNodePorts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalhostNodePorts {
    /// Node ports answer on 127.0.0.0/8 where node ports are open on every local address.
    Open,
    /// They do not.
    Closed,
}

/// What happens to forwarded packets in conntrack's state INVALID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidPackets {
    /// They are dropped: passed on untranslated, they would reset connections.
    Dropped,
    /// Nothing; for kernels with `nf_conntrack_tcp_be_liberal` set.
    Passed,
}

/// Whether an nfacct counter can be named in rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// It exists.
    Present,
    /// It does not; rules do without.
    Absent,
}

/// The common ground of all rules of a family.
#[derive(Clone, Debug, PartialEq)]
pub struct Ground {
    /// Family.
    pub family: Family,
    /// The node's part.
    pub node: NodeView,
    /// The operator's part.
    pub options: Options,
    /// Whether rules of endpoints say whose they are.
    pub detail: Detail,
}

/// How much the rules of endpoints say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Each names its service port.
    Full,
    /// No comments: more than [`LARGE`] endpoints, where comments are most of the memory.
    Lean,
}

/// Endpoints above which their rules go without comments.
pub const LARGE: usize = 1_000;

impl Ground {
    /// A node of which nothing is known yet.
    pub fn new(family: Family, options: Options) -> Ground {
        let node_ports = NodePortMatch::Addresses(Vec::new());
        let node = NodeView {
            pods: None,
            node_ports,
            service_cidrs: Vec::new(),
        };
        Ground {
            family,
            node,
            options,
            detail: Detail::Full,
        }
    }

    /// The family's loopback addresses.
    pub(super) fn loopback(&self) -> IpNet {
        match self.family {
            Family::V4 => IpNet::new_assert([127, 0, 0, 0].into(), 8),
            Family::V6 => IpNet::new_assert(std::net::Ipv6Addr::LOCALHOST.into(), 128),
        }
    }

    /// Whether node ports answer on loopback.
    pub(super) fn localhost(&self) -> LocalhostNodePorts {
        match (self.family, &self.node.node_ports) {
            (Family::V4, NodePortMatch::AnyLocal) => self.options.localhost,
            (Family::V4, NodePortMatch::Addresses(_)) | (Family::V6, _) => {
                LocalhostNodePorts::Closed
            }
        }
    }

    /// The match for packets of this node's pods, or for all others; `None` where nothing tells.
    pub(super) fn pods(&self, sense: Sense) -> Option<Match> {
        self.node.pods.as_ref().map(|pods| match pods {
            PodMatch::Source(net) => Match::Source(sense, *net),
            PodMatch::Interface(name) => Match::Interface(sense, name.clone()),
            PodMatch::InterfacePrefix(name) => Match::InterfacePrefix(sense, name.clone()),
        })
    }

    /// The matches for node-port destinations, one rule each.
    pub(super) fn node_port_destinations(&self) -> Vec<Vec<Match>> {
        match &self.node.node_ports {
            NodePortMatch::AnyLocal => {
                let mut matches = vec![Match::DestinationIsLocal(Sense::Is)];
                if self.localhost() == LocalhostNodePorts::Closed {
                    matches.push(Match::Destination(Sense::IsNot, self.loopback()));
                }
                vec![matches]
            }
            NodePortMatch::Addresses(ips) => {
                ips.iter().map(|ip| vec![super::rule::to(*ip)]).collect()
            }
        }
    }
}
