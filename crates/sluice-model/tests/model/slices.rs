//! How slices and Endpoints objects become the endpoints of a port.

use sluice_model::fact::{Fact, Problem, Protocol, SlicePort};
use sluice_model::testing::{
    ServiceBuilder, SliceBuilder, endpoint, key, no_slice, service, slice,
};

use crate::{apply, changed, cluster, notices, route, sockets};

fn web() -> ServiceBuilder {
    service("web").cluster_ip("172.30.0.1").tcp("http", 80)
}

fn part(name: &str) -> SliceBuilder {
    slice(name, "web").tcp("http", 8080)
}

fn pool(facts: impl IntoIterator<Item = Fact>) -> Vec<String> {
    let (cluster, _) = cluster([web().fact()].into_iter().chain(facts));
    sockets(&route(&cluster, "default/web:http").cluster)
}

#[test]
fn slices_of_a_service_are_merged_and_sorted() {
    let one = part("web-1").ready("10.1.2.9", "a").ready("10.1.2.10", "a");
    let two = part("web-2").ready("10.1.2.1", "b");
    assert_eq!(
        pool([one.fact(), two.fact()]),
        ["10.1.2.1:8080", "10.1.2.9:8080", "10.1.2.10:8080"]
    );
}

#[test]
fn slices_may_give_a_port_different_numbers() {
    let one = part("web-1").ready("10.1.2.1", "a");
    let two = slice("web-2", "web")
        .tcp("http", 9090)
        .ready("10.1.2.1", "a");
    assert_eq!(
        pool([one.fact(), two.fact()]),
        ["10.1.2.1:8080", "10.1.2.1:9090"]
    );
}

#[test]
fn name_and_protocol_of_a_port_must_both_match() {
    let odd = slice("web-1", "web")
        .tcp("https", 8443)
        .port(Protocol::Udp, "http", 8080)
        .ready("10.1.2.1", "a");
    assert_eq!(pool([odd.fact()]), [""; 0]);
}

#[test]
fn ports_without_name_or_number_have_no_endpoints_and_zero_is_reported() {
    let mut odd = slice("web-1", "web").ready("10.1.2.1", "a");
    let port = |name: Option<&str>, port| SlicePort {
        name: name.map(Into::into),
        protocol: Protocol::Tcp,
        port,
    };
    odd.slice.ports = vec![
        port(None, Some(8080)),
        port(Some("http"), None),
        port(Some("http"), Some(0)),
    ];
    let (cluster, changes) = cluster([web().fact(), odd.fact()]);
    assert_eq!(
        sockets(&route(&cluster, "default/web:http").cluster),
        [""; 0]
    );
    assert_eq!(
        notices(&changes),
        [
            "EndpointSlice default/web-1: ports[2]: port 0 cannot be connected to; it has no \
             endpoints until it gets a number"
        ]
    );
}

#[test]
fn endpoints_of_the_wrong_family_are_left_out_and_reported() {
    let odd = part("web-1").ready("10.1.2.1", "a").ready("fd01::1", "a");
    let (cluster, changes) = cluster([web().fact(), odd.fact()]);
    assert_eq!(
        sockets(&route(&cluster, "default/web:http").cluster),
        ["10.1.2.1:8080"]
    );
    assert_eq!(
        notices(&changes),
        [
            "EndpointSlice default/web-1: endpoints[1]: fd01::1 is no address of a single IPv4 \
             endpoint; it is left out"
        ]
    );
}

#[test]
fn headless_unlabelled_and_fqdn_slices_are_ignored_without_remark() {
    let mut headless = part("web-1").ready("10.1.2.1", "a");
    headless.slice.headless = true;
    let mut unlabelled = part("web-2").ready("10.1.2.2", "a");
    unlabelled.slice.service = None;
    let mut fqdn = part("web-3").ready("10.1.2.3", "a");
    fqdn.slice.family = None;
    fqdn.slice
        .problems
        .push(Problem::new("addressType", "FQDN", "not served"));
    let (cluster, changes) = cluster([
        web().fact(),
        headless.fact(),
        unlabelled.fact(),
        fqdn.fact(),
    ]);
    assert_eq!(
        sockets(&route(&cluster, "default/web:http").cluster),
        [""; 0]
    );
    assert_eq!(notices(&changes), [""; 0]);
}

#[test]
fn a_slice_of_another_namespace_does_not_count() {
    let other = slice("other/web-1", "web")
        .tcp("http", 8080)
        .ready("10.1.2.1", "a");
    assert_eq!(pool([other.fact()]), [""; 0]);
}

#[test]
fn a_live_pod_wins_over_a_terminating_one_with_its_address_in_either_order() {
    let live = endpoint("10.1.2.1").on("here");
    let leaving = endpoint("10.1.2.1").on("there").terminating();
    for (first, second) in [(&live, &leaving), (&leaving, &live)] {
        let one = part("web-1").with(first.clone());
        let two = part("web-2").with(second.clone());
        for facts in [
            [one.clone().fact(), two.clone().fact()],
            [two.fact(), one.fact()],
        ] {
            let (cluster, _) = cluster([web().internal_local().fact()].into_iter().chain(facts));
            let local = &route(&cluster, "default/web:http").local;
            assert_eq!(sockets(local), ["10.1.2.1:8080"]);
        }
    }
}

