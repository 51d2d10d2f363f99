//! Which endpoints serve: upstream's cases of endpoint categorization, in its order.

use sluice_model::route::{Pool, Refusal};
use sluice_model::testing::{EndpointBuilder, endpoint, node, service, slice};

use crate::{cluster, frontend, route, vip};

/// Policies of the service, and whether it has a node port.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Cluster,
    /// externalTrafficPolicy Local, node port.
    External,
    /// internalTrafficPolicy Local, node port.
    InternalNodePort,
    /// Both Local, node port.
    Both,
    /// internalTrafficPolicy Local, no node port.
    Internal,
    /// externalTrafficPolicy Local, not externally accessible.
    ExternalUnreachable,
}

use Kind::*;

struct Case {
    number: &'static str,
    zone: Option<&'static str>,
    kind: Kind,
    /// Words per endpoint: `here` (on this node); `un` (neither ready nor serving), `st` (serving
    /// and terminating), `dying`; `z=` zone hint, `n=` node hint.
    endpoints: &'static [&'static str],
    /// Endpoints by number, from 1.
    cluster: &'static [u8],
    local: &'static [u8],
    /// What the cluster IP does to a connection that finds no endpoint.
    refusal: Option<Refusal>,
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    Case { number: "1", zone: Some("a"), kind: Cluster, endpoints: &["z=a", "z=b", "z=c", "z=a"], cluster: &[1, 4], local: &[], refusal: None },
    Case { number: "2", zone: Some("a"), kind: External, endpoints: &["here z=a", "here z=b", "z=c", "z=a"], cluster: &[1, 4], local: &[1, 2], refusal: None },
    Case { number: "3", zone: Some("a"), kind: InternalNodePort, endpoints: &["here z=a", "here z=b", "z=c", "z=a"], cluster: &[1, 4], local: &[1, 2], refusal: None },
    Case { number: "4: node without zone", zone: None, kind: Cluster, endpoints: &["z=a", "z=b", "z=c", "z=a"], cluster: &[1, 2, 3, 4], local: &[], refusal: None },
    Case { number: "5: empty zone", zone: Some(""), kind: Cluster, endpoints: &["z=a", "z=b", "z=c", "z=a"], cluster: &[1, 2, 3, 4], local: &[], refusal: None },
    Case { number: "6: zone without endpoint", zone: Some("d"), kind: Cluster, endpoints: &["z=a", "z=b", "z=c", "z=a"], cluster: &[1, 2, 3, 4], local: &[], refusal: None },
    Case { number: "7: one of the zone unready", zone: Some("a"), kind: Cluster, endpoints: &["z=a", "z=b", "z=c", "un z=a"], cluster: &[1], local: &[], refusal: None },
    Case { number: "8: all of the zone unready", zone: Some("a"), kind: Cluster, endpoints: &["un z=a", "z=b", "z=c", "un z=a"], cluster: &[2, 3], local: &[], refusal: None },
    Case { number: "9: one without hints", zone: Some("a"), kind: Cluster, endpoints: &["z=a", "z=b", "", "z=a"], cluster: &[1, 2, 3, 4], local: &[], refusal: None },
    Case { number: "10: several zones each", zone: Some("c"), kind: Cluster, endpoints: &["z=a z=b z=c", "z=b z=c", "z=b z=d", "z=c"], cluster: &[1, 2, 4], local: &[], refusal: None },
    // The gate for node hints is locked on; a source that did not read them would give this.
    Case { number: "11: node hints not read", zone: Some("a"), kind: Cluster, endpoints: &["z=a", "z=b", "z=a"], cluster: &[1, 3], local: &[], refusal: None },
    Case { number: "12: node hint for this node", zone: Some("a"), kind: Cluster, endpoints: &["n=there z=a", "n=here z=a", "n=yonder z=b"], cluster: &[2], local: &[], refusal: None },
    Case { number: "13: one without node hint", zone: Some("a"), kind: Cluster, endpoints: &["n=here", "n=there", ""], cluster: &[1, 2, 3], local: &[], refusal: None },
    Case { number: "14: no node hint for this node", zone: Some("a"), kind: Cluster, endpoints: &["n=there z=a", "n=there z=b", "n=yonder z=a"], cluster: &[1, 3], local: &[], refusal: None },
    Case { number: "15: local ones whatever their zone", zone: Some("a"), kind: External, endpoints: &["here z=a", "here z=b", "z=a", "z=b"], cluster: &[1, 3], local: &[1, 2], refusal: None },
    Case { number: "16: nothing at all", zone: None, kind: Internal, endpoints: &[], cluster: &[], local: &[], refusal: Some(Refusal::Reject) },
    Case { number: "17: all remote", zone: None, kind: Internal, endpoints: &["", ""], cluster: &[], local: &[], refusal: Some(Refusal::Drop) },
    Case { number: "18: all local", zone: None, kind: Internal, endpoints: &["here", "here"], cluster: &[], local: &[1, 2], refusal: None },
    Case { number: "19: some local", zone: None, kind: Internal, endpoints: &["here", ""], cluster: &[], local: &[1], refusal: None },
    Case { number: "20: none usable", zone: None, kind: Cluster, endpoints: &["un", "un"], cluster: &[], local: &[], refusal: Some(Refusal::Reject) },
    Case { number: "21: some ready", zone: None, kind: Cluster, endpoints: &["", "un"], cluster: &[1], local: &[], refusal: None },
    Case { number: "22: all terminating", zone: None, kind: Cluster, endpoints: &["st", "st"], cluster: &[1, 2], local: &[], refusal: None },
    Case { number: "23", zone: None, kind: InternalNodePort, endpoints: &["here", ""], cluster: &[1, 2], local: &[1], refusal: None },
    Case { number: "24", zone: None, kind: External, endpoints: &["here", ""], cluster: &[1, 2], local: &[1], refusal: None },
    Case { number: "25", zone: None, kind: Both, endpoints: &["here", ""], cluster: &[1, 2], local: &[1], refusal: None },
    Case { number: "26: both Local, all remote", zone: None, kind: Both, endpoints: &["", ""], cluster: &[1, 2], local: &[], refusal: Some(Refusal::Drop) },
    Case { number: "27: both Local, all remote and terminating", zone: None, kind: Both, endpoints: &["st", "st"], cluster: &[1, 2], local: &[], refusal: Some(Refusal::Drop) },
    Case { number: "28: each policy falls back alone", zone: None, kind: External, endpoints: &["", "here dying", "here st", "st"], cluster: &[1], local: &[3], refusal: None },
    Case { number: "29", zone: None, kind: ExternalUnreachable, endpoints: &["here", ""], cluster: &[1, 2], local: &[], refusal: None },
    Case { number: "30", zone: None, kind: Internal, endpoints: &["", "here"], cluster: &[], local: &[2], refusal: None },
    Case { number: "31: no endpoints", zone: None, kind: Cluster, endpoints: &[], cluster: &[], local: &[], refusal: Some(Refusal::Reject) },
    Case { number: "32: one neither ready nor serving nor terminating", zone: None, kind: Cluster, endpoints: &["un"], cluster: &[], local: &[], refusal: Some(Refusal::Reject) },
];

