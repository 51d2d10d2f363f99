use std::net::IpAddr;

use ipnet::IpNet;

use super::*;
use crate::name::ObjectKey;
use crate::route::{Pool, PortKey};

const LOCAL: &str = "198.51.100.21";
const REMOTE: &str = "198.51.100.141";
const VIP: &str = "10.96.0.10";
const NODE: &str = "192.0.2.11";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn node() -> NodeView {
    NodeView {
        pods: Some(PodMatch::Source("198.51.100.0/24".parse().unwrap())),
        node_ports: NodePortMatch::Addresses(vec![ip(NODE)]),
        service_cidrs: nets(&["10.96.0.0/16"]),
    }
}

fn backend(address: &str) -> Backend {
    Backend {
        ip: ip(address),
        port: 8080,
        local: address == LOCAL,
    }
}

/// A route with a local and a remote endpoint behind one front end.
fn route(frontend: Frontend) -> Route {
    Route {
        key: PortKey {
            service: ObjectKey::new("default", "web"),
            port: "".into(),
            protocol: Protocol::Tcp,
        },
        family: Family::V4,
        cluster: Pool::new(vec![backend(LOCAL), backend(REMOTE)]),
        local: Pool::new(vec![backend(LOCAL)]),
        affinity: None,
        frontends: vec![frontend],
    }
}

fn cluster_ip() -> Frontend {
    Frontend {
        at: At::Vip(ip(VIP), 80),
        scope: Scope::Cluster,
        path: Path::Uniform(PoolChoice::Cluster, Masquerade::NotPods),
        allow: None,
        refusal: None,
    }
}

fn node_port(path: Path) -> Frontend {
    Frontend {
        at: At::NodePort(30080),
        scope: Scope::NodePort,
        path,
        ..cluster_ip()
    }
}

fn packet(source: &str, destination: &str, port: u16) -> Packet {
    let process = source == NODE || source == "127.0.0.1";
    let here = destination == NODE || destination.starts_with("127.");
    Packet {
        source: ip(source),
        origin: if process {
            Origin::Process
        } else {
            Origin::Interface("eth0".into())
        },
        destination: ip(destination),
        reach: if here { Reach::Here } else { Reach::Elsewhere },
        port,
        protocol: Protocol::Tcp,
    }
}

fn served(targets: &[(&str, Peer)]) -> Decision {
    let target = |&(address, peer)| Target {
        ip: ip(address),
        port: 8080,
        peer,
    };
    Decision::Served {
        targets: targets.iter().map(target).collect(),
        affinity: None,
    }
}

use Peer::{Kept, Masqueraded};

#[test]
fn cluster_ip_keeps_pods_and_hides_the_rest() {
    let route = route(cluster_ip());
    let all = |peer| served(&[(LOCAL, peer), (REMOTE, peer)]);
    for (source, decision) in [
        ("198.51.100.10", all(Kept)),
        ("192.0.2.200", all(Masqueraded)),
        (NODE, all(Masqueraded)),
    ] {
        assert_eq!(
            decide([&route], &node(), &packet(source, VIP, 80)),
            decision,
            "{source}"
        );
    }
}

#[test]
fn without_a_detector_nobody_is_masqueraded_at_a_cluster_ip() {
    let view = NodeView {
        pods: None,
        ..node()
    };
    let decision = decide(
        [&route(cluster_ip())],
        &view,
        &packet("192.0.2.200", VIP, 80),
    );
    assert_eq!(decision, served(&[(LOCAL, Kept), (REMOTE, Kept)]));
}

