//! EndpointSlice and Endpoints.

use sluice_model::fact::{Conditions, Endpoint, Fact, Family, Hints, Protocol, Slice, SlicePort};
use sluice_model::name::{Name, ObjectKey};

use super::Scope;
use crate::object::{self, HEADLESS, SERVICE_NAME, TRIGGER_TIME};
use crate::time::parse_rfc3339_nanos;
use crate::yaml::Field;

pub(super) fn slice(scope: &mut Scope<'_>, root: &Field<'_>, key: ObjectKey) -> Option<Fact> {
    let service = scope.label(root, "labels", SERVICE_NAME);
    let service = service.map(|name| scope.names.intern(name));
    if service.is_none() {
        let why = "belongs to no service: give it the label kubernetes.io/service-name";
        scope.complaints.push(crate::yaml::Complaint {
            place: root.place(),
            field: "metadata.labels".into(),
            value: "incomplete".into(),
            why: why.into(),
        });
    }
    let family = address_type(scope, root)?;
    let mut slice = Slice {
        service,
        headless: scope.label(root, "labels", HEADLESS).is_some(),
        family,
        triggered: trigger(scope, root),
        ports: ports(scope, root.get("ports").as_ref()),
        ..Slice::default()
    };
    if let Some(family) = family {
        let list = root.get("endpoints");
        for field in scope.list(list.as_ref()) {
            slice.endpoints.extend(endpoint(scope, &field, family));
        }
    }
    Some(Fact::Slice(key, Some(Box::new(slice))))
}

/// The family, `None` within for FQDN; nothing where the slice says something else, since its
/// addresses cannot be judged then.
fn address_type(scope: &mut Scope<'_>, root: &Field<'_>) -> Option<Option<Family>> {
    let why = "must be IPv4, IPv6 or FQDN";
    let field = scope.take(root.require("addressType", why))?;
    scope.mean(&field, object::address_type)
}

fn trigger(scope: &mut Scope<'_>, root: &Field<'_>) -> Option<i64> {
    scope
        .label(root, "annotations", TRIGGER_TIME)
        .and_then(parse_rfc3339_nanos)
}

/// Ports of a slice or subset. The API server fills in an empty name and TCP; two ports of one
/// name it refuses.
fn ports(scope: &mut Scope<'_>, list: Option<&Field<'_>>) -> Vec<SlicePort> {
    let mut ports: Vec<SlicePort> = Vec::new();
    for field in scope.list(list) {
        let name_field = field.get("name");
        let Some(name) = scope
            .text(name_field)
            .or(name_field.is_none().then_some(""))
        else {
            continue;
        };
        let name = scope.names.intern(name);
        let Some(protocol) = protocol(scope, &field) else {
            continue;
        };
        let port = match field.get("port") {
            None => None,
            Some(field) => match scope.port(field) {
                None => continue,
                port => port,
            },
        };
        if ports.iter().any(|port| port.name.as_ref() == Some(&name)) {
            scope.complain(
                &field,
                format!("has the name {name:?} of a port before it: names must differ"),
            );
            continue;
        }
        ports.push(SlicePort {
            name: Some(name),
            protocol,
            port,
        });
    }
    ports
}

/// The protocol, TCP where missing.
pub(super) fn protocol(scope: &mut Scope<'_>, port: &Field<'_>) -> Option<Protocol> {
    let Some(field) = port.get("protocol") else {
        return Some(Protocol::Tcp);
    };
    scope.mean(&field, object::protocol)
}

fn endpoint(scope: &mut Scope<'_>, field: &Field<'_>, family: Family) -> Option<Endpoint> {
    let why = "must hold the endpoint's address";
    let addresses = scope.take(field.require("addresses", why))?;
    // Further addresses have no meaning.
    let Some(first) = scope.list(Some(&addresses)).into_iter().next() else {
        scope.complain(field, why);
        return None;
    };
    let ip = scope.address(&first)?;
    if Family::of(ip) != family {
        let why = format!("must be {family}, as addressType says: use another slice for it");
        scope.complain(&first, why);
        return None;
    }
    let mut conditions = [None; 3];
    if let Some(given) = field.get("conditions") {
        for (slot, key) in conditions
            .iter_mut()
            .zip(["ready", "serving", "terminating"])
        {
            *slot = given.get(key).and_then(|field| scope.take(field.flag()));
        }
    }
    let [ready, serving, terminating] = conditions;
    Some(Endpoint {
        ip,
        conditions: Conditions::new(ready, serving, terminating),
        node: scope.name(field.get("nodeName")),
        hints: field
            .get("hints")
            .map(|field| Box::new(hints(scope, &field))),
    })
}

fn hints(scope: &mut Scope<'_>, field: &Field<'_>) -> Hints {
    let mut named = |key| -> Vec<Name> {
        let list = field.get(key);
        let entries = scope.list(list.as_ref());
        entries
            .iter()
            .filter_map(|entry| scope.name(entry.get("name")))
            .collect()
    };
    Hints {
        zones: named("forZones"),
        nodes: named("forNodes"),
    }
}

/// An Endpoints object: one slice per subset and family.
pub(super) fn endpoints(scope: &mut Scope<'_>, root: &Field<'_>, key: ObjectKey) -> Option<Fact> {
    let triggered = trigger(scope, root);
    let headless = scope.label(root, "labels", HEADLESS).is_some();
    let mut slices = Vec::new();
    let list = root.get("subsets");
    for subset in scope.list(list.as_ref()) {
        let ports = ports(scope, subset.get("ports").as_ref());
        let mut found = Vec::new();
        for (list, ready) in [("addresses", true), ("notReadyAddresses", false)] {
            let list = subset.get(list);
            for field in scope.list(list.as_ref()) {
                found.extend(old_endpoint(scope, &field, ready.then_some(true)));
            }
        }
        for family in Family::ALL {
            let of_family = |endpoint: &&Endpoint| Family::of(endpoint.ip) == family;
            let endpoints: Vec<Endpoint> = found.iter().filter(of_family).cloned().collect();
            if !endpoints.is_empty() {
                slices.push(Slice {
                    service: Some(key.name.clone()),
                    headless,
                    family: Some(family),
                    ports: ports.clone(),
                    endpoints,
                    triggered,
                    problems: Vec::new(),
                });
            }
        }
    }
    Some(Fact::Endpoints(key, Some(slices)))
}

/// An address of a subset. One that is not ready is not serving either: the old object cannot
/// tell one that is being terminated from one that never came up.
fn old_endpoint(scope: &mut Scope<'_>, field: &Field<'_>, ready: Option<bool>) -> Option<Endpoint> {
    let address = scope.take(field.require("ip", "must hold the endpoint's address"))?;
    let ip = scope.address(&address)?;
    let ready = ready.unwrap_or(false);
    Some(Endpoint {
        ip,
        conditions: Conditions::new(Some(ready), Some(ready), None),
        node: scope.name(field.get("nodeName")),
        hints: None,
    })
}
