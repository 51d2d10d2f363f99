//! The objects themselves in protobuf: from fields to drafts.
//!
//! Field numbers are those of the API's published `generated.proto` files (core/v1,
//! discovery/v1, networking/v1, meta/v1).

use sluice_model::fact::{Fact, Hints};
use sluice_model::name::{Name, Names};

use super::wire::{Field, Message, Wire};
use super::{Resource, key};
use crate::object::draft::{
    EndpointDraft, EndpointsDraft, Meta, NodeDraft, PortDraft, Readiness, ServiceDraft, SliceDraft,
    SubsetDraft, Text, cidr,
};

/// ObjectMeta, field 1 of every object.
pub(super) fn metadata<'a>(mut object: Message<'a>, meta: &mut Meta<'a>) -> Wire<()> {
    while let Some(field) = object.next()? {
        if field.number == 1 {
            return object_meta(field.message("metadata")?, meta);
        }
    }
    Ok(())
}

fn object_meta<'a>(mut message: Message<'a>, meta: &mut Meta<'a>) -> Wire<()> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => meta.name = field.shared("metadata.name")?,
            3 => meta.namespace = field.shared("metadata.namespace")?,
            6 => meta.version = field.shared("metadata.resourceVersion")?,
            8 => meta.created = seconds(field.message("metadata.creationTimestamp")?)?,
            9 => meta.deleted = true,
            11 => {
                let (key, value) = entry(field.message("metadata.labels")?)?;
                meta.label(&key, value);
            }
            12 => {
                let (key, value) = entry(field.message("metadata.annotations")?)?;
                meta.annotation(&key, &value);
            }
            _ => {}
        }
    }
    Ok(())
}

/// A Time as Unix seconds. A server that means "no time" sends the empty message.
fn seconds(mut message: Message<'_>) -> Wire<Option<i64>> {
    let mut seconds = None;
    while let Some(field) = message.next()? {
        if field.number == 1 {
            seconds = Some(field.number("seconds")?);
        }
    }
    Ok(seconds)
}

/// An entry of a map. The server does not check what annotations say, and one object with odd
/// bytes in them must not keep all others from being read.
fn entry<'a>(mut message: Message<'a>) -> Wire<(Text<'a>, Text<'a>)> {
    let mut pair: (&[u8], &[u8]) = (&[], &[]);
    while let Some(field) = message.next()? {
        match field.number {
            1 => pair.0 = field.bytes("metadata map key")?,
            2 => pair.1 = field.bytes("metadata map value")?,
            _ => {}
        }
    }
    Ok((
        String::from_utf8_lossy(pair.0),
        String::from_utf8_lossy(pair.1),
    ))
}

/// The fact that an object states.
pub(super) fn fact(
    resource: Resource,
    object: Message<'_>,
    meta: &Meta<'_>,
    names: &mut Names,
) -> Wire<Fact> {
    Ok(match resource {
        Resource::Services => {
            let service = service(object, meta, names)?;
            Fact::Service(key(meta, names), Some(Box::new(service)))
        }
        Resource::Slices => {
            let slice = slice(object, names)?.finish(meta, names);
            Fact::Slice(key(meta, names), Some(Box::new(slice)))
        }
        Resource::Endpoints => {
            let key = key(meta, names);
            let slices = endpoints(object, names)?.finish(meta, &key.name);
            Fact::Endpoints(key, Some(slices))
        }
        Resource::Node => {
            let node = node(object)?.finish(meta, names);
            Fact::Node(names.intern(&meta.name), Some(Box::new(node)))
        }
        Resource::Cidrs | Resource::CidrsBeta => {
            Fact::Cidrs(names.intern(&meta.name), Some(cidrs(object)?))
        }
    })
}

fn service(
    mut object: Message<'_>,
    meta: &Meta<'_>,
    names: &mut Names,
) -> Wire<sluice_model::fact::Service> {
    let mut draft = ServiceDraft::default();
    while let Some(field) = object.next()? {
        match field.number {
            2 => service_spec(field.message("spec")?, &mut draft, names)?,
            3 => service_status(field.message("status")?, &mut draft)?,
            _ => {}
        }
    }
    Ok(draft.finish(meta))
}