#[expect(clippy::panic, reason = "a mistake in the table above")]
fn build(number: usize, words: &str) -> EndpointBuilder {
    let start = endpoint(&format!("10.1.2.{}", number + 1)).on("there");
    words
        .split_whitespace()
        .fold(start, |endpoint, word| match word {
            "here" => endpoint.on("here"),
            "un" => endpoint.unready(),
            "st" => endpoint.terminating(),
            "dying" => endpoint.dying(),
            _ => match word.split_once('=') {
                Some(("z", zone)) => endpoint.for_zone(zone),
                Some(("n", node)) => endpoint.for_node(node),
                _ => panic!("unknown word {word}"),
            },
        })
}

fn numbers(pool: &Pool) -> Vec<u8> {
    let last = |b: &sluice_model::route::Backend| b.ip.to_string().rsplit('.').next()?.parse().ok();
    pool.iter().filter_map(last).collect()
}

#[test]
fn endpoints_are_chosen_as_kube_proxy_chooses_them() {
    assert_eq!(CASES.len(), 32);
    for case in CASES {
        let web = service("web").cluster_ip("172.30.0.1").tcp("", 80);
        let web = match case.kind {
            Cluster => web,
            External => web.node_port(30080).external_local(),
            InternalNodePort => web.node_port(30080).internal_local(),
            Both => web.node_port(30080).internal_local().external_local(),
            Internal => web.internal_local(),
            ExternalUnreachable => web.external_local(),
        };
        let endpoints = case.endpoints.iter().enumerate();
        let slice = endpoints.fold(slice("web-1", "web").tcp("", 8080), |slice, (i, words)| {
            slice.with(build(i, words))
        });
        let here = node("here", &["192.0.2.11"], case.zone);
        let (cluster, _) = cluster([web.fact(), slice.fact(), here]);
        let route = route(&cluster, "default/web");
        let number = case.number;
        assert_eq!(
            numbers(&route.cluster),
            case.cluster,
            "cluster pool of case {number}"
        );
        assert_eq!(
            numbers(&route.local),
            case.local,
            "local pool of case {number}"
        );
        let cluster_ip = frontend(&route, vip("172.30.0.1", 80));
        assert_eq!(cluster_ip.refusal, case.refusal, "refusal of case {number}");
    }
}