#[test]
fn a_live_pod_wins_even_while_it_is_not_ready_and_the_terminating_one_is() {
    let mut published = endpoint("10.1.2.1").terminating();
    published.0.conditions.ready = true;
    let live = endpoint("10.1.2.1").unready();
    let facts = [
        part("web-1").with(published).fact(),
        part("web-2").with(live).fact(),
    ];
    assert_eq!(pool(facts), [""; 0]);
}

#[test]
fn an_unready_duplicate_does_not_hide_a_ready_one() {
    let unready = part("web-1").with(endpoint("10.1.2.1").unready());
    let ready = part("web-2").with(endpoint("10.1.2.1"));
    assert_eq!(pool([unready.fact(), ready.fact()]), ["10.1.2.1:8080"]);
}

#[test]
fn a_slice_that_changes_its_label_moves() {
    let api = service("api").cluster_ip("172.30.0.2").tcp("http", 80);
    let (mut cluster, _) = cluster([
        web().fact(),
        api.fact(),
        part("x").ready("10.1.2.1", "a").fact(),
    ]);
    let moved = slice("x", "api").tcp("http", 8080).ready("10.1.2.1", "a");
    let changes = apply(&mut cluster, [moved.fact()]);
    assert_eq!(
        changed(&changes),
        ["~default/api:http IPv4", "~default/web:http IPv4"]
    );
    assert_eq!(
        sockets(&route(&cluster, "default/api:http").cluster),
        ["10.1.2.1:8080"]
    );
    assert_eq!(
        sockets(&route(&cluster, "default/web:http").cluster),
        [""; 0]
    );
    let mut unlabelled = slice("x", "api").tcp("http", 8080).ready("10.1.2.1", "a");
    unlabelled.slice.service = None;
    let changes = apply(&mut cluster, [unlabelled.fact()]);
    assert_eq!(changed(&changes), ["~default/api:http IPv4"]);
}

#[test]
fn an_endpoints_object_counts_while_there_is_no_slice() {
    let object = part("ignored").ready("10.1.2.1", "a").slice;
    let object = Fact::Endpoints(key("web"), Some(vec![object]));
    assert_eq!(pool([object.clone()]), ["10.1.2.1:8080"]);
    let empty = part("web-1");
    assert_eq!(pool([object.clone(), empty.clone().fact()]), [""; 0]);
    let (mut cluster, _) = cluster([web().fact(), empty.fact(), object]);
    apply(&mut cluster, [no_slice("web-1")]);
    assert_eq!(
        sockets(&route(&cluster, "default/web:http").cluster),
        ["10.1.2.1:8080"]
    );
    apply(&mut cluster, [Fact::Endpoints(key("web"), None)]);
    assert_eq!(
        sockets(&route(&cluster, "default/web:http").cluster),
        [""; 0]
    );
}

#[test]
fn endpoints_that_nothing_uses_do_not_change_a_route() {
    let spare = || part("web-1").ready("10.1.2.1", "a");
    let (mut cluster, _) = cluster([web().fact(), spare().fact()]);
    let changes = apply(
        &mut cluster,
        [spare().with(endpoint("10.1.2.2").unready()).fact()],
    );
    assert_eq!(changed(&changes), [""; 0]);
}

#[test]
fn trigger_times_are_handed_out_once_and_go_with_their_slice() {
    let at = |time, endpoint: &str| {
        let mut slice = part("web-1").ready(endpoint, "a");
        slice.slice.triggered = Some(time);
        slice.fact()
    };
    let (mut cluster, changes) = cluster([web().fact(), at(5, "10.1.2.1")]);
    assert_eq!(changes.triggers, [5]);
    // A slice that says nothing new needs no programming, so nothing can be late.
    assert_eq!(apply(&mut cluster, [at(6, "10.1.2.1")]).triggers, [0i64; 0]);
    let twice = [at(7, "10.1.2.2"), at(8, "10.1.2.3")];
    assert_eq!(apply(&mut cluster, twice).triggers, [7, 8]);
    let gone = [at(9, "10.1.2.4"), no_slice("web-1")];
    assert_eq!(apply(&mut cluster, gone).triggers, [0i64; 0]);
}

#[test]
fn problems_of_a_slice_are_told_once_until_they_change() {
    let with = |field: &str| {
        let mut slice = part("web-1").ready("10.1.2.1", "a");
        slice
            .slice
            .problems
            .push(Problem::new(field, "x", "no address"));
        slice.fact()
    };
    let (mut cluster, changes) = cluster([web().fact(), with("endpoints[1].addresses[0]")]);
    let told = "EndpointSlice default/web-1: endpoints[1].addresses[0]: \"x\": no address";
    assert_eq!(notices(&changes), [told]);
    let again = apply(&mut cluster, [with("endpoints[1].addresses[0]")]);
    assert_eq!(notices(&again), [""; 0]);
    let other = apply(&mut cluster, [with("endpoints[2].addresses[0]")]);
    let told = "EndpointSlice default/web-1: endpoints[2].addresses[0]: \"x\": no address";
    assert_eq!(notices(&other), [told]);
}
