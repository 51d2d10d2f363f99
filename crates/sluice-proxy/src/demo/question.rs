//! Connections to every service, from everybody whom it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use sluice_model::fact::{Family, Protocol, Service, ServiceType};
use sluice_model::name::ObjectKey;

use super::cast::Cast;
use crate::sandbox::{Outcome, Place, Probe, World};

/// Connections per question.
pub(super) const TRIES: usize = 24;

/// One address of one service, asked by one client.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) service: ObjectKey,
    /// Which of the service's addresses this is, as people say it.
    pub(super) kind: &'static str,
    pub(super) at: SocketAddr,
    pub(super) protocol: Protocol,
    pub(super) from: Place,
    /// The client in one or two words.
    pub(super) who: &'static str,
}

/// What became of a question's connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// Endpoints reached, with counts.
    pub(super) endpoints: BTreeMap<SocketAddr, usize>,
    /// Sources that the endpoints saw.
    pub(super) sources: BTreeSet<IpAddr>,
    /// Connections that reached nobody, with counts.
    pub(super) others: BTreeMap<Outcome, usize>,
}

impl Answer {
    pub(super) fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Reached { endpoint, source } => {
                *self.endpoints.entry(endpoint).or_default() += 1;
                self.sources.insert(source.ip());
            }
            Outcome::Refused | Outcome::TimedOut | Outcome::Closed | Outcome::Unreachable(_) => {
                *self.others.entry(outcome).or_default() += 1
            }
        }
    }
}

/// The questions, service by service.
pub(super) fn of_services(cast: &Cast) -> Vec<Question> {
    let mut questions = Vec::new();
    for (key, service) in &cast.services {
        for port in &service.ports {
            for (kind, at) in addresses(service, (port.port, port.node_port), cast) {
                for (who, from) in clients(kind, at, key, cast) {
                    questions.push(Question {
                        service: key.clone(),
                        kind,
                        at,
                        protocol: port.protocol,
                        from,
                        who,
                    });
                }
            }
        }
    }
    questions
}

const CLUSTER_IP: &str = "ClusterIP";
const NODE_PORT: &str = "NodePort";

/// Where a service port can be reached: (kind, address).
fn addresses(
    service: &Service,
    (port, node_port): (u16, u16),
    cast: &Cast,
) -> Vec<(&'static str, SocketAddr)> {
    let mut found = Vec::new();
    let mut add = |kind, ip, port| found.push((kind, SocketAddr::new(ip, port)));
    match service.service_type {
        ServiceType::ExternalName => return found,
        ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer => {}
    }
    if !service.headless {
        service
            .cluster_ips
            .iter()
            .for_each(|ip| add(CLUSTER_IP, *ip, port));
    }
    service
        .external_ips
        .iter()
        .for_each(|ip| add("external IP", *ip, port));
    for ingress in service.ingress.iter().filter(|ingress| !ingress.proxied) {
        add("LoadBalancer", ingress.ip, port);
    }
    if node_port > 0 {
        for ip in cast.node_addresses() {
            if service.families.contains(&Family::of(*ip)) {
                add(NODE_PORT, *ip, node_port);
            }
        }
    }
    found
}

/// Whom an address concerns.
fn clients(
    kind: &str,
    at: SocketAddr,
    service: &ObjectKey,
    cast: &Cast,
) -> Vec<(&'static str, Place)> {
    let family = Family::of(at.ip());
    let pod = cast
        .client()
        .into_iter()
        .find(|ip| Family::of(*ip) == family);
    let mut clients: Vec<_> = pod
        .map(|ip| ("a pod", Place::Pod(ip)))
        .into_iter()
        .collect();
    match kind {
        CLUSTER_IP => clients.push(("the node", Place::Node)),
        _ => clients.push(("outside", Place::Outside)),
    }
    // A pod that asks for the service it belongs to may be answered by itself.
    let endpoints = cast
        .slices_of(service, family)
        .flat_map(|(_, slice)| &slice.endpoints);
    let own = endpoints
        .map(|endpoint| endpoint.ip)
        .find(|ip| cast.is_local(*ip));
    if let (CLUSTER_IP, Some(ip)) = (kind, own) {
        clients.push(("own endpoint", Place::Pod(ip)));
    }
    clients
}

/// Asks all questions, several times each.
pub(super) fn ask_all(world: &World, questions: &[Question]) -> anyhow::Result<Vec<Answer>> {
    let probes: Vec<Probe> = questions
        .iter()
        .flat_map(|question| {
            let probe = Probe::new(question.from, question.protocol, question.at);
            std::iter::repeat_n(probe, TRIES)
        })
        .collect();
    let outcomes = world.probe_all(&probes)?;
    let answers = outcomes.chunks(TRIES).map(|chunk| {
        let mut answer = Answer::default();
        chunk.iter().for_each(|outcome| answer.add(*outcome));
        answer
    });
    Ok(answers.collect())
}
