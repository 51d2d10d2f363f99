//! Objects in the making: a decoder hands over one field at a time, in whatever order its wire
//! format has them, and gets a fact in the end. Nothing of the object itself is kept.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;
use sluice_model::fact::{
    Conditions, Endpoint, Family, Hints, Ingress, Node, Problem, Service, ServicePort, ServiceType,
    Slice, SlicePort,
};
use sluice_model::name::{Name, Names};

use super::{
    AFFINITY_SECONDS, AUTOSCALER_TAINT, Affinity, HEADLESS, LONGEST_AFFINITY, Meaning, OTHER_PROXY,
    SERVICE_NAME, TRIGGER_TIME, ZONE, address, address_type, affinity, any_address, family,
    is_proxied, net, policy, port, protocol, service_type,
};
use crate::time::parse_rfc3339_nanos;

/// Text that lies in the frame, or was unescaped from it.
pub(crate) type Text<'a> = Cow<'a, str>;

/// Annotation of the bookmark that ends the initial events of a streamed list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The part of an object's metadata that matters to somebody.
#[derive(Debug, Default)]
pub(crate) struct Meta<'a> {
    pub(crate) name: Text<'a>,
    pub(crate) namespace: Text<'a>,
    pub(crate) version: Text<'a>,
    /// Unix seconds.
    pub(crate) created: Option<i64>,
    /// Has a deletionTimestamp.
    pub(crate) deleted: bool,
    other_proxy: bool,
    headless: bool,
    service: Option<Text<'a>>,
    zone: Option<Text<'a>>,
    triggered: Option<i64>,
    /// Has the annotation that ends the initial events of a streamed list.
    pub(crate) initial_end: bool,
}

impl<'a> Meta<'a> {
    pub(crate) fn label(&mut self, key: &str, value: Text<'a>) {
        match key {
            OTHER_PROXY => self.other_proxy = true,
            HEADLESS => self.headless = true,
            SERVICE_NAME => self.service = Some(value),
            ZONE => self.zone = Some(value),
            _ => {}
        }
    }

    pub(crate) fn annotation(&mut self, key: &str, value: &str) {
        match key {
            TRIGGER_TIME => self.triggered = parse_rfc3339_nanos(value),
            INITIAL_EVENTS_END => self.initial_end = value == "true",
            _ => {}
        }
    }
}

/// The value, or a problem noted.
fn note<T>(problems: &mut Vec<Problem>, field: &str, value: &str, read: Meaning<T>) -> Option<T> {
    read.map_err(|why| problems.push(Problem::new(field, value, why)))
        .ok()
}

/// A Service.
#[derive(Debug, Default)]
pub(crate) struct ServiceDraft<'a> {
    service: Service,
    cluster_ip: Text<'a>,
    /// How many entries clusterIPs has.
    cluster_ips: usize,
    external_ips: usize,
    sticks: bool,
    seconds: Option<i64>,
}

/// One entry of spec.ports as read.
#[derive(Debug, Default)]
pub(crate) struct PortDraft<'a> {
    pub(crate) name: Option<Text<'a>>,
    pub(crate) protocol: Text<'a>,
    pub(crate) port: Option<i64>,
    pub(crate) node_port: i64,
}

impl<'a> ServiceDraft<'a> {
    fn note<T>(&mut self, field: &str, value: &str, read: Meaning<T>) -> Option<T> {
        note(&mut self.service.problems, field, value, read)
    }

    pub(crate) fn service_type(&mut self, text: &str) {
        let read = self.note("spec.type", text, service_type(text));
        self.service.service_type = read.unwrap_or_default();
    }

    pub(crate) fn external_policy(&mut self, text: &str) {
        let read = self.note("spec.externalTrafficPolicy", text, policy(text));
        self.service.external_policy = read.unwrap_or_default();
    }

    pub(crate) fn internal_policy(&mut self, text: &str) {
        let read = self.note("spec.internalTrafficPolicy", text, policy(text));
        self.service.internal_policy = read.unwrap_or_default();
    }

    pub(crate) fn cluster_ip(&mut self, text: Text<'a>) {
        self.cluster_ip = text;
    }

