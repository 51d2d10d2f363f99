//! Service.

use sluice_model::fact::{
    Fact, Family, Ingress, Service, ServicePort, ServiceType, SourceRanges, TrafficPolicy,
};
use sluice_model::name::ObjectKey;

use super::Scope;
use super::endpoints::protocol;
use crate::object::{self, AFFINITY_SECONDS, Affinity, LONGEST_AFFINITY, OTHER_PROXY};
use crate::time::parse_rfc3339_seconds;
use crate::yaml::{Complaint, Field};

pub(super) fn service(scope: &mut Scope<'_>, root: &Field<'_>, key: ObjectKey) -> Option<Fact> {
    let spec = scope.take(root.require("spec", "must say what the service is"))?;
    let metadata = root.node().get("metadata");
    let created = metadata.and_then(|m| m.get("creationTimestamp"));
    let mut service = Service {
        created: created
            .and_then(|stamp| stamp.text())
            .and_then(parse_rfc3339_seconds),
        other_proxy: scope.label(root, "labels", OTHER_PROXY).is_some(),
        service_type: service_type(scope, &spec),
        external_policy: policy(scope, spec.get("externalTrafficPolicy")),
        internal_policy: policy(scope, spec.get("internalTrafficPolicy")),
        affinity_seconds: affinity(scope, &spec),
        source_ranges: source_ranges(scope, &spec),
        ..Service::default()
    };
    cluster_ips(scope, &spec, &mut service);
    families(scope, &spec, &mut service);
    let external = spec.get("externalIPs");
    for field in scope.list(external.as_ref()) {
        service.external_ips.extend(scope.address(&field));
    }
    service.ingress = ingress(scope, root);
    if let Some(field) = spec.get("healthCheckNodePort")
        && field.node().value != crate::yaml::Value::Int(0)
    {
        service.health_check_node_port = scope.port(field).unwrap_or(0);
    }
    service.ports = ports(scope, &spec, &service);
    Some(Fact::Service(key, Some(Box::new(service))))
}

fn service_type(scope: &mut Scope<'_>, spec: &Field<'_>) -> ServiceType {
    let field = spec.get("type");
    let read = field.and_then(|field| scope.mean(&field, object::service_type));
    read.unwrap_or_default()
}

fn policy(scope: &mut Scope<'_>, field: Option<Field<'_>>) -> TrafficPolicy {
    let read = field.and_then(|field| scope.mean(&field, object::policy));
    read.unwrap_or_default()
}

fn affinity(scope: &mut Scope<'_>, spec: &Field<'_>) -> Option<u32> {
    let field = spec.get("sessionAffinity")?;
    match scope.mean(&field, object::affinity)? {
        Affinity::Free => return None,
        Affinity::ClientIp => {}
    }
    let config = spec.get("sessionAffinityConfig");
    let client = config.as_ref().and_then(|config| config.get("clientIP"));
    let seconds = client
        .as_ref()
        .and_then(|client| client.get("timeoutSeconds"));
    let seconds =
        seconds.and_then(|field| scope.take(field.whole(1..=i64::from(LONGEST_AFFINITY))));
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
    Some(seconds.unwrap_or(AFFINITY_SECONDS))
}

fn source_ranges(scope: &mut Scope<'_>, spec: &Field<'_>) -> SourceRanges {
    let list = spec.get("loadBalancerSourceRanges");
    let fields = scope.list(list.as_ref());
    SourceRanges {
        given: !fields.is_empty(),
        nets: fields.iter().filter_map(|field| scope.net(field)).collect(),
    }
}

/// The cluster IPs: clusterIPs, or else the one clusterIP. No server gives out addresses to
/// manifests, so a service without one is legal and stays unserved, which its author should hear.
fn cluster_ips(scope: &mut Scope<'_>, spec: &Field<'_>, service: &mut Service) {
    if service.service_type == ServiceType::ExternalName {
        return;
    }
    let (many, one) = (spec.get("clusterIPs"), spec.get("clusterIP"));
    let mut fields = scope.list(many.as_ref());
    fields.retain(|field| field.node().text() != Some(""));
    if fields.is_empty() {
        fields.extend(one.filter(|field| field.node().text() != Some("")));
    }
    let Some(first) = fields.first() else {
        scope.complaints.push(Complaint {
            place: spec.place(),
            field: "spec.clusterIP".into(),
            value: "missing".into(),
            why: "nothing is served: manifests get no address allocated, write one".into(),
        });
        return;
    };
    if first.node().text() == Some("None") {
        service.headless = true;
        return;
    }
    let ips = fields
        .iter()
        .filter_map(|field| scope.address(field))
        .collect();
    service.cluster_ips = ips;
    let single = one.and_then(|field| field.node().text().and_then(sluice_model::fact::parse_ip));
    if let (Some(field), Some(single), Some(first)) = (one, single, service.cluster_ips.first())
        && single != *first
    {
        let why = "must be the first of clusterIPs; clusterIPs counts";
        scope.complain(&field, why);
    }
}

