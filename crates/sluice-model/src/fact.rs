//! What a source reports about the cluster: API objects reduced to what a service proxy reads.
//!
//! A fact replaces the whole previous fact of the same key. Doubtful text (addresses, ranges) is
//! parsed while the fact is built, by [`Problem`]-collecting helpers, so that every source treats
//! it alike.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use crate::name::{Name, ObjectKey};

/// One statement about the cluster. `None` means the object is gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// A Service.
    Service(ObjectKey, Option<Box<Service>>),
    /// An EndpointSlice, by its own key.
    Slice(ObjectKey, Option<Box<Slice>>),
    /// An Endpoints object (key = the Service's), one slice per subset and family. It counts only
    /// while its Service has no EndpointSlice.
    Endpoints(ObjectKey, Option<Vec<Slice>>),
    /// A Node. Only the node this proxy runs on matters.
    Node(Name, Option<Box<Node>>),
    /// A ServiceCIDR object's ranges.
    Cidrs(Name, Option<Vec<IpNet>>),
    /// Addresses on this machine's interfaces, loopback included, as the kernel lists them now.
    LocalAddresses(Vec<IpAddr>),
    /// A complete list of this kind starts: everything of it follows, then [`Fact::Synced`].
    Begin(Kind),
    /// The list that [`Fact::Begin`] opened is complete; what was not in it is gone.
    Synced(Kind),
}

/// Kinds that are listed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Services.
    Services,
    /// EndpointSlices.
    Slices,
    /// Endpoints objects.
    Endpoints,
    /// Nodes.
    Nodes,
    /// ServiceCIDRs.
    Cidrs,
}

/// IP version of an address, a route or a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order in which they are reported.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// The family of an address.
    pub fn of(ip: IpAddr) -> Family {
        match ip {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// The family of a prefix.
    pub fn of_net(net: IpNet) -> Family {
        Family::of(net.addr())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// Transport protocol of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP, number 6.
    Tcp,
    /// UDP, number 17.
    Udp,
    /// SCTP, number 132.
    Sctp,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// The IANA protocol number.
    pub const fn number(self) -> u8 {
        match self {
            Protocol::Tcp => 6,
            Protocol::Udp => 17,
            Protocol::Sctp => 132,
        }
    }

    /// The API's spelling; empty means TCP there.
    pub fn parse(text: &str) -> Option<Protocol> {
        match text {
            "" | "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            "SCTP" => Some(Protocol::Sctp),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        })
    }
}

/// A Service's type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    /// ClusterIP, the default.
    #[default]
    ClusterIp,
    /// NodePort.
    NodePort,
    /// LoadBalancer.
    LoadBalancer,
    /// ExternalName: nothing to program.
    ExternalName,
}

/// internalTrafficPolicy or externalTrafficPolicy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrafficPolicy {
    /// All endpoints of the cluster.
    #[default]
    Cluster,
    /// Only endpoints on the node that received the packet.
    Local,
}

/// What a Service says. Addresses of both families are kept; the model picks per family.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// metadata.creationTimestamp, Unix seconds. `None` sorts as newest.
    pub created: Option<i64>,
    /// spec.type.
    pub service_type: ServiceType,
    /// The label `service.kubernetes.io/service-proxy-name` is present: another proxy's service.
    pub other_proxy: bool,
    /// clusterIP is `None`.
    pub headless: bool,
    /// spec.ipFamilies.
    pub families: Vec<Family>,
    /// spec.clusterIPs (or the single clusterIP).
    pub cluster_ips: Vec<IpAddr>,
    /// spec.externalIPs.
    pub external_ips: Vec<IpAddr>,
    /// status.loadBalancer.ingress[] that carry an IP.
    pub ingress: Vec<Ingress>,
    /// spec.loadBalancerSourceRanges.
    pub source_ranges: SourceRanges,
    /// spec.externalTrafficPolicy.
    pub external_policy: TrafficPolicy,
    /// spec.internalTrafficPolicy.
    pub internal_policy: TrafficPolicy,
    /// sessionAffinity ClientIP with its time-out in seconds (default 10800).
    pub affinity_seconds: Option<u32>,
    /// spec.healthCheckNodePort, 0 where unset.
    pub health_check_node_port: u16,
    /// spec.ports.
    pub ports: Vec<ServicePort>,
    /// What was wrong with the object; the rest of it counts.
    pub problems: Vec<Problem>,
}

/// One entry of spec.ports.
#[derive(Clone, Debug, PartialEq)]
pub struct ServicePort {
    /// Name; empty when the only port is unnamed.
    pub name: Name,
    /// Protocol.
    pub protocol: Protocol,
    /// Port on the service's addresses.
    pub port: u16,
    /// Node port, 0 where none.
    pub node_port: u16,
}

/// One load-balancer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// Address.
    pub ip: IpAddr,
    /// ipMode `Proxy`: packets reach the node without this destination; leave it alone.
    pub proxied: bool,
}