#[test]
fn interface_detectors_look_at_where_a_packet_arrives() {
    let view = |pods| NodeView {
        pods: Some(pods),
        ..node()
    };
    let route = route(cluster_ip());
    let mut from_pod = packet("203.0.113.7", VIP, 80);
    from_pod.origin = Origin::Interface("pod7".into());
    let kept = served(&[(LOCAL, Kept), (REMOTE, Kept)]);
    let hidden = served(&[(LOCAL, Masqueraded), (REMOTE, Masqueraded)]);
    let exact = |name: &str| view(PodMatch::Interface(name.into()));
    let prefix = |name: &str| view(PodMatch::InterfacePrefix(name.into()));
    assert_eq!(decide([&route], &exact("pod7"), &from_pod), kept);
    assert_eq!(decide([&route], &exact("pod"), &from_pod), hidden);
    assert_eq!(decide([&route], &prefix("pod"), &from_pod), kept);
    assert_eq!(decide([&route], &prefix("cali"), &from_pod), hidden);
    let process = packet(NODE, VIP, 80);
    assert_eq!(decide([&route], &prefix(""), &process), hidden);
}

#[test]
fn hairpin_is_masqueraded_for_that_endpoint_alone() {
    let decision = decide([&route(cluster_ip())], &node(), &packet(LOCAL, VIP, 80));
    assert_eq!(decision, served(&[(LOCAL, Masqueraded), (REMOTE, Kept)]));
}

#[test]
fn split_path_serves_pods_processes_and_others_differently() {
    let route = route(node_port(Path::Split));
    for (source, decision) in [
        ("198.51.100.10", served(&[(LOCAL, Kept), (REMOTE, Kept)])),
        (NODE, served(&[(LOCAL, Masqueraded), (REMOTE, Masqueraded)])),
        ("192.0.2.200", served(&[(LOCAL, Kept)])),
    ] {
        assert_eq!(
            decide([&route], &node(), &packet(source, NODE, 30080)),
            decision,
            "{source}"
        );
    }
}

#[test]
fn split_path_without_a_local_endpoint_refuses_only_outsiders() {
    let mut route = route(node_port(Path::Split));
    route.local = Pool::default();
    route.frontends[0].refusal = Some(Refusal::Drop);
    let from = |source| decide([&route], &node(), &packet(source, NODE, 30080));
    assert_eq!(from("192.0.2.200"), Decision::Dropped);
    assert_eq!(
        from("198.51.100.10"),
        served(&[(LOCAL, Kept), (REMOTE, Kept)])
    );
}

#[test]
fn an_empty_pool_is_answered_as_the_front_end_says() {
    let mut route = route(cluster_ip());
    route.cluster = Pool::default();
    for (refusal, decision) in [
        (Some(Refusal::Reject), Decision::Refused),
        (Some(Refusal::Drop), Decision::Dropped),
        (None, Decision::Untouched),
    ] {
        route.frontends[0].refusal = refusal;
        let packet = packet("198.51.100.10", VIP, 80);
        assert_eq!(decide([&route], &node(), &packet), decision, "{refusal:?}");
    }
}

#[test]
fn sources_outside_the_allowed_ranges_are_dropped_before_anything_else() {
    let mut route = route(Frontend {
        allow: Some(nets(&["192.0.2.192/28"])),
        refusal: Some(Refusal::Reject),
        ..cluster_ip()
    });
    let from = |route: &Route, source| decide([route], &node(), &packet(source, VIP, 80));
    let both = served(&[(LOCAL, Masqueraded), (REMOTE, Masqueraded)]);
    assert_eq!(from(&route, "192.0.2.200"), both);
    assert_eq!(from(&route, "198.51.100.10"), Decision::Dropped);
    route.cluster = Pool::default();
    assert_eq!(from(&route, "192.0.2.200"), Decision::Refused);
    assert_eq!(from(&route, "198.51.100.10"), Decision::Dropped);
    route.frontends[0].allow = Some(Vec::new());
    assert_eq!(from(&route, "192.0.2.200"), Decision::Dropped);
}

