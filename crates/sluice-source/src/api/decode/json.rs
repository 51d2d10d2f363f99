//! The same objects in JSON: the fallback where a server, or a proxy before it, has no protobuf.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;
use sluice_model::fact::{Fact, Hints};
use sluice_model::name::Names;

use super::proto::bookmark;
use super::wire::{Fault, WireError};
use super::{Change, DecodeError, Event, Page, Resource, Status, Version, gone, key};
use crate::object::draft::{
    EndpointDraft, EndpointsDraft, Meta, NodeDraft, PortDraft, Readiness, ServiceDraft, SliceDraft,
    SubsetDraft, cidr,
};
use crate::time::parse_rfc3339_seconds;

/// Text that is borrowed where it has no escapes. Null is the same as empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Str<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrVisitor)
    }
}

struct StrVisitor;

impl<'de> Visitor<'de> for StrVisitor {
    type Value = Str<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Str<'de>, E> {
        Ok(Str(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Str<'de>, E> {
        Ok(Str(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Str<'de>, E> {
        Ok(Str::default())
    }
}

/// Go writes lists and maps that were never made as null.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Structs of the API: what is missing or null is empty, what is unknown is skipped.
macro_rules! shapes {
    ($($(#[$doc:meta])* struct $name:ident {
        $($(#[$at:meta])* $field:ident : $kind:ty),* $(,)?
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Default, serde::Deserialize)]
            #[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
            struct $name<'a> {
                $($(#[$at])* #[serde(deserialize_with = "nullable")] $field: $kind,)*
                #[serde(skip)]
                life: std::marker::PhantomData<&'a ()>,
            }
        )*
    };
}

shapes! {
    struct ListShape { kind: Str<'a>, metadata: ListMeta<'a>, items: Vec<&'a RawValue> }
    struct ListMeta { resource_version: Str<'a>, r#continue: Str<'a> }
    struct EventShape { r#type: Str<'a>, object: Option<&'a RawValue> }
    struct ObjectMeta {
        name: Str<'a>,
        namespace: Str<'a>,
        resource_version: Str<'a>,
        creation_timestamp: Str<'a>,
        deletion_timestamp: Str<'a>,
        labels: HashMap<Str<'a>, Str<'a>>,
        annotations: HashMap<Str<'a>, Str<'a>>,
    }
    /// Enough of any object to say which one it is.
    struct AnyShape { kind: Str<'a>, metadata: ObjectMeta<'a> }
    struct StatusShape {
        kind: Str<'a>,
        code: i64,
        reason: Str<'a>,
        message: Str<'a>,
        details: Details<'a>,
    }
    struct Details { retry_after_seconds: i64, causes: Vec<Cause<'a>> }
    struct Cause { reason: Str<'a> }
    struct ServiceShape { spec: ServiceSpec<'a>, status: ServiceStatus<'a> }
    struct ServiceSpec {
        ports: Vec<Port<'a>>,
        #[serde(rename = "clusterIP")]
        cluster_ip: Str<'a>,
        #[serde(rename = "clusterIPs")]
        cluster_ips: Vec<Str<'a>>,
        r#type: Str<'a>,
        #[serde(rename = "externalIPs")]
        external_ips: Vec<Str<'a>>,
        session_affinity: Str<'a>,
        load_balancer_source_ranges: Vec<Str<'a>>,
        external_traffic_policy: Str<'a>,
        health_check_node_port: i64,
        session_affinity_config: AffinityConfig<'a>,
        ip_families: Vec<Str<'a>>,
        internal_traffic_policy: Str<'a>,
    }
    struct AffinityConfig { #[serde(rename = "clientIP")] client_ip: ClientIp<'a> }
    struct ClientIp { timeout_seconds: Option<i64> }
    /// A port of a Service, EndpointSlice or Endpoints.
    struct Port { name: Option<Str<'a>>, protocol: Str<'a>, port: Option<i64>, node_port: i64 }
    struct ServiceStatus { load_balancer: LoadBalancer<'a> }
    struct LoadBalancer { ingress: Vec<Ingress<'a>> }
    struct Ingress { ip: Str<'a>, ip_mode: Str<'a> }
    struct SliceShape { address_type: Str<'a>, endpoints: Vec<Endpoint<'a>>, ports: Vec<Port<'a>> }
    struct Endpoint {
        addresses: Vec<Str<'a>>,
        conditions: Conditions<'a>,
        node_name: Option<Str<'a>>,
        hints: Option<HintsShape<'a>>,
    }
    struct Conditions { ready: Option<bool>, serving: Option<bool>, terminating: Option<bool> }
    struct HintsShape { for_zones: Vec<Hint<'a>>, for_nodes: Vec<Hint<'a>> }
    struct Hint { name: Str<'a> }
    struct EndpointsShape { subsets: Vec<Subset<'a>> }
    struct Subset {
        addresses: Vec<Address<'a>>,
        not_ready_addresses: Vec<Address<'a>>,
        ports: Vec<Port<'a>>,
    }
    struct Address { ip: Str<'a>, node_name: Option<Str<'a>> }
    struct NodeShape { spec: NodeSpec<'a>, status: NodeStatus<'a> }
    struct NodeSpec {
        #[serde(rename = "podCIDR")]
        pod_cidr: Str<'a>,
        #[serde(rename = "podCIDRs")]
        pod_cidrs: Vec<Str<'a>>,
        taints: Vec<Taint<'a>>,
    }
    struct Taint { key: Str<'a> }
    struct NodeStatus { addresses: Vec<NodeAddress<'a>> }
    struct NodeAddress { r#type: Str<'a>, address: Str<'a> }
    struct CidrShape { spec: CidrSpec<'a> }
    struct CidrSpec { cidrs: Vec<Str<'a>> }
}

impl<'a> ObjectMeta<'a> {
    fn finish(self) -> Meta<'a> {
        let mut meta = Meta::default();
        meta.name = self.name.0;
        meta.namespace = self.namespace.0;
        meta.version = self.resource_version.0;
        meta.created = parse_rfc3339_seconds(&self.creation_timestamp.0);
        meta.deleted = !self.deletion_timestamp.0.is_empty();
        for (key, value) in self.labels {
            meta.label(&key.0, value.0);
        }
        for (key, value) in &self.annotations {
            meta.annotation(&key.0, &value.0);
        }
        meta
    }
}

impl<'a> Port<'a> {
    fn draft(self) -> PortDraft<'a> {
        PortDraft {
            name: self.name.map(|name| name.0),
            protocol: self.protocol.0,
            port: self.port,
            node_port: self.node_port,
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(
    text: &'a [u8],
    field: &'static str,
    start: usize,
) -> Result<T, WireError> {
    serde_json::from_slice(text).map_err(|error| {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let before: usize = lines
            .take(error.line().saturating_sub(1))
            .map(<[u8]>::len)
            .sum();
        WireError {
            field,
            offset: start + before + error.column(),
            fault: Fault::NotJson,
        }
    })
}

/// Where a part of a body starts in it.
fn offset_in(body: &[u8], part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(body.as_ptr() as usize)
}

pub(super) fn page(
    resource: Resource,
    body: &[u8],
    names: &mut Names,
    facts: &mut Vec<Fact>,
) -> Result<Page, DecodeError> {
    let of_list = |error| DecodeError::of(resource, &Meta::default(), error);
    let list: ListShape<'_> = parse(body, "list", 0).map_err(of_list)?;
    if list.kind.0.strip_suffix("List") != Some(resource.kind()) {
        return Err(of_list(WireError {
            field: "kind",
            offset: 0,
            fault: Fault::OtherKind,
        }));
    }
    for item in &list.items {
        let (text, offset) = (item.get(), offset_in(body, item.get()));
        let item: AnyShape<'_> = parse(text.as_bytes(), "items", offset).map_err(of_list)?;
        let meta = item.metadata.finish();
        let fact = object(resource, text, offset, Change::Set, (&meta, names));
        facts.push(fact.map_err(|error| DecodeError::of(resource, &meta, error))?);
    }
    let rest = list.metadata.r#continue.0;
    Ok(Page {
        version: Version::new(&list.metadata.resource_version.0),
        rest: (!rest.is_empty()).then(|| rest.into_owned()),
    })
}

pub(super) fn event(
    resource: Resource,
    frame: &[u8],
    names: &mut Names,
) -> Result<Option<Event>, DecodeError> {
    let of_frame = |error| DecodeError::of(resource, &Meta::default(), error);
    let event: EventShape<'_> = parse(frame, "event", 0).map_err(of_frame)?;
    let change = match &*event.r#type.0 {
        "ADDED" | "MODIFIED" | "BOOKMARK" => Change::Set,
        "DELETED" => Change::Gone,
        "ERROR" => {
            let text = event.object.map_or("{}", RawValue::get);
            let status: StatusShape<'_> = parse(text.as_bytes(), "status", 0).map_err(of_frame)?;
            return Ok(Some(Event::Error(status.finish())));
        }
        _ => return Ok(None),
    };
    let Some(text) = event.object.map(RawValue::get) else {
        return Err(of_frame(WireError {
            field: "event.object",
            offset: 0,
            fault: Fault::Missing,
        }));
    };
    let offset = offset_in(frame, text);
    let item: AnyShape<'_> = parse(text.as_bytes(), "event.object", offset).map_err(of_frame)?;
    let meta = item.metadata.finish();
    if event.r#type.0 == "BOOKMARK" {
        return Ok(Some(bookmark(&meta)));
    }
    if item.kind.0 != resource.kind() {
        return Err(of_frame(WireError {
            field: "kind",
            offset,
            fault: Fault::OtherKind,
        }));
    }
    let fact = object(resource, text, offset, change, (&meta, names));
    let fact = fact.map_err(|error| DecodeError::of(resource, &meta, error))?;
    let version = Version::new(&meta.version);
    Ok(Some(Event::Change { fact, version }))
}

fn object(
    resource: Resource,
    text: &str,
    offset: usize,
    change: Change,
    (meta, names): (&Meta<'_>, &mut Names),
) -> Result<Fact, WireError> {
    if meta.name.is_empty() {
        return Err(WireError {
            field: "metadata.name",
            offset,
            fault: Fault::Missing,
        });
    }
    if change == Change::Gone {
        return Ok(gone(resource, meta, names));
    }
    let text = text.as_bytes();
    Ok(match resource {
        Resource::Services => {
            let shape: ServiceShape<'_> = parse(text, "service", offset)?;
            let service = service(shape, meta, names);
            Fact::Service(key(meta, names), Some(Box::new(service)))
        }
        Resource::Slices => {
            let shape: SliceShape<'_> = parse(text, "slice", offset)?;
            let slice = slice(shape, names).finish(meta, names);
            Fact::Slice(key(meta, names), Some(Box::new(slice)))
        }
        Resource::Endpoints => {
            let shape: EndpointsShape<'_> = parse(text, "endpoints", offset)?;
            let key = key(meta, names);
            let slices = endpoints(shape, names).finish(meta, &key.name);
            Fact::Endpoints(key, Some(slices))
        }
        Resource::Node => {
            let shape: NodeShape<'_> = parse(text, "node", offset)?;
            let node = node(shape).finish(meta, names);
            Fact::Node(names.intern(&meta.name), Some(Box::new(node)))
        }
        Resource::Cidrs | Resource::CidrsBeta => {
            let shape: CidrShape<'_> = parse(text, "spec", offset)?;
            let mut ranges = Vec::new();
            for text in &shape.spec.cidrs {
                cidr(&mut ranges, &text.0);
            }
            Fact::Cidrs(names.intern(&meta.name), Some(ranges))
        }
    })
}

/// Fields in the order of their protobuf numbers, so that problems come in the same order.
fn service(
    shape: ServiceShape<'_>,
    meta: &Meta<'_>,
    names: &mut Names,
) -> sluice_model::fact::Service {
    let mut draft = ServiceDraft::default();
    let spec = shape.spec;
    for port in spec.ports {
        draft.port(&port.draft(), names);
    }
    draft.cluster_ip(spec.cluster_ip.0);
    draft.service_type(&spec.r#type.0);
    let ips = &spec.external_ips;
    ips.iter().for_each(|text| draft.external_ip(&text.0));
    draft.affinity(&spec.session_affinity.0);
    let ranges = &spec.load_balancer_source_ranges;
    ranges.iter().for_each(|text| draft.source_range(&text.0));
    draft.external_policy(&spec.external_traffic_policy.0);
    draft.health_check_node_port(spec.health_check_node_port);
    if let Some(seconds) = spec.session_affinity_config.client_ip.timeout_seconds {
        draft.affinity_seconds(seconds);
    }
    spec.cluster_ips
        .iter()
        .for_each(|text| draft.cluster_ips(&text.0));
    spec.ip_families
        .iter()
        .for_each(|text| draft.family(&text.0));
    draft.internal_policy(&spec.internal_traffic_policy.0);
    for entry in &shape.status.load_balancer.ingress {
        draft.ingress(&entry.ip.0, &entry.ip_mode.0);
    }
    draft.finish(meta)
}

fn slice(shape: SliceShape<'_>, names: &mut Names) -> SliceDraft {
    let mut draft = SliceDraft::new(&shape.address_type.0);
    for endpoint in shape.endpoints {
        let hints = endpoint.hints.map(|hints| {
            let mut named =
                |list: Vec<Hint<'_>>| list.iter().map(|hint| names.intern(&hint.name.0)).collect();
            Box::new(Hints {
                zones: named(hints.for_zones),
                nodes: named(hints.for_nodes),
            })
        });
        let read = EndpointDraft {
            address: endpoint.addresses.into_iter().next().map(|text| text.0),
            ready: endpoint.conditions.ready,
            serving: endpoint.conditions.serving,
            terminating: endpoint.conditions.terminating,
            node: endpoint.node_name.map(|name| name.0),
            hints,
        };
        draft.endpoint(read, names);
    }
    for port in shape.ports {
        draft.port(&port.draft(), names);
    }
    draft
}

fn endpoints(shape: EndpointsShape<'_>, names: &mut Names) -> EndpointsDraft {
    let mut draft = EndpointsDraft::default();
    for subset in shape.subsets {
        let mut read = SubsetDraft::default();
        let lists = [
            (subset.addresses, Readiness::Ready),
            (subset.not_ready_addresses, Readiness::NotReady),
        ];
        for (list, readiness) in lists {
            for address in list {
                let node = address.node_name.map(|name| name.0);
                read.address(&address.ip.0, node, readiness, names);
            }
        }
        for port in subset.ports {
            read.port(&port.draft(), names);
        }
        draft.subset(read);
    }
    draft
}

fn node(shape: NodeShape<'_>) -> NodeDraft<'_> {
    let mut draft = NodeDraft::default();
    draft.pod_cidr(shape.spec.pod_cidr.0);
    shape
        .spec
        .taints
        .iter()
        .for_each(|taint| draft.taint(&taint.key.0));
    shape
        .spec
        .pod_cidrs
        .iter()
        .for_each(|text| draft.pod_cidrs(&text.0));
    for entry in &shape.status.addresses {
        draft.address(&entry.r#type.0, &entry.address.0);
    }
    draft
}

pub(super) fn status(body: &[u8]) -> Option<Status> {
    let status: StatusShape<'_> = parse(body, "status", 0).ok()?;
    (status.kind.0 == "Status").then(|| status.finish())
}

impl StatusShape<'_> {
    fn finish(self) -> Status {
        let causes = self.details.causes.into_iter();
        Status {
            code: u16::try_from(self.code).unwrap_or(0),
            reason: self.reason.0.into_owned(),
            message: self.message.0.into_owned(),
            retry_after: u32::try_from(self.details.retry_after_seconds)
                .ok()
                .filter(|seconds| *seconds > 0),
            causes: causes.map(|cause| cause.reason.0.into_owned()).collect(),
        }
    }
}
