//! What the node contributes, and what follows when it changes.

use sluice_model::fact::{Fact, Family, Kind, Node};
use sluice_model::route::{Masquerade, NodePortMatch, Path, PodMatch, PoolChoice};
use sluice_model::settings::{DetectLocal, NodePortAddresses, Settings};
use sluice_model::testing::{endpoint, ip, net, node, service, slice};

use crate::{apply, changed, cluster_with, frontend, notices, route, sockets, vip};

fn within(nets: &[&str]) -> Settings {
    Settings {
        node_port_addresses: NodePortAddresses::Within(nets.iter().map(|n| net(n)).collect()),
        ..Settings::for_node("here")
    }
}

fn addresses(texts: &[&str]) -> NodePortMatch {
    NodePortMatch::Addresses(texts.iter().map(|text| ip(text)).collect())
}

#[test]
fn the_first_changes_carry_both_views_and_later_ones_only_what_differs() {
    let (mut cluster, changes) = cluster_with(Settings::for_node("here"), []);
    assert!(changes.node.iter().all(Option::is_some));
    assert!(!cluster.is_dirty());
    let changes = apply(&mut cluster, [node("here", &["192.0.2.11"], None)]);
    let v4 = changes.node[0].as_ref().expect("the IPv4 view changed");
    assert_eq!(v4.node_ports, addresses(&["192.0.2.11"]));
    assert_eq!(cluster.node_view(Family::V4), v4);
    assert_eq!(changes.node[1], None);
}

#[test]
fn primary_without_a_known_address_accepts_node_ports_nowhere() {
    let here = node("here", &["192.0.2.11", "192.0.2.12"], None);
    let (cluster, _) = cluster_with(Settings::for_node("here"), [here]);
    assert_eq!(
        cluster.node_view(Family::V4).node_ports,
        addresses(&["192.0.2.11"])
    );
    assert_eq!(cluster.node_view(Family::V6).node_ports, addresses(&[]));
}

#[test]
fn primary_never_means_loopback() {
    let here = node("here", &["127.0.0.1"], None);
    let (cluster, _) = cluster_with(Settings::for_node("here"), [here]);
    assert_eq!(cluster.node_view(Family::V4).node_ports, addresses(&[]));
}

#[test]
fn a_configured_address_replaces_the_nodes_own_of_its_family() {
    let settings = Settings {
        node_ip_override: Some(ip("192.0.2.99")),
        ..Settings::for_node("here")
    };
    let here = node("here", &["192.0.2.11", "2001:db8::11"], None);
    let (cluster, _) = cluster_with(settings, [here]);
    assert_eq!(
        cluster.node_view(Family::V4).node_ports,
        addresses(&["192.0.2.99"])
    );
    assert_eq!(
        cluster.node_view(Family::V6).node_ports,
        addresses(&["2001:db8::11"])
    );
}

#[test]
fn ranges_pick_local_addresses_as_they_come_and_go() {
    let (mut cluster, _) = cluster_with(within(&["192.0.2.0/24", "127.0.0.0/8"]), []);
    assert_eq!(cluster.node_view(Family::V4).node_ports, addresses(&[]));
    let local = |texts: &[&str]| Fact::LocalAddresses(texts.iter().map(|t| ip(t)).collect());
    let all = local(&[
        "192.0.2.12",
        "127.0.0.1",
        "10.0.0.1",
        "192.0.2.11",
        "192.0.2.12",
    ]);
    apply(&mut cluster, [all]);
    let view = &cluster.node_view(Family::V4).node_ports;
    assert_eq!(*view, addresses(&["192.0.2.11", "192.0.2.12"]));
    apply(&mut cluster, [local(&["192.0.2.12"])]);
    assert_eq!(
        cluster.node_view(Family::V4).node_ports,
        addresses(&["192.0.2.12"])
    );
}

#[test]
fn no_range_or_a_zero_length_one_or_none_of_the_family_accepts_on_every_local_address() {
    for nets in [&[][..], &["0.0.0.0/0", "192.0.2.0/24"], &["fd00::/8"]] {
        let (cluster, _) = cluster_with(within(nets), []);
        let view = cluster.node_view(Family::V4);
        assert_eq!(view.node_ports, NodePortMatch::AnyLocal, "{nets:?}");
    }
}

#[test]
fn pods_are_told_by_the_first_cluster_cidr_of_the_family() {
    let nets = ["10.1.0.0/16", "10.2.0.0/16", "fd01::/48"];
    let settings = Settings {
        detect_local: DetectLocal::ClusterCidr(nets.map(net).to_vec()),
        ..Settings::for_node("here")
    };
    let (cluster, _) = cluster_with(settings, []);
    let pods = |family| cluster.node_view(family).pods.clone();
    assert_eq!(pods(Family::V4), Some(PodMatch::Source(net("10.1.0.0/16"))));
    assert_eq!(pods(Family::V6), Some(PodMatch::Source(net("fd01::/48"))));
}