#[test]
fn node_ports_are_served_on_node_port_addresses_and_never_on_loopback() {
    let path = Path::Uniform(PoolChoice::Cluster, Masquerade::Always);
    let route = route(node_port(path));
    let both = served(&[(LOCAL, Masqueraded), (REMOTE, Masqueraded)]);
    let any_local = NodeView {
        node_ports: NodePortMatch::AnyLocal,
        ..node()
    };
    let to = |view: &NodeView, source, destination| {
        decide([&route], view, &packet(source, destination, 30080))
    };
    for view in [&node(), &any_local] {
        assert_eq!(to(view, "192.0.2.200", NODE), both);
        assert_eq!(to(view, "192.0.2.200", "192.0.2.12"), Decision::Untouched);
        assert_eq!(to(view, "127.0.0.1", "127.0.0.1"), Decision::Untouched);
    }
    let mut other_address = packet("192.0.2.200", "192.0.2.111", 30080);
    other_address.reach = Reach::Here;
    assert_eq!(decide([&route], &any_local, &other_address), both);
    assert_eq!(
        decide([&route], &node(), &other_address),
        Decision::Untouched
    );
    let none = NodeView {
        node_ports: NodePortMatch::Addresses(Vec::new()),
        ..node()
    };
    assert_eq!(to(&none, "192.0.2.200", NODE), Decision::Untouched);
}

#[test]
fn a_virtual_address_beats_a_node_port() {
    let path = Path::Uniform(PoolChoice::Cluster, Masquerade::Always);
    let by_port = route(node_port(path));
    let mut by_address = route(Frontend {
        at: At::Vip(ip(NODE), 30080),
        scope: Scope::ExternalIp,
        path,
        ..cluster_ip()
    });
    by_address.cluster = Pool::new(vec![backend(REMOTE)]);
    let packet = packet("192.0.2.200", NODE, 30080);
    let decision = decide([&by_port, &by_address], &node(), &packet);
    assert_eq!(decision, served(&[(REMOTE, Masqueraded)]));
}

#[test]
fn unused_ports_and_addresses_of_the_service_range() {
    let route = route(cluster_ip());
    let from_pod = |destination, port| packet("198.51.100.10", destination, port);
    let decide = |packet: &Packet| decide([&route], &node(), packet);
    assert_eq!(decide(&from_pod(VIP, 81)), Decision::Refused);
    assert_eq!(decide(&from_pod("10.96.0.99", 80)), Decision::Dropped);
    assert_eq!(decide(&from_pod("10.97.0.99", 80)), Decision::Untouched);
    let mut udp = from_pod(VIP, 80);
    udp.protocol = Protocol::Udp;
    assert_eq!(decide(&udp), Decision::Refused);
    let mut own = from_pod("10.96.0.99", 80);
    own.reach = Reach::Here;
    assert_eq!(decide(&own), Decision::Untouched);
}

#[test]
fn other_ports_of_other_addresses_are_not_the_clusters() {
    let route = route(Frontend {
        at: At::Vip(ip("203.0.113.10"), 80),
        scope: Scope::LoadBalancer,
        ..cluster_ip()
    });
    let packet = packet("198.51.100.10", "203.0.113.10", 81);
    assert_eq!(decide([&route], &node(), &packet), Decision::Untouched);
}

#[test]
fn routes_of_the_other_family_do_not_matter() {
    let mut six = route(node_port(Path::Split));
    six.family = Family::V6;
    let packet = packet("192.0.2.200", NODE, 30080);
    assert_eq!(decide([&six], &node(), &packet), Decision::Untouched);
}

#[test]
fn affinity_is_handed_on() {
    let mut route = route(cluster_ip());
    route.affinity = Some(10800);
    let decision = decide([&route], &node(), &packet("198.51.100.10", VIP, 80));
    let sticky = matches!(
        decision,
        Decision::Served {
            affinity: Some(10800),
            ..
        }
    );
    assert!(sticky, "{decision:?}");
}

#[test]
fn the_claim_names_route_and_front_end() {
    let route = route(cluster_ip());
    let claimed = claim([&route], &node(), &packet("198.51.100.10", VIP, 80));
    assert_eq!(claimed, Claim::Frontend(&route, &route.frontends[0]));
    let unused = claim([&route], &node(), &packet("198.51.100.10", VIP, 81));
    assert_eq!(unused, Claim::UnusedPort(&route));
}
