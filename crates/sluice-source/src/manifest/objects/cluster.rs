//! Node and ServiceCIDR.

use sluice_model::fact::{Fact, Node};
use sluice_model::name::ObjectKey;

use super::Scope;
use crate::object::{AUTOSCALER_TAINT, ZONE, any_address};
use crate::yaml::Field;

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
            into.extend(address.and_then(|field| scope.mean(&field, any_address)));
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

pub(super) fn cidrs(scope: &mut Scope<'_>, root: &Field<'_>, key: ObjectKey) -> Option<Fact> {
    let spec = scope.take(root.require("spec", "must hold cidrs"))?;
    let list =
        scope.take(spec.require("cidrs", "must list one range, or one of each IP family"))?;
    let fields = scope.list(Some(&list));
    let nets = fields.iter().filter_map(|field| scope.net(field)).collect();
    Some(Fact::Cidrs(key.name, Some(nets)))
}
