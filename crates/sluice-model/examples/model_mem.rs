//! What the model costs: 10,000 services with 10 endpoints each are loaded, then one endpoint is
//! swapped again and again.
//!
//! `cargo run --release -p sluice-model --example model_mem`. Memory is the growth of the
//! resident set, routes included; facts are dropped as they are taken in, and names are shared as
//! sources share them.
#![allow(
    clippy::disallowed_methods,
    reason = "a measurement reads the clock, the model does not"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use sluice_model::cluster::Cluster;
use sluice_model::fact::{
    Conditions, Endpoint, Fact, Family, Kind, Protocol, Service, ServicePort, Slice, SlicePort,
};
use sluice_model::name::{Names, ObjectKey};
use sluice_model::settings::Settings;

const SERVICES: u32 = 10_000;
const ENDPOINTS: u32 = 10;
const SWAPS: u32 = 1_000;

fn key(names: &mut Names, name: &str) -> ObjectKey {
    ObjectKey {
        namespace: names.intern("default"),
        name: names.intern(name),
    }
}

fn address(network: u8, number: u32) -> IpAddr {
    let [_, b, c, d] = number.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(network, b, c, d))
}

fn service(names: &mut Names, number: u32) -> Fact {
    let service = Service {
        created: Some(i64::from(number)),
        families: vec![Family::V4],
        cluster_ips: vec![address(10, number + 1)],
        ports: vec![ServicePort {
            name: names.intern("http"),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
        }],
        ..Service::default()
    };
    let key = key(names, &format!("service-{number}"));
    Fact::Service(key, Some(Box::new(service)))
}

/// A service's only slice; its last endpoint moves with `shift`.
fn slice(names: &mut Names, number: u32, shift: u32) -> Fact {
    let mut endpoint = |i: u32| Endpoint {
        ip: address(11, number * ENDPOINTS + i + 1),
        conditions: Conditions::new(None, None, None),
        node: Some(names.intern(&format!("node-{}", i % 100))),
        hints: None,
    };
    let mut endpoints: Vec<Endpoint> = (0..ENDPOINTS).map(&mut endpoint).collect();
    if let Some(last) = endpoints.last_mut() {
        last.ip = address(12 + (shift % 2) as u8, number + 1);
    }
    let slice = Slice {
        service: Some(names.intern(&format!("service-{number}"))),
        family: Some(Family::V4),
        ports: vec![SlicePort {
            name: Some(names.intern("http")),
            protocol: Protocol::Tcp,
            port: Some(8080),
        }],
        endpoints,
        ..Slice::default()
    };
    let key = key(names, &format!("service-{number}-x7k2p"));
    Fact::Slice(key, Some(Box::new(slice)))
}

/// The resident set in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

fn main() {
    let mut names = Names::default();
    let mut cluster = Cluster::new(Settings::for_node("node-1"));
    let before = resident();
    let start = Instant::now();
    cluster.apply(Fact::Begin(Kind::Services));
    cluster.apply(Fact::Begin(Kind::Slices));
    (0..SERVICES).for_each(|n| cluster.apply(service(&mut names, n)));
    (0..SERVICES).for_each(|n| cluster.apply(slice(&mut names, n, 0)));
    cluster.apply(Fact::Synced(Kind::Services));
    cluster.apply(Fact::Synced(Kind::Slices));
    let applied = start.elapsed();
    let routes = cluster.changes().routes.len();
    let loaded = start.elapsed();
    let grown = resident().zip(before).map(|(now, then)| now - then);
    println!("{routes} routes: facts taken in {applied:?}, routes made after {loaded:?}");
    match grown {
        Some(bytes) => println!("resident set grew by {:.1} MB", bytes as f64 / 1e6),
        None => println!("resident set unknown: no /proc/self/status"),
    }

    let mut swaps = Vec::new();
    for shift in 1..=SWAPS {
        let number = shift * 7 % SERVICES;
        let facts = [1, 2].map(|shift| slice(&mut names, number, shift));
        for fact in facts {
            let start = Instant::now();
            cluster.apply(fact);
            let changed = cluster.changes().routes.len();
            swaps.push((start.elapsed(), changed));
        }
    }
    assert!(swaps.iter().all(|(_, changed)| *changed == 1));
    swaps.sort_unstable();
    let at = |percent: usize| {
        swaps
            .get(swaps.len() * percent / 100)
            .map(|(time, _)| *time)
    };
    let (median, late) = (at(50), at(99));
    let [median, late] = [median, late].map(Option::<Duration>::unwrap_or_default);
    println!("one endpoint swapped: median {median:?}, 99th percentile {late:?}");
}
