//! What must happen to a packet, answered from routes alone.
//!
//! This is the second opinion that every dataplane is tested against, and what the operator's
//! `explain` prints. It is written from the documentation of Kubernetes and of
//! [`Frontend`](crate::route::Frontend), a packet at a time, and shares no code with a compiler:
//! a mistake in one of them shows as a difference.

use std::net::IpAddr;

use crate::fact::{Family, Protocol};
use crate::name::Name;
use crate::route::{
    At, Backend, Frontend, Masquerade, NodePortMatch, NodeView, Path, PodMatch, PoolChoice,
    Refusal, Route, Scope,
};

/// The first packet of a connection, with what its observer knows about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    /// Source address before any translation.
    pub source: IpAddr,
    /// How it enters the node's network stack.
    pub origin: Origin,
    /// Destination address before any translation.
    pub destination: IpAddr,
    /// Whether the destination is an address of this node, loopback included.
    pub reach: Reach,
    /// Destination port.
    pub port: u16,
    /// Transport protocol.
    pub protocol: Protocol,
}

/// How a packet enters the node's network stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Sent by a process in the node's own network namespace.
    Process,
    /// Arrived on this interface, from a pod or from elsewhere.
    Interface(Name),
}

/// Where a packet would go if no service claimed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To this node: the destination is one of its addresses.
    Here,
    /// On to another machine or pod, forwarded or sent.
    Elsewhere,
}

/// What must happen to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No service claims it: it goes where the host's routing sends it, unchanged.
    Untouched,
    /// Answered with an ICMP port unreachable.
    Refused,
    /// Silently discarded.
    Dropped,
    /// Sent to one of these endpoints, each as likely as the others.
    Served {
        /// The endpoints, sorted by address and port; never empty.
        targets: Vec<Target>,
        /// Seconds for which one client stays with its endpoint.
        affinity: Option<u32>,
    },
}

/// An endpoint a connection may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its address.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
    /// What it sees as the peer's address.
    pub peer: Peer,
}

/// What an endpoint sees as the address of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// The packet's own source.
    Kept,
    /// An address of this node.
    Masqueraded,
}

/// Who claims a packet: the reason behind a [`Decision`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Claim<'a> {
    /// This front end of this route.
    Frontend(&'a Route, &'a Frontend),
    /// The destination is the cluster IP of this route, the port is none of the service's.
    UnusedPort(&'a Route),
    /// The destination lies in the service ranges and belongs to no service.
    UnusedClusterIp,
    /// Nobody.
    Nobody,
}

/// Decides what must happen to `packet` at a node with these routes. `node` is the view of the
/// packet's family; routes of the other family do not matter.
pub fn decide<'a>(
    routes: impl IntoIterator<Item = &'a Route>,
    node: &NodeView,
    packet: &Packet,
) -> Decision {
    match claim(routes, node, packet) {
        Claim::Frontend(route, frontend) => serve(route, frontend, node, packet),
        Claim::UnusedPort(_) => Decision::Refused,
        Claim::UnusedClusterIp => Decision::Dropped,
        Claim::Nobody => Decision::Untouched,
    }
}

/// Finds who claims `packet`. A virtual address beats a node port: an external IP may be one of
/// the node's own addresses, and its owner asked for exactly that address.
pub fn claim<'a>(
    routes: impl IntoIterator<Item = &'a Route>,
    node: &NodeView,
    packet: &Packet,
) -> Claim<'a> {
    let family = Family::of(packet.destination);
    let node_port = accepts_node_ports(node, packet);
    let vip = At::Vip(packet.destination, packet.port);
    let (mut by_node_port, mut cluster_ip) = (None, None);
    for route in routes {
        if route.family != family {
            continue;
        }
        for frontend in &route.frontends {
            let own_protocol = route.key.protocol == packet.protocol;
            if own_protocol && frontend.at == vip {
                return Claim::Frontend(route, frontend);
            }
            if own_protocol && node_port && frontend.at == At::NodePort(packet.port) {
                by_node_port = by_node_port.or(Some((route, frontend)));
            }
            if frontend.scope == Scope::Cluster && address(frontend) == Some(packet.destination) {
                cluster_ip = cluster_ip.or(Some(route));
            }
        }
    }
    if let Some((route, frontend)) = by_node_port {
        return Claim::Frontend(route, frontend);
    }
    unused(cluster_ip, node, packet)
}

