//! EndpointSlices as the model keeps them: only what selection reads, and only what can be used.

use std::net::IpAddr;

use crate::fact::{Conditions, Endpoint, Family, Hints, Slice, SlicePort};
use crate::name::Name;

/// A slice that counts.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    /// The slice's own name; empty for a part of an Endpoints object.
    pub(super) name: Name,
    pub(super) family: Family,
    pub(super) ports: Box<[SlicePort]>,
    pub(super) endpoints: Box<[Target]>,
    /// One entry per endpoint, or none at all where no endpoint has hints, as in most clusters.
    pub(super) hints: Box<[Option<Box<Hints>>]>,
}

/// An endpoint's address and state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) ip: IpAddr,
    pub(super) conditions: Conditions,
    /// Runs on this node.
    pub(super) local: bool,
}

impl Kept {
    /// The part of a slice that counts on the node called `here`, `None` where nothing does, and
    /// remarks about the rest.
    pub(super) fn check(name: Name, slice: Slice, here: &Name) -> (Option<Kept>, Vec<String>) {
        let Slice {
            service,
            headless,
            family,
            ports,
            endpoints,
            triggered: _,
            problems,
        } = slice;
        let (Some(_), false, Some(family)) = (service, headless, family) else {
            return (None, Vec::new());
        };
        let mut notes: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let ports = usable_ports(ports, &mut notes);
        let endpoints = usable_endpoints(endpoints, family, &mut notes);
        let targets = endpoints
            .iter()
            .map(|endpoint| Target {
                ip: endpoint.ip,
                conditions: endpoint.conditions,
                local: endpoint.node.as_ref() == Some(here),
            })
            .collect();
        let hints = if endpoints.iter().any(|endpoint| endpoint.hints.is_some()) {
            endpoints.into_iter().map(|e| e.hints).collect()
        } else {
            Box::default()
        };
        let kept = Kept {
            name,
            family,
            ports,
            endpoints: targets,
            hints,
        };
        (Some(kept), notes)
    }

    /// The endpoints with their hints.
    pub(super) fn targets(&self) -> impl Iterator<Item = (&Target, Option<&Hints>)> {
        self.endpoints
            .iter()
            .enumerate()
            .map(|(i, target)| (target, self.hints.get(i).and_then(Option::as_deref)))
    }
}

/// A port without a name matches no service port, one without a number has no endpoints.
fn usable_ports(ports: Vec<SlicePort>, notes: &mut Vec<String>) -> Box<[SlicePort]> {
    let is_zero = |port: &SlicePort| port.port == Some(0);
    for (i, _) in ports.iter().enumerate().filter(|(_, port)| is_zero(port)) {
        notes.push(format!(
            "ports[{i}]: port 0 cannot be connected to; it has no endpoints until it gets a number"
        ));
    }
    let usable = |port: &SlicePort| port.name.is_some() && port.port.is_some_and(|n| n != 0);
    ports.into_iter().filter(usable).collect()
}

fn usable_endpoints(
    endpoints: Vec<Endpoint>,
    family: Family,
    notes: &mut Vec<String>,
) -> Vec<Endpoint> {
    let usable = |endpoint: &Endpoint| {
        Family::of(endpoint.ip) == family
            && !endpoint.ip.is_unspecified()
            && !endpoint.ip.is_multicast()
    };
    if endpoints.iter().all(usable) {
        return endpoints;
    }
    for (i, endpoint) in endpoints.iter().enumerate().filter(|(_, e)| !usable(e)) {
        notes.push(format!(
            "endpoints[{i}]: {} is no address of a single {family} endpoint; it is left out",
            endpoint.ip
        ));
    }
    endpoints.into_iter().filter(usable).collect()
}
