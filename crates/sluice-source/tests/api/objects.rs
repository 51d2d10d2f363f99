//! Objects of the API in both of its encodings, written by others: protobuf by `prost`
//! from the published definitions, JSON by `serde_json`.

use k8s_pb::api::core::v1 as core;
use k8s_pb::api::discovery::v1 as discovery;
use k8s_pb::api::networking::v1 as networking;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_pb::apimachinery::pkg::runtime;
use prost::Message;
use serde_json::{Map, Value, json};
use sluice_source::api::Resource;

/// An object of any kind that is followed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Object {
    Service(core::Service),
    Slice(discovery::EndpointSlice),
    Endpoints(core::Endpoints),
    Node(core::Node),
    Cidr(networking::ServiceCIDR),
}

impl Object {
    pub(crate) fn resource(&self) -> Resource {
        match self {
            Object::Service(_) => Resource::Services,
            Object::Slice(_) => Resource::Slices,
            Object::Endpoints(_) => Resource::Endpoints,
            Object::Node(_) => Resource::Node,
            Object::Cidr(_) => Resource::Cidrs,
        }
    }

    pub(crate) fn meta(&mut self) -> &mut meta::ObjectMeta {
        let metadata = match self {
            Object::Service(object) => &mut object.metadata,
            Object::Slice(object) => &mut object.metadata,
            Object::Endpoints(object) => &mut object.metadata,
            Object::Node(object) => &mut object.metadata,
            Object::Cidr(object) => &mut object.metadata,
        };
        metadata.get_or_insert_default()
    }

    pub(crate) fn at_version(mut self, version: u64) -> Object {
        self.meta().resource_version = Some(version.to_string());
        self
    }

    pub(crate) fn bare(&self) -> Vec<u8> {
        match self {
            Object::Service(object) => object.encode_to_vec(),
            Object::Slice(object) => object.encode_to_vec(),
            Object::Endpoints(object) => object.encode_to_vec(),
            Object::Node(object) => object.encode_to_vec(),
            Object::Cidr(object) => object.encode_to_vec(),
        }
    }

    /// In the envelope that every body has.
    pub(crate) fn protobuf(&self) -> Vec<u8> {
        envelope(self.resource().kind(), self.bare())
    }

    pub(crate) fn json(&self) -> Value {
        let mut value = match self {
            Object::Service(object) => service_json(object),
            Object::Slice(object) => slice_json(object),
            Object::Endpoints(object) => endpoints_json(object),
            Object::Node(object) => node_json(object),
            Object::Cidr(object) => json!({
                "spec": {"cidrs": object.spec.as_ref().map(|spec| spec.cidrs.clone())}
            }),
        };
        value["kind"] = self.resource().kind().into();
        value["apiVersion"] = "v1".into();
        value["metadata"] = meta_json(self.clone().meta());
        value
    }
}

pub(crate) fn envelope(kind: &str, raw: Vec<u8>) -> Vec<u8> {
    let unknown = runtime::Unknown {
        type_meta: Some(runtime::TypeMeta {
            api_version: Some("v1".into()),
            kind: Some(kind.into()),
        }),
        raw: Some(raw),
        content_encoding: Some(String::new()),
        content_type: Some(String::new()),
    };
    let mut bytes = b"k8s\0".to_vec();
    bytes.extend(unknown.encode_to_vec());
    bytes
}

/// A page of a list in protobuf.
pub(crate) fn list_protobuf(
    resource: Resource,
    objects: &[Object],
    version: u64,
    rest: &str,
) -> Vec<u8> {
    let metadata = meta::ListMeta {
        resource_version: Some(version.to_string()),
        r#continue: Some(rest.into()),
        ..Default::default()
    };
    // Every list has its metadata as field 1 and its items as field 2.
    let mut raw = core::ServiceList {
        metadata: Some(metadata),
        items: Vec::new(),
    }
    .encode_to_vec();
    for object in objects {
        let bytes = object.bare();
        prost::encoding::bytes::encode(2, &bytes, &mut raw);
    }
    envelope(&format!("{}List", resource.kind()), raw)
}

