//! What the model makes of facts, case by case.

mod claims;
mod frontends;
mod lists;
mod node;
mod properties;
mod ranges;
mod selection;
mod slices;

use std::sync::Arc;

use sluice_model::cluster::Cluster;
use sluice_model::fact::{Fact, Family};
use sluice_model::route::{At, Changes, Frontend, Pool, Route};
use sluice_model::settings::{DetectLocal, Settings};
use sluice_model::testing::{ip, listed, net};

/// The node all cases run on, which knows its pods by 10.1.0.0/16.
fn settings() -> Settings {
    Settings {
        detect_local: DetectLocal::ClusterCidr(vec![net("10.1.0.0/16")]),
        ..Settings::for_node("here")
    }
}

/// A synced cluster with these facts, its first changes taken.
fn cluster(facts: impl IntoIterator<Item = Fact>) -> (Cluster, Changes) {
    cluster_with(settings(), facts)
}

fn cluster_with(settings: Settings, facts: impl IntoIterator<Item = Fact>) -> (Cluster, Changes) {
    let mut cluster = Cluster::new(settings);
    for fact in listed(facts) {
        cluster.apply(fact);
    }
    let changes = cluster.changes();
    (cluster, changes)
}

fn apply(cluster: &mut Cluster, facts: impl IntoIterator<Item = Fact>) -> Changes {
    facts.into_iter().for_each(|fact| cluster.apply(fact));
    cluster.changes()
}

/// The route printed as `name` or `name:port` in a family.
fn find(cluster: &Cluster, name: &str, family: Family) -> Option<Arc<Route>> {
    let is_it = |r: &&Arc<Route>| r.family == family && r.key.to_string() == name;
    cluster.routes().find(is_it).map(Arc::clone)
}

fn route(cluster: &Cluster, name: &str) -> Arc<Route> {
    find(cluster, name, Family::V4).expect("the case expects this IPv4 route")
}

fn frontend(route: &Route, at: At) -> &Frontend {
    let found = route.frontends.iter().find(|f| f.at == at);
    found.expect("the case expects this frontend")
}

fn vip(address: &str, port: u16) -> At {
    At::Vip(ip(address), port)
}

/// `address:port` of each backend.
fn sockets(pool: &Pool) -> Vec<String> {
    pool.iter()
        .map(|b| std::net::SocketAddr::new(b.ip, b.port).to_string())
        .collect()
}

/// `object: text` of each notice.
fn notices(changes: &Changes) -> Vec<String> {
    let notices = changes.notices.iter();
    notices
        .map(|n| format!("{}: {}", n.object, n.text))
        .collect()
}

/// `name`, `name (gone)` of each route change.
fn changed(changes: &Changes) -> Vec<String> {
    let name = |r: &Arc<Route>| format!("{} {}", r.key, r.family);
    let describe = |c: &sluice_model::route::RouteChange| match (&c.old, &c.new) {
        (None, Some(new)) => format!("+{}", name(new)),
        (Some(old), None) => format!("-{}", name(old)),
        (Some(_), Some(new)) => format!("~{}", name(new)),
        (None, None) => "nothing".to_owned(),
    };
    changes.routes.iter().map(describe).collect()
}