/// ipFamilies, or where they are missing those of the cluster IPs, as the API server would fill
/// them in.
fn families(scope: &mut Scope<'_>, spec: &Field<'_>, service: &mut Service) {
    let of_ips: Vec<Family> = service
        .cluster_ips
        .iter()
        .map(|ip| Family::of(*ip))
        .collect();
    let list = spec.get("ipFamilies");
    let fields = scope.list(list.as_ref());
    for field in &fields {
        let family = scope.mean(field, object::family);
        service.families.extend(family);
    }
    if service.families.is_empty() {
        service.families = of_ips;
    } else if let (Some(field), false) = (list, service.cluster_ips.is_empty())
        && service.families != of_ips
    {
        scope.complain(
            &field,
            "must be the families of clusterIPs in their order; those count",
        );
        service.families = of_ips;
    }
}

fn ingress(scope: &mut Scope<'_>, root: &Field<'_>) -> Vec<Ingress> {
    let status = root.get("status");
    let balancer = status
        .as_ref()
        .and_then(|status| status.get("loadBalancer"));
    let list = balancer
        .as_ref()
        .and_then(|balancer| balancer.get("ingress"));
    let mut ingress = Vec::new();
    for field in scope.list(list.as_ref()) {
        // An entry with a host name only is not ours to serve.
        let Some(ip) = field.get("ip") else { continue };
        let Some(ip) = scope.address(&ip) else {
            continue;
        };
        let mode = field.get("ipMode");
        let proxied = mode.and_then(|mode| scope.mean(&mode, object::is_proxied));
        let proxied = proxied.unwrap_or(false);
        ingress.push(Ingress { ip, proxied });
    }
    ingress
}

fn ports(scope: &mut Scope<'_>, spec: &Field<'_>, service: &Service) -> Vec<ServicePort> {
    let list = spec.get("ports");
    let fields = scope.list(list.as_ref());
    if fields.is_empty() && !service.headless && service.service_type != ServiceType::ExternalName {
        let missing = spec.require("ports", "must list at least one port");
        scope.take(missing.map(drop));
    }
    let mut ports: Vec<ServicePort> = Vec::new();
    for field in &fields {
        let Some(port) = port(scope, field, service.service_type) else {
            continue;
        };
        if fields.len() > 1 && port.name.is_empty() {
            scope.complain(field, "must have a name, as there are several ports");
        }
        if let Some(why) = ports.iter().find_map(|other| clash(other, &port)) {
            scope.complain(field, why);
            continue;
        }
        ports.push(port);
    }
    ports
}

fn port(scope: &mut Scope<'_>, field: &Field<'_>, of: ServiceType) -> Option<ServicePort> {
    let number = scope.take(field.require("port", "must be a number from 1 to 65535"))?;
    let number = scope.port(number)?;
    let name = match field.get("name") {
        Some(name) => scope.take(name.text())?,
        None => "",
    };
    Some(ServicePort {
        name: scope.names.intern(name),
        protocol: protocol(scope, field)?,
        port: number,
        node_port: node_port(scope, field, of),
    })
}

/// The node port, 0 where there is none: no server gives them out to manifests.
fn node_port(scope: &mut Scope<'_>, port: &Field<'_>, of: ServiceType) -> u16 {
    let given = port.get("nodePort");
    let given = given.filter(|field| field.node().value != crate::yaml::Value::Int(0));
    match (of, given) {
        (ServiceType::NodePort, None) => {
            let why = "no node port is served: manifests get none allocated, write one";
            scope.take(port.require("nodePort", why).map(drop));
            0
        }
        (ServiceType::LoadBalancer, None) => 0,
        (ServiceType::NodePort | ServiceType::LoadBalancer, Some(field)) => {
            scope.port(field).unwrap_or(0)
        }
        (ServiceType::ClusterIp | ServiceType::ExternalName, None) => 0,
        (ServiceType::ClusterIp | ServiceType::ExternalName, Some(field)) => {
            scope.complain(
                &field,
                "only types NodePort and LoadBalancer have node ports",
            );
            0
        }
    }
}

/// What keeps two ports from standing in one service.
fn clash(first: &ServicePort, second: &ServicePort) -> Option<String> {
    if first.name == second.name {
        let name = &first.name;
        return Some(format!(
            "has the name {name:?} of a port before it: names must differ"
        ));
    }
    let same_protocol = first.protocol == second.protocol;
    let name = &first.name;
    if same_protocol && first.port == second.port {
        return Some(format!("has the number and protocol of port {name:?}"));
    }
    (same_protocol && first.node_port != 0 && first.node_port == second.node_port)
        .then(|| format!("has the node port of port {name:?}"))
}
