//! Who may use a load balancer's addresses.

use std::sync::Arc;

use sluice_model::cluster::Cluster;
use sluice_model::fact::{Family, Problem};
use sluice_model::route::{At, Changes, Scope};
use sluice_model::testing::{ServiceBuilder, net, node, service};

use crate::{apply, changed, cluster, find, frontend, notices, route, vip};

fn balanced() -> ServiceBuilder {
    service("web")
        .cluster_ip("172.30.0.1")
        .cluster_ip("fd00::1")
        .tcp("", 80)
        .load_balancer("203.0.113.1")
        .load_balancer("2001:db8::1")
}

/// What may reach the load balancer's addresses, IPv4 then IPv6, as text.
fn allowed(cluster: &Cluster) -> [Option<String>; 2] {
    [
        (Family::V4, vip("203.0.113.1", 80)),
        (Family::V6, vip("2001:db8::1", 80)),
    ]
    .map(|(family, at)| {
        let route = find(cluster, "default/web", family).expect("both families have routes");
        let allow = frontend(&route, at).allow.as_ref()?;
        Some(allow.iter().map(|net| format!("{net} ")).collect())
    })
}

fn ranges(texts: &[&str]) -> ([Option<String>; 2], Vec<String>) {
    let service = texts
        .iter()
        .fold(balanced(), |b, text| b.source_range(text));
    let (cluster, changes) = cluster([service.fact()]);
    (allowed(&cluster), notices(&changes))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

const CLOSED_V4: &str = "Service default/web: spec.loadBalancerSourceRanges: no valid IPv4 range \
    is left, so nobody may use its IPv4 load-balancer addresses; add one, 0.0.0.0/0 for everyone";
const CLOSED_V6: &str = "Service default/web: spec.loadBalancerSourceRanges: no valid IPv6 range \
    is left, so nobody may use its IPv6 load-balancer addresses; add one, ::/0 for everyone";

#[test]
fn no_range_given_lets_everyone_in() {
    assert_eq!(ranges(&[]), ([None, None], vec![]));
}

#[test]
fn ranges_of_both_families_are_merged_and_sorted() {
    let given = [
        "10.0.1.0/24",
        " 10.0.0.0/24 ",
        "10.0.0.7/32",
        "192.0.2.0/24",
        "fd02::/64",
    ];
    let v4 = some("10.0.0.0/23 192.0.2.0/24 ");
    assert_eq!(ranges(&given), ([v4, some("fd02::/64 ")], vec![]));
}

#[test]
fn ranges_of_one_family_close_the_other_one() {
    assert_eq!(
        ranges(&["10.0.0.0/8"]),
        ([some("10.0.0.0/8 "), some("")], vec![CLOSED_V6.to_owned()])
    );
}

#[test]
fn unparsable_ranges_close_both_families() {
    assert_eq!(
        ranges(&["10.0.0.0/33"]),
        (
            [some(""), some("")],
            vec![CLOSED_V4.to_owned(), CLOSED_V6.to_owned()]
        )
    );
}

#[test]
fn a_zero_length_range_opens_its_family_and_alone_opens_both() {
    assert_eq!(
        ranges(&["0.0.0.0/0", "10.0.0.0/8", "fd02::/64"]),
        ([None, some("fd02::/64 ")], vec![])
    );
    assert_eq!(ranges(&["0.0.0.0/0"]), ([None, None], vec![]));
    assert_eq!(ranges(&["::/0"]), ([None, None], vec![]));
}

#[test]
fn a_zero_length_range_beside_an_unparsable_one_opens_its_own_family_only() {
    let mut service = balanced().source_range("::/0").source_range("10.0.0.0/33");
    let problem = Problem::new(
        "spec.loadBalancerSourceRanges[1]",
        "10.0.0.0/33",
        "no prefix",
    );
    service.service.problems.push(problem);
    let (cluster, changes) = cluster([service.fact()]);
    assert_eq!(allowed(&cluster), [some(""), None]);
    assert_eq!(
        notices(&changes),
        [
            CLOSED_V4,
            "Service default/web: spec.loadBalancerSourceRanges[1]: \"10.0.0.0/33\": no prefix",
        ]
    );
}

#[test]
fn ranges_guard_load_balancer_addresses_only() {
    let service = balanced()
        .external_ip("198.51.100.1")
        .node_port(30080)
        .source_range("10.0.0.0/8");
    let (cluster, _) = cluster([service.fact()]);
    let route = route(&cluster, "default/web");
    for at in [
        vip("172.30.0.1", 80),
        vip("198.51.100.1", 80),
        At::NodePort(30080),
    ] {
        assert_eq!(frontend(&route, at).allow, None, "{at:?}");
    }
}

#[test]
fn ranges_without_load_balancer_address_are_no_matter() {
    let service = service("web").cluster_ip("172.30.0.1").tcp("", 80);
    let (_, changes) = cluster([service.source_range("nonsense").fact()]);
    assert_eq!(notices(&changes), [""; 0]);
}

#[test]
fn naming_the_load_balancer_address_again_does_not_get_around_the_ranges() {
    let service = balanced()
        .external_ip("203.0.113.1")
        .load_balancer("172.30.0.1")
        .source_range("10.0.0.0/8");
    let (cluster, _) = cluster([service.fact()]);
    let route = route(&cluster, "default/web");
    let guarded = Some(vec![net("10.0.0.0/8")]);
    let listeners: Vec<_> = route
        .frontends
        .iter()
        .map(|f| (f.at, f.scope, &f.allow))
        .collect();
    assert_eq!(
        listeners,
        [
            (vip("172.30.0.1", 80), Scope::LoadBalancer, &guarded),
            (vip("203.0.113.1", 80), Scope::LoadBalancer, &guarded),
        ]
    );
}

#[test]
fn a_range_with_this_node_lets_the_load_balancer_address_itself_in() {
    let service = balanced()
        .source_range("192.0.2.0/24")
        .source_range("fd02::/64");
    let (mut cluster, _) = cluster([service.fact()]);
    let here = |address| node("here", &[address], None);
    let changes: Changes = apply(&mut cluster, [here("192.0.2.11")]);
    assert_eq!(changed(&changes), ["~default/web IPv4"]);
    assert_eq!(
        allowed(&cluster),
        [some("192.0.2.0/24 203.0.113.1/32 "), some("fd02::/64 ")]
    );
    // A node that moves out of the range loses that again, without a restart.
    let changes = apply(&mut cluster, [here("192.0.3.11")]);
    assert_eq!(changed(&changes), ["~default/web IPv4"]);
    assert_eq!(
        allowed(&cluster),
        [some("192.0.2.0/24 "), some("fd02::/64 ")]
    );
    let kept = route(&cluster, "default/web");
    let changes = apply(&mut cluster, [here("192.0.3.12")]);
    assert_eq!(changed(&changes), [""; 0]);
    assert!(Arc::ptr_eq(&kept, &route(&cluster, "default/web")));
}
