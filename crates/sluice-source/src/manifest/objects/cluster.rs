//! Node and ServiceCIDR.

use std::net::IpAddr;

use sluice_model::fact::{Fact, Node, parse_ip};
use sluice_model::name::ObjectKey;

use super::Scope;
use crate::yaml::Field;

const ZONE: &str = "topology.kubernetes.io/zone";
const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";

pub(super) fn node(scope: &mut Scope<'_>, root: &Field<'_>, key: ObjectKey) -> Option<Fact> {
    let mut node = Node::default();
    let mut external = Vec::new();
    if let Some(status) = root.get("status") {
        let addresses = status.get("addresses");
        for entry in scope.list(addresses.as_ref()) {
            let sort = scope.text(entry.get("type"));
            let into = match sort {
                Some("InternalIP") => &mut node.addresses,
                Some("ExternalIP") => &mut external,
                Some(_) | None => continue,
            };
            let address = scope.take(entry.require("address", "must be an IP address"));
            into.extend(address.and_then(|field| node_address(scope, &field)));
        }
    }
    node.addresses.append(&mut external);
    if let Some(spec) = root.get("spec") {
        let many = spec.get("podCIDRs");
        for field in scope.list(many.as_ref()) {
            node.pod_cidrs.extend(scope.net(&field));
        }
        if let (true, Some(one)) = (node.pod_cidrs.is_empty(), spec.get("podCIDR")) {
            node.pod_cidrs.extend(scope.net(&one));
        }
        let taints = spec.get("taints");
        let taints = scope.list(taints.as_ref());
        node.leaving = taints.iter().any(|taint| {
            taint.node().get("key").and_then(|key| key.text()) == Some(AUTOSCALER_TAINT)
        });
    }
    let zone = scope.label(root, "labels", ZONE);
    node.zone = zone.map(|zone| scope.names.intern(zone));
    let deleted = root
        .node()
        .get("metadata")
        .and_then(|m| m.get("deletionTimestamp"));
    node.leaving |= deleted.is_some_and(|stamp| !stamp.is_null());
    Some(Fact::Node(key.name, Some(Box::new(node))))
}

/// A Node's address may be of any sort, also link-local.
fn node_address(scope: &mut Scope<'_>, field: &Field<'_>) -> Option<IpAddr> {
    let text = scope.take(field.text())?;
    let ip = parse_ip(text);
    if ip.is_none() {
        scope.complain(
            field,
            "must be an IP address such as 192.0.2.1 or 2001:db8::1",
        );
    }
    ip
}

pub(super) fn cidrs(scope: &mut Scope<'_>, root: &Field<'_>, key: ObjectKey) -> Option<Fact> {
    let spec = scope.take(root.require("spec", "must hold cidrs"))?;
    let list =
        scope.take(spec.require("cidrs", "must list one range, or one of each IP family"))?;
    let fields = scope.list(Some(&list));
    let nets = fields.iter().filter_map(|field| scope.net(field)).collect();
    Some(Fact::Cidrs(key.name, Some(nets)))
}
