//! Any number of services, to see how the proxy carries them.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context as _;
use sluice_model::fact::{
    Conditions, Endpoint, Fact, Family, Protocol, Service, ServicePort, Slice, SlicePort,
};
use sluice_model::name::{Name, Names, ObjectKey};

use super::cast::Cast;

/// Endpoints of each synthetic service.
pub(super) const ENDPOINTS: u32 = 3;

/// The first cluster IP. Those below are the manifests'.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 96, 16, 0);

/// As many as there are addresses in the rest of 10.96.0.0/12.
const MOST: u32 = (1 << 20) - (16 << 8) - 1;

/// `count` services of one port and three endpoints each, in the namespace `synthetic`.
pub(super) fn facts(count: u32, cast: &Cast) -> anyhow::Result<Vec<Fact>> {
    anyhow::ensure!(
        count <= MOST,
        "--services {count}: at most {MOST} fit into 10.96.0.0/12"
    );
    let pods = pods(cast)?;
    let mut names = Names::default();
    let mut facts = Vec::with_capacity(2 * count as usize);
    for number in 0..count {
        let key = key(number, &mut names);
        facts.push(Fact::Service(key.clone(), Some(Box::new(service(number)))));
        let shift = number as usize;
        facts.push(Fact::Slice(
            key.clone(),
            Some(Box::new(slice(&key.name, &pods, shift))),
        ));
    }
    Ok(facts)
}

/// Other endpoints for the service in the middle.
pub(super) fn change(count: u32, cast: &Cast) -> anyhow::Result<Vec<Fact>> {
    let number = count / 2;
    let key = key(number, &mut Names::default());
    let slice = slice(&key.name, &pods(cast)?, number as usize + 1);
    Ok(vec![Fact::Slice(key, Some(Box::new(slice)))])
}

fn key(number: u32, names: &mut Names) -> ObjectKey {
    ObjectKey {
        namespace: names.intern("synthetic"),
        name: names.intern(&format!("service-{number}")),
    }
}

/// Addresses of pods on another node that serve nothing: these services are only looked at.
fn pods(cast: &Cast) -> anyhow::Result<Vec<IpAddr>> {
    let pods: anyhow::Result<Vec<_>> = (0..64)
        .map(|number| cast.spare(Family::V4, number))
        .collect();
    pods.context("addresses for synthetic endpoints")
}

fn service(number: u32) -> Service {
    let ip = Ipv4Addr::from_bits(FIRST.to_bits() + number);
    Service {
        families: vec![Family::V4],
        cluster_ips: vec![ip.into()],
        ports: vec![ServicePort {
            name: "".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
        }],
        ..Service::default()
    }
}

fn slice(service: &Name, pods: &[IpAddr], shift: usize) -> Slice {
    let endpoints = (0..ENDPOINTS as usize).map(|number| Endpoint {
        ip: pods[(shift + number) % pods.len()],
        conditions: Conditions::new(None, None, None),
        node: None,
        hints: None,
    });
    Slice {
        service: Some(service.clone()),
        family: Some(Family::V4),
        ports: vec![SlicePort {
            name: Some("".into()),
            protocol: Protocol::Tcp,
            port: Some(8080),
        }],
        endpoints: endpoints.collect(),
        ..Slice::default()
    }
}
