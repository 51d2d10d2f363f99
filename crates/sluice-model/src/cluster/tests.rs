//! What cannot be seen from outside: that nothing is kept of what is gone.

use crate::fact::{Fact, Kind, Problem};
use crate::settings::Settings;
use crate::testing::{key, listed, no_service, no_slice, service, slice};

use super::Cluster;

/// A served service with a lost claim and remarks, slices with and without service, Endpoints.
fn busy() -> Cluster {
    let mut odd = slice("web-1", "web").tcp("", 0).ready("10.1.2.1", "here");
    odd.slice.problems.push(Problem::new("ports", "0", "odd"));
    odd.slice.triggered = Some(1);
    let web = |name| service(name).cluster_ip("172.30.0.1").tcp("", 80);
    let mut unassigned = service("unassigned").tcp("", 80);
    let problem = Problem::new("spec.clusterIP", "?", "no address");
    unassigned.service.problems.push(problem);
    let facts = [
        unassigned.fact(),
        web("web").affinity(0).fact(),
        web("web-too").fact(),
        odd.fact(),
        slice("orphan-1", "orphan").fact(),
        Fact::Endpoints(key("web"), Some(Vec::new())),
    ];
    let mut cluster = Cluster::new(Settings::for_node("here"));
    listed(facts)
        .into_iter()
        .for_each(|fact| cluster.apply(fact));
    assert_eq!(cluster.changes().routes.len(), 2);
    cluster
}

fn assert_empty(cluster: &mut Cluster) {
    cluster.changes();
    assert!(cluster.entries.is_empty());
    assert!(cluster.slices.is_empty());
    assert!(cluster.claims.is_empty());
    assert!(cluster.board.is_empty());
}

#[test]
fn deleted_objects_leave_nothing_behind() {
    let mut cluster = busy();
    for name in ["unassigned", "web", "web-too"] {
        cluster.apply(no_service(name));
        cluster.changes();
    }
    for name in ["web-1", "orphan-1"] {
        cluster.apply(no_slice(name));
    }
    cluster.apply(Fact::Endpoints(key("web"), None));
    assert_empty(&mut cluster);
}

#[test]
fn empty_lists_leave_nothing_behind() {
    let mut cluster = busy();
    for kind in [Kind::Services, Kind::Slices, Kind::Endpoints] {
        cluster.apply(Fact::Begin(kind));
        cluster.apply(Fact::Synced(kind));
    }
    assert_empty(&mut cluster);
}
