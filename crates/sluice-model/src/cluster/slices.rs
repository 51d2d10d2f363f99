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
    /// One entry per endpoint; absent where no endpoint has hints, as in most clusters.
    #[expect(clippy::box_collection, reason = "one word in every slice, not three")]
    pub(super) hints: Option<Box<Vec<Option<Box<Hints>>>>>,
}

/// An endpoint's address and state, packed: a cluster has many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) ip: IpAddr,
    flags: u8,
}

impl Target {
    const READY: u8 = 1;
    const SERVING: u8 = 2;
    const TERMINATING: u8 = 4;
    const LOCAL: u8 = 8;

    fn new(endpoint: &Endpoint, here: &Name) -> Target {
        let Conditions {
            ready,
            serving,
            terminating,
        } = endpoint.conditions;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        Target {
            ip: endpoint.ip,
            flags: flag(ready, Self::READY)
                | flag(serving, Self::SERVING)
                | flag(terminating, Self::TERMINATING)
                | flag(endpoint.node.as_ref() == Some(here), Self::LOCAL),
        }
    }

    pub(super) fn conditions(self) -> Conditions {
        Conditions {
            ready: self.flags & Self::READY != 0,
            serving: self.flags & Self::SERVING != 0,
            terminating: self.flags & Self::TERMINATING != 0,
        }
    }

    /// Runs on this node.
    pub(super) fn is_local(self) -> bool {
        self.flags & Self::LOCAL != 0
    }
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
        let targets = endpoints.iter().map(|e| Target::new(e, here)).collect();
        let hinted = endpoints.iter().any(|endpoint| endpoint.hints.is_some());
        let hints = || endpoints.into_iter().map(|e| e.hints).collect();
        let hints = hinted.then(hints).map(Box::new);
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
    pub(super) fn targets(&self) -> impl Iterator<Item = (Target, Option<&Hints>)> {
        let hints = self.hints.as_deref();
        let hint = move |i: usize| hints.and_then(|hints| hints.get(i)?.as_deref());
        let targets = self.endpoints.iter().enumerate();
        targets.map(move |(i, target)| (*target, hint(i)))
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