/// spec.loadBalancerSourceRanges as parsed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceRanges {
    /// The user wrote at least one range, valid or not.
    pub given: bool,
    /// The valid ones, both families.
    pub nets: Vec<IpNet>,
}

/// An EndpointSlice, or one subset and family of an Endpoints object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Slice {
    /// Label `kubernetes.io/service-name`; without it the slice is ignored.
    pub service: Option<Name>,
    /// The label `service.kubernetes.io/headless` is present: ignored.
    pub headless: bool,
    /// addressType; `None` for FQDN.
    pub family: Option<Family>,
    /// ports.
    pub ports: Vec<SlicePort>,
    /// endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Annotation `endpoints.kubernetes.io/last-change-trigger-time`, Unix nanoseconds.
    pub triggered: Option<i64>,
    /// What was wrong with the object; the rest of it counts.
    pub problems: Vec<Problem>,
}

/// A slice's port. An absent name matches nothing; an absent or zero number has no endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct SlicePort {
    /// Name.
    pub name: Option<Name>,
    /// Protocol.
    pub protocol: Protocol,
    /// Number.
    pub port: Option<u16>,
}

/// One endpoint: its first address and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// `addresses[0]`, canonical.
    pub ip: IpAddr,
    /// Conditions with absent ones resolved.
    pub conditions: Conditions,
    /// Node it runs on.
    pub node: Option<Name>,
    /// Topology hints, absent in most clusters.
    pub hints: Option<Box<Hints>>,
}

/// Endpoint conditions. Absent `ready` and `serving` count as true, absent `terminating` as false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// May receive new connections.
    pub ready: bool,
    /// Answers, even if it is being terminated.
    pub serving: bool,
    /// Is being terminated.
    pub terminating: bool,
}

impl Conditions {
    /// From the API's optional booleans. They are independent of each other.
    pub fn new(ready: Option<bool>, serving: Option<bool>, terminating: Option<bool>) -> Self {
        Conditions {
            ready: ready.unwrap_or(true),
            serving: serving.unwrap_or(true),
            terminating: terminating.unwrap_or(false),
        }
    }
}

/// Where an endpoint should be consumed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// hints.forZones.
    pub zones: Vec<Name>,
    /// hints.forNodes.
    pub nodes: Vec<Name>,
}

/// What this proxy reads of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// status.addresses: InternalIPs, then ExternalIPs, in order.
    pub addresses: Vec<IpAddr>,
    /// spec.podCIDRs.
    pub pod_cidrs: Vec<IpNet>,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<Name>,
    /// Has a deletionTimestamp or the taint `ToBeDeletedByClusterAutoscaler`.
    pub leaving: bool,
    /// What was wrong with the object; the rest of it counts.
    pub problems: Vec<Problem>,
}

/// One thing wrong with an object: which field, what it said, why that does not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field, as `spec.externalIPs[1]`.
    pub field: String,
    /// What it said, cut to 80 characters.
    pub value: String,
    /// Why it does not do and what would.
    pub why: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.field, self.value, self.why)
    }
}

impl Problem {
    /// A problem; `value` is cut to 80 characters.
    pub fn new(field: impl Into<String>, value: &str, why: &'static str) -> Self {
        Problem {
            field: field.into(),
            value: value.chars().take(80).collect(),
            why,
        }
    }
}

/// Reads an address as Kubernetes does: surrounding blanks off, leading zeros in IPv4 parts are
/// decimal (`010.0.0.1` is `10.0.0.1`), IPv4-mapped IPv6 is IPv4.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if text.contains(':') {
        let (head, tail) = text.rsplit_once(':').unwrap_or(("", text));
        let v6: Ipv6Addr = if tail.contains('.') {
            format!("{head}:{}", parse_v4(tail)?).parse().ok()?
        } else {
            text.parse().ok()?
        };
        return Some(v6.to_ipv4_mapped().map_or(IpAddr::V6(v6), IpAddr::V4));
    }
    parse_v4(text).map(IpAddr::V4)
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = part.len();
        if digits == 0 || digits > 16 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part
            .trim_start_matches('0')
            .parse()
            .or_else(|error| {
                if part.bytes().all(|b| b == b'0') {
                    Ok(0)
                } else {
                    Err(error)
                }
            })
            .ok()?;
    }
    parts.next().is_none().then(|| Ipv4Addr::from(octets))
}

/// Reads a prefix (`10.0.0.0/8`) as [`parse_ip`] reads its address; host bits are cleared.
pub fn parse_net(text: &str) -> Option<IpNet> {
    let (ip, length) = text.trim().split_once('/')?;
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let ip = parse_ip(ip)?;
    let length: u8 = digits.then(|| length.parse().ok()).flatten()?;
    Some(IpNet::new(ip, length).ok()?.trunc())
}