    /// An entry of clusterIPs.
    pub(crate) fn cluster_ips(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let index = self.cluster_ips;
        self.cluster_ips += 1;
        if text == "None" {
            self.service.headless |= index == 0;
            return;
        }
        let field = format!("spec.clusterIPs[{index}]");
        let ip = self.note(&field, text, address(text));
        self.service.cluster_ips.extend(ip);
    }

    pub(crate) fn external_ip(&mut self, text: &str) {
        let index = self.external_ips;
        self.external_ips += 1;
        if !text.is_empty() {
            let field = format!("spec.externalIPs[{index}]");
            let ip = self.note(&field, text, address(text));
            self.service.external_ips.extend(ip);
        }
    }

    pub(crate) fn source_range(&mut self, text: &str) {
        self.service.source_ranges.given = true;
        let range = self.note("spec.loadBalancerSourceRanges", text, net(text));
        self.service.source_ranges.nets.extend(range);
    }

    pub(crate) fn family(&mut self, text: &str) {
        let read = self.note("spec.ipFamilies", text, family(text));
        self.service.families.extend(read);
    }

    pub(crate) fn health_check_node_port(&mut self, number: i64) {
        if number != 0 {
            let field = "spec.healthCheckNodePort";
            let read = self.note(field, &number.to_string(), port(number));
            self.service.health_check_node_port = read.unwrap_or(0);
        }
    }

    pub(crate) fn affinity(&mut self, text: &str) {
        let read = self.note("spec.sessionAffinity", text, affinity(text));
        self.sticks = read == Some(Affinity::ClientIp);
    }

    /// sessionAffinityConfig.clientIP.timeoutSeconds.
    pub(crate) fn affinity_seconds(&mut self, seconds: i64) {
        self.seconds = Some(seconds);
    }

    pub(crate) fn ingress(&mut self, ip: &str, mode: &str) {
        // An entry with a host name only is not ours to serve.
        if ip.is_empty() {
            return;
        }
        let field = "status.loadBalancer.ingress.ipMode";
        let proxied = self.note(field, mode, is_proxied(mode)).unwrap_or(false);
        let ip = self.note("status.loadBalancer.ingress.ip", ip, address(ip));
        let entry = ip.map(|ip| Ingress { ip, proxied });
        self.service.ingress.extend(entry);
    }

    pub(crate) fn port(&mut self, draft: &PortDraft<'_>, names: &mut Names) {
        let number = draft.port.unwrap_or(0);
        let number = self.note("spec.ports.port", &number.to_string(), port(number));
        let text = &*draft.protocol;
        let protocol = self.note("spec.ports.protocol", text, protocol(text));
        let node_port = match draft.node_port {
            0 => 0,
            number => {
                let field = "spec.ports.nodePort";
                let read = self.note(field, &number.to_string(), port(number));
                read.unwrap_or(0)
            }
        };
        if let (Some(port), Some(protocol)) = (number, protocol) {
            self.service.ports.push(ServicePort {
                name: names.intern(draft.name.as_deref().unwrap_or_default()),
                protocol,
                port,
                node_port,
            });
        }
    }

    /// The whole, with defaults that depend on several fields.
    pub(crate) fn finish(mut self, meta: &Meta<'_>) -> Service {
        if self.cluster_ips == 0 {
            let one = std::mem::take(&mut self.cluster_ip);
            self.cluster_ips(&one);
        }
        let seconds = self.seconds.unwrap_or(i64::from(AFFINITY_SECONDS));
        if self.sticks {
            let good = u32::try_from(seconds).ok();
            let good = good.filter(|seconds| (1..=LONGEST_AFFINITY).contains(seconds));
            let read = good.ok_or("must be from 1 to 86400 seconds; served as 10800");
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            let read = self.note(field, &seconds.to_string(), read);
            self.service.affinity_seconds = Some(read.unwrap_or(AFFINITY_SECONDS));
        }
        let service = &mut self.service;
        if service.service_type == ServiceType::ExternalName {
            service.cluster_ips.clear();
            service.headless = false;
        }
        if service.headless {
            service.cluster_ips.clear();
        }
        if service.families.is_empty() {
            let of_ips = service.cluster_ips.iter().map(|ip| Family::of(*ip));
            service.families = of_ips.collect();
        }
        service.created = meta.created;
        service.other_proxy = meta.other_proxy;
        self.service
    }
}