#[test]
fn interface_detectors_hold_in_both_families() {
    let modes = [
        (
            DetectLocal::BridgeInterface("cni0".into()),
            PodMatch::Interface("cni0".into()),
        ),
        (
            DetectLocal::InterfaceNamePrefix("veth".into()),
            PodMatch::InterfacePrefix("veth".into()),
        ),
    ];
    for (detect_local, expected) in modes {
        let settings = Settings {
            detect_local,
            ..Settings::for_node("here")
        };
        let (cluster, _) = cluster_with(settings, []);
        for family in Family::ALL {
            assert_eq!(cluster.node_view(family).pods.as_ref(), Some(&expected));
        }
    }
}

#[test]
fn a_pod_cidr_that_appears_starts_masquerading_and_one_that_changes_touches_no_route() {
    let settings = Settings {
        detect_local: DetectLocal::NodeCidr,
        ..Settings::for_node("here")
    };
    let web = service("web").cluster_ip("172.30.0.1").tcp("", 80);
    let (mut cluster, _) = cluster_with(settings, [web.fact()]);
    let masquerade = |cluster: &sluice_model::cluster::Cluster| {
        frontend(&route(cluster, "default/web"), vip("172.30.0.1", 80)).path
    };
    let path = |masquerade| Path::Uniform(PoolChoice::Cluster, masquerade);
    assert_eq!(masquerade(&cluster), path(Masquerade::Never));
    let with = |cidr| {
        let node = Node {
            pod_cidrs: vec![net(cidr)],
            ..Node::default()
        };
        Fact::Node("here".into(), Some(Box::new(node)))
    };
    let changes = apply(&mut cluster, [with("10.1.5.0/24")]);
    assert_eq!(changed(&changes), ["~default/web IPv4"]);
    assert_eq!(masquerade(&cluster), path(Masquerade::NotPods));
    let changes = apply(&mut cluster, [with("10.1.6.0/24")]);
    assert_eq!(changed(&changes), [""; 0]);
    let pods = &cluster.node_view(Family::V4).pods;
    assert_eq!(*pods, Some(PodMatch::Source(net("10.1.6.0/24"))));
}

#[test]
fn a_zone_change_touches_only_services_with_hints() {
    let hinted = slice("hinted-1", "hinted")
        .tcp("", 8080)
        .with(endpoint("10.1.2.1").for_zone("a"))
        .with(endpoint("10.1.2.2").for_zone("b"));
    let plain = slice("plain-1", "plain")
        .tcp("", 8080)
        .ready("10.1.2.3", "there");
    let zoned = |zone| node("here", &["192.0.2.11"], Some(zone));
    let (mut cluster, _) = cluster_with(
        Settings::for_node("here"),
        [
            service("hinted")
                .cluster_ip("172.30.0.1")
                .tcp("", 80)
                .fact(),
            service("plain").cluster_ip("172.30.0.2").tcp("", 80).fact(),
            hinted.fact(),
            plain.fact(),
            zoned("a"),
        ],
    );
    assert_eq!(
        sockets(&route(&cluster, "default/hinted").cluster),
        ["10.1.2.1:8080"]
    );
    let changes = apply(&mut cluster, [zoned("b")]);
    assert_eq!(changed(&changes), ["~default/hinted IPv4"]);
    assert_eq!(
        sockets(&route(&cluster, "default/hinted").cluster),
        ["10.1.2.2:8080"]
    );
}

#[test]
fn another_nodes_facts_are_no_matter() {
    let (mut cluster, _) = cluster_with(Settings::for_node("here"), []);
    let other = node("there", &["192.0.2.12"], Some("a"));
    let changes = apply(&mut cluster, [other]);
    assert_eq!(changes, sluice_model::route::Changes::default());
}

#[test]
fn a_deleted_node_object_stays_in_force_and_is_reported() {
    let here = node("here", &["192.0.2.11"], None);
    let (mut cluster, _) = cluster_with(Settings::for_node("here"), [here]);
    let changes = apply(
        &mut cluster,
        [Fact::Begin(Kind::Nodes), Fact::Synced(Kind::Nodes)],
    );
    assert_eq!(changes.node, [None, None]);
    assert_eq!(
        cluster.node_view(Family::V4).node_ports,
        addresses(&["192.0.2.11"])
    );
    assert_eq!(
        notices(&changes),
        [
            "Node here: this node's Node object was deleted; its last addresses, pod ranges and \
             zone stay in force until it is registered again"
        ]
    );
}

#[test]
fn service_cidrs_of_all_objects_are_merged_per_family() {
    let cidrs = |name: &str, nets: &[&str]| {
        Fact::Cidrs(name.into(), Some(nets.iter().map(|n| net(n)).collect()))
    };
    let (mut cluster, _) = cluster_with(
        Settings::for_node("here"),
        [
            cidrs("a", &["172.30.0.0/17", "fd00::/112"]),
            cidrs("b", &["172.30.128.0/17"]),
        ],
    );
    let v4 = &cluster.node_view(Family::V4).service_cidrs;
    assert_eq!(*v4, [net("172.30.0.0/16")]);
    assert_eq!(
        cluster.node_view(Family::V6).service_cidrs,
        [net("fd00::/112")]
    );
    apply(&mut cluster, [Fact::Cidrs("b".into(), None)]);
    let v4 = &cluster.node_view(Family::V4).service_cidrs;
    assert_eq!(*v4, [net("172.30.0.0/17")]);
}