pub(crate) fn list_json(resource: Resource, objects: &[Object], version: u64, rest: &str) -> Value {
    let items: Vec<Value> = objects
        .iter()
        .map(|object| {
            let mut item = object.json();
            let fields = item.as_object_mut().expect("an object");
            fields.remove("kind");
            fields.remove("apiVersion");
            item
        })
        .collect();
    json!({
        "kind": format!("{}List", resource.kind()),
        "apiVersion": "v1",
        "metadata": {"resourceVersion": version.to_string(), "continue": rest},
        "items": items,
    })
}

/// A watch event in protobuf, without the length before it. `object` is in its envelope.
pub(crate) fn event_protobuf(sort: &str, object: Vec<u8>) -> Vec<u8> {
    meta::WatchEvent {
        r#type: Some(sort.into()),
        object: Some(runtime::RawExtension { raw: Some(object) }),
    }
    .encode_to_vec()
}

pub(crate) fn event_json(sort: &str, object: &Value) -> Value {
    json!({"type": sort, "object": object})
}

pub(crate) fn status_protobuf(code: u16, reason: &str, message: &str) -> Vec<u8> {
    let status = meta::Status {
        status: Some("Failure".into()),
        code: Some(i32::from(code)),
        reason: Some(reason.into()),
        message: Some(message.into()),
        ..Default::default()
    };
    envelope("Status", status.encode_to_vec())
}

pub(crate) fn status_json(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    })
}

/// A bookmark's object.
pub(crate) fn bookmark(resource: Resource, version: u64, complete: bool) -> Object {
    let mut object = match resource {
        Resource::Services => Object::Service(Default::default()),
        Resource::Slices => Object::Slice(Default::default()),
        Resource::Endpoints => Object::Endpoints(Default::default()),
        Resource::Node => Object::Node(Default::default()),
        Resource::Cidrs | Resource::CidrsBeta => Object::Cidr(Default::default()),
    };
    if complete {
        let mark = ("k8s.io/initial-events-end".to_owned(), "true".to_owned());
        object.meta().annotations.extend([mark]);
    }
    object.at_version(version)
}

/// Go leaves out what is empty where the field says so, and writes null for nil lists elsewhere.
fn pruned(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, pruned(value)));
            Value::Object(
                fields
                    .filter(|(_, value)| !value.is_null())
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(pruned).collect()),
        other => other,
    }
}

fn meta_json(meta: &meta::ObjectMeta) -> Value {
    let time = |time: &Option<meta::Time>| time.as_ref().and_then(|t| t.seconds).map(rfc3339);
    let mut value = pruned(json!({
        "name": meta.name, "namespace": meta.namespace,
        "resourceVersion": meta.resource_version, "labels": meta.labels,
        "annotations": meta.annotations, "uid": meta.uid,
        "deletionTimestamp": time(&meta.deletion_timestamp),
    }));
    value["creationTimestamp"] = time(&meta.creation_timestamp).into();
    value
}

