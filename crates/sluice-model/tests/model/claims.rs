//! Two services that want one address and port, or one node port.

use sluice_model::cluster::Cluster;
use sluice_model::fact::Fact;
use sluice_model::route::At;
use sluice_model::testing::{ServiceBuilder, listed, no_service, service};

use crate::{apply, changed, cluster, notices, settings, vip};

fn wants(name: &str, cluster_ip: &str) -> ServiceBuilder {
    service(name)
        .cluster_ip(cluster_ip)
        .tcp("http", 80)
        .external_ip("198.51.100.1")
}

fn old() -> ServiceBuilder {
    wants("old", "172.30.0.1").created(100)
}

fn new() -> ServiceBuilder {
    wants("new", "172.30.0.2").created(200)
}

fn holders(cluster: &Cluster, at: At) -> Vec<String> {
    let has =
        |r: &&std::sync::Arc<sluice_model::route::Route>| r.frontends.iter().any(|f| f.at == at);
    cluster
        .routes()
        .filter(has)
        .map(|r| r.key.to_string())
        .collect()
}

const LOST: &str = "Service default/new: 198.51.100.1:80/tcp belongs to Service default/old, \
    which comes first (the older one, or by name where ages are unknown or equal); this one is \
    served there when that one goes, use another address or port";

#[test]
fn the_older_service_has_the_address_whatever_the_order_of_arrival() {
    let orders: [[Fact; 2]; 2] = [[old().fact(), new().fact()], [new().fact(), old().fact()]];
    for order in orders {
        let (cluster, changes) = cluster(order);
        assert_eq!(
            holders(&cluster, vip("198.51.100.1", 80)),
            ["default/old:http"]
        );
        assert_eq!(notices(&changes), [LOST]);
    }
}

#[test]
fn an_older_service_that_arrives_later_takes_over_and_gives_back_when_it_goes() {
    let (mut cluster, changes) = cluster([new().fact()]);
    assert_eq!(notices(&changes), [""; 0]);
    let changes = apply(&mut cluster, [old().fact()]);
    assert_eq!(
        changed(&changes),
        ["~default/new:http IPv4", "+default/old:http IPv4"]
    );
    assert_eq!(notices(&changes), [LOST]);
    let changes = apply(&mut cluster, [no_service("old")]);
    assert_eq!(
        changed(&changes),
        ["~default/new:http IPv4", "-default/old:http IPv4"]
    );
    assert_eq!(
        holders(&cluster, vip("198.51.100.1", 80)),
        ["default/new:http"]
    );
    assert_eq!(notices(&changes), [""; 0]);
}

#[test]
fn a_service_that_stops_wanting_the_address_leaves_it_to_the_next() {
    let (mut cluster, _) = cluster([old().fact(), new().fact()]);
    let content = service("old")
        .cluster_ip("172.30.0.1")
        .tcp("http", 80)
        .created(100);
    let changes = apply(&mut cluster, [content.fact()]);
    assert_eq!(
        changed(&changes),
        ["~default/new:http IPv4", "~default/old:http IPv4"]
    );
    assert_eq!(
        holders(&cluster, vip("198.51.100.1", 80)),
        ["default/new:http"]
    );
}

#[test]
fn a_service_created_anew_under_the_same_name_is_the_younger_one() {
    let (mut cluster, _) = cluster([old().fact(), new().fact()]);
    apply(&mut cluster, [old().created(300).fact()]);
    assert_eq!(
        holders(&cluster, vip("198.51.100.1", 80)),
        ["default/new:http"]
    );
}

#[test]
fn equal_or_unknown_age_is_decided_by_name() {
    let a = || wants("a/web", "172.30.0.1");
    let b = || wants("b/web", "172.30.0.2");
    let (known_first, _) = cluster([a().fact(), b().created(5).fact()]);
    assert_eq!(
        holders(&known_first, vip("198.51.100.1", 80)),
        ["b/web:http"]
    );
    let (by_name, _) = cluster([b().fact(), a().fact()]);
    assert_eq!(holders(&by_name, vip("198.51.100.1", 80)), ["a/web:http"]);
}

#[test]
fn the_same_port_number_of_another_protocol_is_another_place() {
    let dns = service("dns")
        .cluster_ip("172.30.0.3")
        .udp("dns", 80)
        .external_ip("198.51.100.1");
    let (cluster, changes) = cluster([old().fact(), dns.fact()]);
    assert_eq!(
        holders(&cluster, vip("198.51.100.1", 80)).len(),
        2,
        "one TCP and one UDP route"
    );
    assert_eq!(notices(&changes), [""; 0]);
}

#[test]
fn node_ports_are_held_per_family_and_the_loser_keeps_its_other_frontends() {
    let first = service("old")
        .cluster_ip("172.30.0.1")
        .tcp("", 80)
        .node_port(30080)
        .created(1);
    let second = service("new")
        .cluster_ip("172.30.0.2")
        .cluster_ip("fd00::2")
        .tcp("", 80)
        .node_port(30080)
        .created(2);
    let (cluster, changes) = cluster([first.fact(), second.fact()]);
    let routes = cluster
        .routes()
        .filter(|r| r.frontends.iter().any(|f| f.at == At::NodePort(30080)));
    let mut with: Vec<_> = routes.map(|r| format!("{} {}", r.key, r.family)).collect();
    with.sort();
    assert_eq!(with, ["default/new IPv6", "default/old IPv4"]);
    assert_eq!(holders(&cluster, vip("172.30.0.2", 80)), ["default/new"]);
    assert_eq!(
        notices(&changes),
        [
            "Service default/new: node port 30080/tcp (IPv4) belongs to Service default/old, which \
             comes first (the older one, or by name where ages are unknown or equal); this one is \
             served there when that one goes, use another address or port"
        ]
    );
}

#[test]
fn two_ports_of_one_service_with_one_number_leave_it_to_the_first_by_name() {
    let double = service("web")
        .cluster_ip("172.30.0.1")
        .tcp("b", 80)
        .tcp("a", 80);
    let (cluster, changes) = cluster([double.fact()]);
    assert_eq!(holders(&cluster, vip("172.30.0.1", 80)), ["default/web:a"]);
    assert_eq!(
        notices(&changes),
        [
            "Service default/web: 172.30.0.1:80/tcp is wanted by two ports of this Service; only \
             the one whose name comes first is served there, give the other one another number"
        ]
    );
}

#[test]
fn a_loss_is_told_once_and_again_only_after_it_had_ended() {
    let mut cluster = Cluster::new(settings());
    for fact in listed([old().fact(), new().fact()]) {
        cluster.apply(fact);
    }
    assert_eq!(notices(&cluster.changes()), [LOST]);
    let renewed = new().affinity(60).fact();
    assert_eq!(notices(&apply(&mut cluster, [renewed])), [""; 0]);
    assert_eq!(notices(&apply(&mut cluster, [no_service("old")])), [""; 0]);
    assert_eq!(notices(&apply(&mut cluster, [old().fact()])), [LOST]);
}