/// An EndpointSlice.
#[derive(Debug)]
pub(crate) struct SliceDraft {
    slice: Slice,
    /// How many endpoints were read.
    endpoints: usize,
}

/// One endpoint as read.
#[derive(Debug, Default)]
pub(crate) struct EndpointDraft<'a> {
    /// `addresses[0]`; further addresses have no meaning.
    pub(crate) address: Option<Text<'a>>,
    pub(crate) ready: Option<bool>,
    pub(crate) serving: Option<bool>,
    pub(crate) terminating: Option<bool>,
    pub(crate) node: Option<Text<'a>>,
    pub(crate) hints: Option<Box<Hints>>,
}

impl SliceDraft {
    /// A slice of a type; everything else about it can follow in any order.
    pub(crate) fn new(kind: &str) -> SliceDraft {
        let mut slice = Slice::default();
        let read = note(&mut slice.problems, "addressType", kind, address_type(kind));
        slice.family = read.flatten();
        SliceDraft {
            slice,
            endpoints: 0,
        }
    }

    pub(crate) fn port(&mut self, draft: &PortDraft<'_>, names: &mut Names) {
        let port = slice_port(draft, names, &mut self.slice.problems);
        self.slice.ports.extend(port);
    }

    pub(crate) fn endpoint(&mut self, draft: EndpointDraft<'_>, names: &mut Names) {
        let index = self.endpoints;
        self.endpoints += 1;
        // Without a family the addresses are host names, or cannot be judged.
        let Some(family) = self.slice.family else {
            return;
        };
        let text = draft.address.as_deref().unwrap_or_default();
        let read = address(text).and_then(|ip| {
            let good = Family::of(ip) == family;
            good.then_some(ip)
                .ok_or("must be of the slice's addressType")
        });
        let ip = match read {
            Ok(ip) => ip,
            Err(why) => {
                let field = format!("endpoints[{index}].addresses[0]");
                self.slice.problems.push(Problem::new(field, text, why));
                return;
            }
        };
        self.slice.endpoints.push(Endpoint {
            ip,
            conditions: Conditions::new(draft.ready, draft.serving, draft.terminating),
            node: draft.node.map(|node| names.intern(&node)),
            hints: draft.hints,
        });
    }

    pub(crate) fn finish(mut self, meta: &Meta<'_>, names: &mut Names) -> Slice {
        let service = meta.service.as_deref();
        self.slice.service = service.map(|service| names.intern(service));
        self.slice.headless = meta.headless;
        self.slice.triggered = meta.triggered;
        self.slice.ports.shrink_to_fit();
        self.slice.endpoints.shrink_to_fit();
        self.slice
    }
}

fn slice_port(
    draft: &PortDraft<'_>,
    names: &mut Names,
    problems: &mut Vec<Problem>,
) -> Option<SlicePort> {
    let text = &*draft.protocol;
    let protocol = note(problems, "ports.protocol", text, protocol(text))?;
    let port = match draft.port {
        None | Some(0) => None,
        Some(number) => Some(note(
            problems,
            "ports.port",
            &number.to_string(),
            port(number),
        )?),
    };
    Some(SlicePort {
        name: draft.name.as_deref().map(|name| names.intern(name)),
        protocol,
        port,
    })
}

/// An Endpoints object.
#[derive(Debug, Default)]
pub(crate) struct EndpointsDraft {
    slices: Vec<Slice>,
}

/// One subset of an Endpoints object.
#[derive(Debug, Default)]
pub(crate) struct SubsetDraft {
    ports: Vec<SlicePort>,
    endpoints: Vec<Endpoint>,
    problems: Vec<Problem>,
}

