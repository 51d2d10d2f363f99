//! First lists, later lists, and what is dirty.

use std::sync::Arc;

use sluice_model::cluster::Cluster;
use sluice_model::fact::{Fact, Kind};
use sluice_model::route::Changes;
use sluice_model::testing::{ServiceBuilder, key, no_service, no_slice, service, slice};

use crate::{apply, changed, cluster, route, settings, sockets};

fn web() -> ServiceBuilder {
    service("web").cluster_ip("172.30.0.1").tcp("", 80)
}

fn api() -> ServiceBuilder {
    service("api").cluster_ip("172.30.0.2").tcp("", 80)
}

#[test]
fn nothing_is_said_before_services_and_slices_are_both_listed() {
    let mut cluster = Cluster::new(settings());
    let steps = [
        Fact::Begin(Kind::Services),
        web().fact(),
        Fact::Synced(Kind::Services),
        Fact::Begin(Kind::Slices),
        slice("web-1", "web")
            .tcp("", 8080)
            .ready("10.1.2.1", "a")
            .fact(),
    ];
    for fact in steps {
        cluster.apply(fact);
        assert!(!cluster.is_synced());
        assert!(!cluster.is_dirty());
        assert_eq!(cluster.changes(), Changes::default());
    }
    cluster.apply(Fact::Synced(Kind::Slices));
    assert!(cluster.is_synced());
    assert!(cluster.is_dirty());
    assert_eq!(changed(&cluster.changes()), ["+default/web IPv4"]);
    assert!(!cluster.is_dirty());
    assert_eq!(cluster.changes(), Changes::default());
}

#[test]
fn a_list_removes_what_it_does_not_contain_when_it_ends_and_not_before() {
    let (mut cluster, _) = cluster([web().fact(), api().fact()]);
    let changes = apply(&mut cluster, [Fact::Begin(Kind::Services), api().fact()]);
    assert_eq!(changes, Changes::default());
    let changes = apply(&mut cluster, [Fact::Synced(Kind::Services)]);
    assert_eq!(changed(&changes), ["-default/web IPv4"]);
}

#[test]
fn a_list_that_breaks_off_and_starts_again_counts_from_its_second_start() {
    let (mut cluster, _) = cluster([web().fact(), api().fact()]);
    let facts = [
        Fact::Begin(Kind::Services),
        web().fact(),
        Fact::Begin(Kind::Services),
        api().fact(),
        Fact::Synced(Kind::Services),
    ];
    assert_eq!(changed(&apply(&mut cluster, facts)), ["-default/web IPv4"]);
}

#[test]
fn a_new_list_with_the_same_content_changes_nothing_and_keeps_the_routes() {
    let part = || slice("web-1", "web").tcp("", 8080).ready("10.1.2.1", "a");
    let (mut cluster, _) = cluster([web().fact(), part().fact()]);
    let before = route(&cluster, "default/web");
    let again = sluice_model::testing::listed([web().fact(), part().fact()]);
    assert_eq!(apply(&mut cluster, again), Changes::default());
    assert!(Arc::ptr_eq(&before, &route(&cluster, "default/web")));
}

#[test]
fn a_list_of_slices_takes_away_endpoints_that_are_gone() {
    let one = slice("web-1", "web").tcp("", 8080).ready("10.1.2.1", "a");
    let two = slice("web-2", "web").tcp("", 8080).ready("10.1.2.2", "a");
    let (mut cluster, _) = cluster([web().fact(), one.fact(), two.clone().fact()]);
    let again = [
        Fact::Begin(Kind::Slices),
        two.fact(),
        Fact::Synced(Kind::Slices),
    ];
    apply(&mut cluster, again);
    assert_eq!(
        sockets(&route(&cluster, "default/web").cluster),
        ["10.1.2.2:8080"]
    );
}

#[test]
fn a_list_of_endpoints_objects_takes_away_those_that_are_gone() {
    let object = slice("x", "web").tcp("", 8080).ready("10.1.2.1", "a").slice;
    let object = Fact::Endpoints(key("web"), Some(vec![object]));
    let (mut cluster, _) = cluster([web().fact(), object]);
    let list = [Fact::Begin(Kind::Endpoints), Fact::Synced(Kind::Endpoints)];
    assert_eq!(changed(&apply(&mut cluster, list)), ["~default/web IPv4"]);
}

#[test]
fn a_change_that_is_taken_back_in_between_is_none() {
    let (mut cluster, _) = cluster([web().fact()]);
    let changes = apply(
        &mut cluster,
        [no_service("web"), api().fact(), web().fact()],
    );
    assert_eq!(changed(&changes), ["+default/api IPv4"]);
}

#[test]
fn a_remark_that_no_longer_holds_is_not_told() {
    let (mut cluster, _) = cluster([]);
    let changes = apply(&mut cluster, [web().affinity(0).fact(), web().fact()]);
    assert_eq!(changes.notices, []);
}

#[test]
fn changes_name_the_route_before_and_after() {
    let (mut cluster, _) = cluster([web().fact()]);
    let before = route(&cluster, "default/web");
    let changes = apply(&mut cluster, [web().affinity(60).fact()]);
    let [change] = &changes.routes[..] else {
        panic!("one change expected");
    };
    assert_eq!(change.old.as_ref(), Some(&before));
    assert_eq!(change.new.as_ref().and_then(|r| r.affinity), Some(60));
}

#[test]
fn ports_that_come_and_go_are_reported_one_by_one() {
    let base = || service("web").cluster_ip("172.30.0.1");
    let (mut cluster, _) = cluster([base().tcp("a", 1).tcp("b", 2).tcp("c", 3).fact()]);
    let changes = apply(
        &mut cluster,
        [base().tcp("aa", 4).tcp("b", 2).tcp("c", 5).fact()],
    );
    assert_eq!(
        changed(&changes),
        [
            "-default/web:a IPv4",
            "+default/web:aa IPv4",
            "~default/web:c IPv4"
        ]
    );
}

#[test]
fn deletes_of_unknown_objects_are_no_matter() {
    let (mut cluster, _) = cluster([web().fact()]);
    let gone = [
        no_service("x"),
        no_slice("x"),
        Fact::Endpoints(key("x"), None),
    ];
    assert_eq!(apply(&mut cluster, gone), Changes::default());
}