fn service_spec<'a>(
    mut spec: Message<'a>,
    draft: &mut ServiceDraft<'a>,
    names: &mut Names,
) -> Wire<()> {
    while let Some(field) = spec.next()? {
        match field.number {
            1 => draft.port(&service_port(field.message("spec.ports")?)?, names),
            3 => draft.cluster_ip(field.shared("spec.clusterIP")?),
            4 => draft.service_type(field.text("spec.type")?),
            5 => draft.external_ip(field.text("spec.externalIPs")?),
            7 => draft.affinity(field.text("spec.sessionAffinity")?),
            9 => draft.source_range(field.text("spec.loadBalancerSourceRanges")?),
            11 => draft.external_policy(field.text("spec.externalTrafficPolicy")?),
            12 => draft.health_check_node_port(field.number("spec.healthCheckNodePort")?),
            14 => affinity_config(field.message("spec.sessionAffinityConfig")?, draft)?,
            18 => draft.cluster_ips(field.text("spec.clusterIPs")?),
            19 => draft.family(field.text("spec.ipFamilies")?),
            22 => draft.internal_policy(field.text("spec.internalTrafficPolicy")?),
            _ => {}
        }
    }
    Ok(())
}

fn affinity_config(mut config: Message<'_>, draft: &mut ServiceDraft<'_>) -> Wire<()> {
    while let Some(field) = config.next()? {
        if field.number == 1 {
            let mut client = field.message("spec.sessionAffinityConfig.clientIP")?;
            while let Some(field) = client.next()? {
                if field.number == 1 {
                    let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
                    draft.affinity_seconds(field.number(path)?);
                }
            }
        }
    }
    Ok(())
}

fn service_port<'a>(mut message: Message<'a>) -> Wire<PortDraft<'a>> {
    let mut port = PortDraft::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => port.name = Some(field.shared("spec.ports.name")?),
            2 => port.protocol = field.shared("spec.ports.protocol")?,
            3 => port.port = Some(field.number("spec.ports.port")?),
            5 => port.node_port = field.number("spec.ports.nodePort")?,
            _ => {}
        }
    }
    Ok(port)
}

fn service_status(mut status: Message<'_>, draft: &mut ServiceDraft<'_>) -> Wire<()> {
    while let Some(field) = status.next()? {
        if field.number == 1 {
            let mut balancer = field.message("status.loadBalancer")?;
            while let Some(field) = balancer.next()? {
                if field.number == 1 {
                    ingress(field.message("status.loadBalancer.ingress")?, draft)?;
                }
            }
        }
    }
    Ok(())
}

fn ingress(mut message: Message<'_>, draft: &mut ServiceDraft<'_>) -> Wire<()> {
    let (mut ip, mut mode) = ("", "");
    while let Some(field) = message.next()? {
        match field.number {
            1 => ip = field.text("status.loadBalancer.ingress.ip")?,
            3 => mode = field.text("status.loadBalancer.ingress.ipMode")?,
            _ => {}
        }
    }
    draft.ingress(ip, mode);
    Ok(())
}

/// The addressType is the last field on the wire, but nothing can be said of the endpoints
/// without it; skipping over them first costs two bytes read per endpoint.
fn slice(object: Message<'_>, names: &mut Names) -> Wire<SliceDraft> {
    let mut kind = "";
    let mut ahead = object;
    while let Some(field) = ahead.next()? {
        if field.number == 4 {
            kind = field.text("addressType")?;
        }
    }
    let mut draft = SliceDraft::new(kind);
    let mut fields = object;
    while let Some(field) = fields.next()? {
        match field.number {
            2 => draft.endpoint(endpoint(field.message("endpoints")?, names)?, names),
            3 => draft.port(&slice_port(field.message("ports")?)?, names),
            _ => {}
        }
    }
    Ok(draft)
}

fn endpoint<'a>(mut message: Message<'a>, names: &mut Names) -> Wire<EndpointDraft<'a>> {
    let mut draft = EndpointDraft::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 if draft.address.is_none() => {
                draft.address = Some(field.shared("endpoints.addresses")?);
            }
            2 => conditions(field.message("endpoints.conditions")?, &mut draft)?,
            6 => draft.node = Some(field.shared("endpoints.nodeName")?),
            8 => {
                let hints = hints(field.message("endpoints.hints")?, names)?;
                draft.hints = Some(Box::new(hints));
            }
            _ => {}
        }
    }
    Ok(draft)
}

fn conditions(mut message: Message<'_>, draft: &mut EndpointDraft<'_>) -> Wire<()> {
    while let Some(field) = message.next()? {
        match field.number {
            1 => draft.ready = Some(field.flag("endpoints.conditions.ready")?),
            2 => draft.serving = Some(field.flag("endpoints.conditions.serving")?),
            3 => draft.terminating = Some(field.flag("endpoints.conditions.terminating")?),
            _ => {}
        }
    }
    Ok(())
}

fn hints(mut message: Message<'_>, names: &mut Names) -> Wire<Hints> {
    let mut hints = Hints::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => hints.zones.extend(hint(field, names)?),
            2 => hints.nodes.extend(hint(field, names)?),
            _ => {}
        }
    }
    Ok(hints)
}