/// The claim on a packet to no front end. Only what leaves the node or passes through it is
/// answered: an address that somebody put on one of the node's interfaces is the node's.
fn unused<'a>(cluster_ip: Option<&'a Route>, node: &NodeView, packet: &Packet) -> Claim<'a> {
    let to_service_range = node
        .service_cidrs
        .iter()
        .any(|net| net.contains(&packet.destination));
    match (packet.reach, cluster_ip) {
        (Reach::Here, _) => Claim::Nobody,
        (Reach::Elsewhere, Some(route)) => Claim::UnusedPort(route),
        (Reach::Elsewhere, None) if to_service_range => Claim::UnusedClusterIp,
        (Reach::Elsewhere, None) => Claim::Nobody,
    }
}

fn address(frontend: &Frontend) -> Option<IpAddr> {
    match frontend.at {
        At::Vip(ip, _) => Some(ip),
        At::NodePort(_) => None,
    }
}

/// Whether node ports are served at the packet's destination. Loopback never is: an answer from
/// an endpoint could not find its way back to 127.0.0.1 of this node.
fn accepts_node_ports(node: &NodeView, packet: &Packet) -> bool {
    !packet.destination.is_loopback()
        && match &node.node_ports {
            NodePortMatch::AnyLocal => packet.reach == Reach::Here,
            NodePortMatch::Addresses(list) => list.contains(&packet.destination),
        }
}

fn serve(route: &Route, frontend: &Frontend, node: &NodeView, packet: &Packet) -> Decision {
    if let Some(allow) = &frontend.allow
        && !allow.iter().any(|net| net.contains(&packet.source))
    {
        return Decision::Dropped;
    }
    let (choice, peer) = path(frontend.path, node, packet);
    let pool = route.pool(choice);
    if pool.is_empty() {
        return match frontend.refusal {
            Some(Refusal::Reject) => Decision::Refused,
            Some(Refusal::Drop) => Decision::Dropped,
            // The model promises a refusal wherever a pool can be empty. Without one no dataplane
            // would have a rule, and that is what the oracle must say.
            None => Decision::Untouched,
        };
    }
    Decision::Served {
        targets: pool.iter().map(|b| target(*b, peer, packet)).collect(),
        affinity: route.affinity,
    }
}

/// The pool that serves `packet`, and what its endpoints see, hairpins aside.
fn path(path: Path, node: &NodeView, packet: &Packet) -> (PoolChoice, Peer) {
    let pod = is_pod(node, packet);
    match path {
        Path::Uniform(choice, masquerade) => {
            let hide = match masquerade {
                Masquerade::Never => false,
                Masquerade::Always => true,
                // Where nothing tells pods from others, nobody is known to be no pod.
                Masquerade::NotPods => pod == Some(false),
            };
            (choice, if hide { Peer::Masqueraded } else { Peer::Kept })
        }
        Path::Split if pod == Some(true) => (PoolChoice::Cluster, Peer::Kept),
        Path::Split => match packet.origin {
            Origin::Process => (PoolChoice::Cluster, Peer::Masqueraded),
            Origin::Interface(_) => (PoolChoice::Local, Peer::Kept),
        },
    }
}

/// Whether the packet comes from a pod, by the node's detector; `None` where there is none.
fn is_pod(node: &NodeView, packet: &Packet) -> Option<bool> {
    let interface = match &packet.origin {
        Origin::Process => None,
        Origin::Interface(name) => Some(name),
    };
    Some(match node.pods.as_ref()? {
        PodMatch::Source(net) => net.contains(&packet.source),
        PodMatch::Interface(name) => interface == Some(name),
        PodMatch::InterfacePrefix(prefix) => {
            interface.is_some_and(|name| name.starts_with(&**prefix))
        }
    })
}

/// A pod that reaches itself through a service must see the node as its peer: it would answer
/// its own address directly, past the translation that has to be undone.
fn target(backend: Backend, peer: Peer, packet: &Packet) -> Target {
    let hairpin = backend.ip == packet.source;
    Target {
        ip: backend.ip,
        port: backend.port,
        peer: if hairpin { Peer::Masqueraded } else { peer },
    }
}

#[cfg(test)]
mod tests;