/// Which list of a subset an address stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// addresses.
    Ready,
    /// notReadyAddresses: not serving either, as the old object cannot tell one that is being
    /// terminated from one that never came up.
    NotReady,
}

impl Readiness {
    /// The same as conditions.
    pub(crate) fn conditions(self) -> Conditions {
        let ready = Some(self == Readiness::Ready);
        Conditions::new(ready, ready, None)
    }
}

impl SubsetDraft {
    pub(crate) fn port(&mut self, draft: &PortDraft<'_>, names: &mut Names) {
        // The older object has no port without a name: it is the empty one.
        let mut port = slice_port(draft, names, &mut self.problems);
        if let Some(port) = &mut port
            && port.name.is_none()
        {
            port.name = Some(names.intern(""));
        }
        self.ports.extend(port);
    }

    pub(crate) fn address(
        &mut self,
        ip: &str,
        node: Option<Text<'_>>,
        readiness: Readiness,
        names: &mut Names,
    ) {
        let read = note(&mut self.problems, "subsets.addresses.ip", ip, address(ip));
        self.endpoints.extend(read.map(|ip| Endpoint {
            ip,
            conditions: readiness.conditions(),
            node: node.map(|node| names.intern(&node)),
            hints: None,
        }));
    }
}

impl EndpointsDraft {
    /// Takes a subset in as one slice per family that it has addresses of.
    pub(crate) fn subset(&mut self, mut draft: SubsetDraft) {
        for family in Family::ALL {
            let of_family = |endpoint: &&Endpoint| Family::of(endpoint.ip) == family;
            let endpoints: Vec<Endpoint> =
                draft.endpoints.iter().filter(of_family).cloned().collect();
            if !endpoints.is_empty() {
                self.slices.push(Slice {
                    family: Some(family),
                    ports: draft.ports.clone(),
                    endpoints,
                    problems: std::mem::take(&mut draft.problems),
                    ..Slice::default()
                });
            }
        }
    }

    pub(crate) fn finish(mut self, meta: &Meta<'_>, service: &Name) -> Vec<Slice> {
        for slice in &mut self.slices {
            slice.service = Some(service.clone());
            slice.headless = meta.headless;
            slice.triggered = meta.triggered;
        }
        self.slices
    }
}

/// A Node.
#[derive(Debug, Default)]
pub(crate) struct NodeDraft<'a> {
    node: Node,
    external: Vec<IpAddr>,
    pod_cidr: Text<'a>,
}

impl<'a> NodeDraft<'a> {
    /// An entry of status.addresses.
    pub(crate) fn address(&mut self, sort: &str, text: &str) {
        let into = match sort {
            "InternalIP" => &mut self.node.addresses,
            "ExternalIP" => &mut self.external,
            _ => return,
        };
        let field = "status.addresses.address";
        into.extend(note(
            &mut self.node.problems,
            field,
            text,
            any_address(text),
        ));
    }

    pub(crate) fn pod_cidr(&mut self, text: Text<'a>) {
        self.pod_cidr = text;
    }

    /// An entry of spec.podCIDRs.
    pub(crate) fn pod_cidrs(&mut self, text: &str) {
        let read = note(&mut self.node.problems, "spec.podCIDRs", text, net(text));
        self.node.pod_cidrs.extend(read);
    }

    pub(crate) fn taint(&mut self, key: &str) {
        self.node.leaving |= key == AUTOSCALER_TAINT;
    }

    pub(crate) fn finish(mut self, meta: &Meta<'_>, names: &mut Names) -> Node {
        if self.node.pod_cidrs.is_empty() && !self.pod_cidr.is_empty() {
            let one = std::mem::take(&mut self.pod_cidr);
            self.pod_cidrs(&one);
        }
        self.node.addresses.append(&mut self.external);
        self.node.leaving |= meta.deleted;
        self.node.zone = meta.zone.as_deref().map(|zone| names.intern(zone));
        self.node
    }
}

/// The ranges of a ServiceCIDR. One that cannot be read is left out: the server refuses such.
pub(crate) fn cidr(ranges: &mut Vec<IpNet>, text: &str) {
    ranges.extend(net(text).ok());
}