fn hint(field: Field<'_>, names: &mut Names) -> Wire<Option<Name>> {
    let mut message = field.message("endpoints.hints")?;
    let mut name = None;
    while let Some(field) = message.next()? {
        if field.number == 1 {
            name = Some(names.intern(field.text("endpoints.hints.name")?));
        }
    }
    Ok(name)
}

fn slice_port<'a>(mut message: Message<'a>) -> Wire<PortDraft<'a>> {
    let mut port = PortDraft::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => port.name = Some(field.shared("ports.name")?),
            2 => port.protocol = field.shared("ports.protocol")?,
            3 => port.port = Some(field.number("ports.port")?),
            _ => {}
        }
    }
    Ok(port)
}

fn endpoints(mut object: Message<'_>, names: &mut Names) -> Wire<EndpointsDraft> {
    let mut draft = EndpointsDraft::default();
    while let Some(field) = object.next()? {
        if field.number == 2 {
            draft.subset(subset(field.message("subsets")?, names)?);
        }
    }
    Ok(draft)
}

fn subset(mut message: Message<'_>, names: &mut Names) -> Wire<SubsetDraft> {
    let mut draft = SubsetDraft::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => address(field, Readiness::Ready, &mut draft, names)?,
            2 => address(field, Readiness::NotReady, &mut draft, names)?,
            3 => draft.port(&old_port(field.message("subsets.ports")?)?, names),
            _ => {}
        }
    }
    Ok(draft)
}

fn address(
    field: Field<'_>,
    readiness: Readiness,
    draft: &mut SubsetDraft,
    names: &mut Names,
) -> Wire<()> {
    let mut message = field.message("subsets.addresses")?;
    let (mut ip, mut node) = ("", None);
    while let Some(field) = message.next()? {
        match field.number {
            1 => ip = field.text("subsets.addresses.ip")?,
            4 => node = Some(field.shared("subsets.addresses.nodeName")?),
            _ => {}
        }
    }
    draft.address(ip, node, readiness, names);
    Ok(())
}

/// The port of an Endpoints object; number and protocol are swapped in the newer slice.
fn old_port<'a>(mut message: Message<'a>) -> Wire<PortDraft<'a>> {
    let mut port = PortDraft::default();
    while let Some(field) = message.next()? {
        match field.number {
            1 => port.name = Some(field.shared("subsets.ports.name")?),
            2 => port.port = Some(field.number("subsets.ports.port")?),
            3 => port.protocol = field.shared("subsets.ports.protocol")?,
            _ => {}
        }
    }
    Ok(port)
}

fn node<'a>(mut object: Message<'a>) -> Wire<NodeDraft<'a>> {
    let mut draft = NodeDraft::default();
    while let Some(field) = object.next()? {
        match field.number {
            2 => node_spec(field.message("spec")?, &mut draft)?,
            3 => node_status(field.message("status")?, &mut draft)?,
            _ => {}
        }
    }
    Ok(draft)
}

fn node_spec<'a>(mut spec: Message<'a>, draft: &mut NodeDraft<'a>) -> Wire<()> {
    while let Some(field) = spec.next()? {
        match field.number {
            1 => draft.pod_cidr(field.shared("spec.podCIDR")?),
            5 => {
                let mut taint = field.message("spec.taints")?;
                while let Some(field) = taint.next()? {
                    if field.number == 1 {
                        draft.taint(field.text("spec.taints.key")?);
                    }
                }
            }
            7 => draft.pod_cidrs(field.text("spec.podCIDRs")?),
            _ => {}
        }
    }
    Ok(())
}

fn node_status(mut status: Message<'_>, draft: &mut NodeDraft<'_>) -> Wire<()> {
    while let Some(field) = status.next()? {
        if field.number == 5 {
            let mut message = field.message("status.addresses")?;
            let (mut sort, mut address) = ("", "");
            while let Some(field) = message.next()? {
                match field.number {
                    1 => sort = field.text("status.addresses.type")?,
                    2 => address = field.text("status.addresses.address")?,
                    _ => {}
                }
            }
            draft.address(sort, address);
        }
    }
    Ok(())
}

fn cidrs(mut object: Message<'_>) -> Wire<Vec<ipnet::IpNet>> {
    let mut ranges = Vec::new();
    while let Some(field) = object.next()? {
        if field.number == 2 {
            let mut spec = field.message("spec")?;
            while let Some(field) = spec.next()? {
                if field.number == 1 {
                    cidr(&mut ranges, field.text("spec.cidrs")?);
                }
            }
        }
    }
    Ok(ranges)
}