/// Unix seconds as the API writes them. Days are counted by months, not by formula.
fn rfc3339(seconds: i64) -> String {
    let (mut days, clock) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + i64::from(leap(year)) {
        days -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [
        31,
        28 + i64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    let (month, day) = (month + 1, days + 1);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn service_json(object: &core::Service) -> Value {
    let spec = object.spec.clone().unwrap_or_default();
    let ports: Vec<Value> = spec
        .ports
        .iter()
        .map(|p| {
            json!({"name": p.name, "protocol": p.protocol, "port": p.port,
            "nodePort": p.node_port, "targetPort": 8080})
        })
        .collect();
    let seconds = spec
        .session_affinity_config
        .and_then(|config| config.client_ip);
    let seconds =
        seconds.map(|client| json!({"clientIP": {"timeoutSeconds": client.timeout_seconds}}));
    let ingress = object
        .status
        .clone()
        .and_then(|status| status.load_balancer);
    let ingress: Vec<Value> = ingress
        .map(|balancer| balancer.ingress)
        .unwrap_or_default()
        .iter()
        .map(|entry| json!({"ip": entry.ip, "hostname": entry.hostname, "ipMode": entry.ip_mode}))
        .collect();
    pruned(json!({
        "spec": {
            "ports": ports, "clusterIP": spec.cluster_ip, "clusterIPs": spec.cluster_ips,
            "type": spec.r#type, "externalIPs": spec.external_ips,
            "sessionAffinity": spec.session_affinity,
            "loadBalancerSourceRanges": spec.load_balancer_source_ranges,
            "externalTrafficPolicy": spec.external_traffic_policy,
            "healthCheckNodePort": spec.health_check_node_port,
            "sessionAffinityConfig": seconds, "ipFamilies": spec.ip_families,
            "internalTrafficPolicy": spec.internal_traffic_policy, "selector": spec.selector,
        },
        "status": {"loadBalancer": {"ingress": ingress}},
    }))
}

fn slice_json(object: &discovery::EndpointSlice) -> Value {
    let named = |names: Vec<Option<String>>| -> Vec<Value> {
        names
            .into_iter()
            .map(|name| json!({"name": name}))
            .collect()
    };
    let endpoints: Vec<Value> =
        object
            .endpoints
            .iter()
            .map(|e| {
                let conditions = e.conditions.unwrap_or_default();
                let hints = e.hints.clone().map(|hints| json!({
                "forZones": named(hints.for_zones.into_iter().map(|zone| zone.name).collect()),
                "forNodes": named(hints.for_nodes.into_iter().map(|node| node.name).collect()),
            }));
                json!({
                    "addresses": e.addresses, "nodeName": e.node_name, "hints": hints,
                    "zone": e.zone,
                    "conditions": {"ready": conditions.ready, "serving": conditions.serving,
                        "terminating": conditions.terminating},
                })
            })
            .collect();
    let ports: Vec<Value> = object
        .ports
        .iter()
        .map(|p| json!({"name": p.name, "protocol": p.protocol, "port": p.port}))
        .collect();
    let mut value = pruned(json!({"addressType": object.address_type, "ports": ports}));
    value["endpoints"] = match endpoints.is_empty() {
        true => Value::Null,
        false => pruned(endpoints.into()),
    };
    value
}

fn endpoints_json(object: &core::Endpoints) -> Value {
    let addresses = |list: &[core::EndpointAddress]| -> Vec<Value> {
        let entry = |a: &core::EndpointAddress| json!({"ip": a.ip, "nodeName": a.node_name});
        list.iter().map(entry).collect()
    };
    let subsets: Vec<Value> = object
        .subsets
        .iter()
        .map(|subset| {
            let ports: Vec<Value> = subset
                .ports
                .iter()
                .map(|p| json!({"name": p.name, "port": p.port, "protocol": p.protocol}))
                .collect();
            json!({
                "addresses": addresses(&subset.addresses),
                "notReadyAddresses": addresses(&subset.not_ready_addresses), "ports": ports,
            })
        })
        .collect();
    pruned(json!({"subsets": subsets}))
}

fn node_json(object: &core::Node) -> Value {
    let spec = object.spec.clone().unwrap_or_default();
    let status = object.status.clone().unwrap_or_default();
    let taints: Vec<Value> = spec
        .taints
        .iter()
        .map(|taint| json!({"key": taint.key}))
        .collect();
    let addresses: Vec<Value> = status
        .addresses
        .iter()
        .map(|a| json!({"type": a.r#type, "address": a.address}))
        .collect();
    pruned(json!({
        "spec": {"podCIDR": spec.pod_cidr, "podCIDRs": spec.pod_cid_rs, "taints": taints},
        "status": {"addresses": addresses},
    }))
}
