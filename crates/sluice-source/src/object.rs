//! What fields of API objects mean, whichever source they come from.
//!
//! Manifests and the API server write the same fields. Each rule (what a value stands for, and
//! why another one does not do) is here once; the sources differ only in how they report it.

#[cfg(feature = "api")]
pub(crate) mod draft;

use std::net::IpAddr;

use ipnet::IpNet;
use sluice_model::fact::{Family, Protocol, ServiceType, TrafficPolicy, parse_ip, parse_net};

/// Label of a Service that another proxy serves.
pub(crate) const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// Label of an EndpointSlice: its Service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label of an EndpointSlice whose Service is headless.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// Annotation: when the change happened that the object reports.
pub(crate) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// Label of a Node: its zone.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";
/// Taint of a Node that is about to be removed.
pub(crate) const AUTOSCALER_TAINT: &str = "ToBeDeletedByClusterAutoscaler";
/// The API server's default for sessionAffinityConfig.clientIP.timeoutSeconds.
pub(crate) const AFFINITY_SECONDS: u32 = 10_800;
/// The longest time-out that the API server takes, seconds.
pub(crate) const LONGEST_AFFINITY: u32 = 86_400;

/// A value with a meaning, or why it has none.
pub(crate) type Meaning<T> = Result<T, &'static str>;

/// spec.type of a Service; empty means ClusterIP.
pub(crate) fn service_type(text: &str) -> Meaning<ServiceType> {
    match text {
        "" | "ClusterIP" => Ok(ServiceType::ClusterIp),
        "NodePort" => Ok(ServiceType::NodePort),
        "LoadBalancer" => Ok(ServiceType::LoadBalancer),
        "ExternalName" => Ok(ServiceType::ExternalName),
        _ => Err("must be ClusterIP, NodePort, LoadBalancer or ExternalName; served as ClusterIP"),
    }
}

/// A traffic policy; empty means Cluster.
pub(crate) fn policy(text: &str) -> Meaning<TrafficPolicy> {
    match text {
        "" | "Cluster" => Ok(TrafficPolicy::Cluster),
        "Local" => Ok(TrafficPolicy::Local),
        _ => Err("must be Cluster or Local; served as Cluster"),
    }
}

/// Whether connections of a client stick to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Affinity {
    /// `None`.
    Free,
    /// `ClientIP`.
    ClientIp,
}

/// spec.sessionAffinity; empty means `None`.
pub(crate) fn affinity(text: &str) -> Meaning<Affinity> {
    match text {
        "" | "None" => Ok(Affinity::Free),
        "ClientIP" => Ok(Affinity::ClientIp),
        _ => Err("must be None or ClientIP; served as None"),
    }
}

/// An entry of spec.ipFamilies.
pub(crate) fn family(text: &str) -> Meaning<Family> {
    match text {
        "IPv4" => Ok(Family::V4),
        "IPv6" => Ok(Family::V6),
        _ => Err("must be IPv4 or IPv6"),
    }
}

/// addressType of an EndpointSlice: `None` for FQDN.
pub(crate) fn address_type(text: &str) -> Meaning<Option<Family>> {
    match text {
        "IPv4" => Ok(Some(Family::V4)),
        "IPv6" => Ok(Some(Family::V6)),
        "FQDN" => Ok(None),
        _ => Err("must be IPv4, IPv6 or FQDN"),
    }
}

/// A port's protocol; empty means TCP.
pub(crate) fn protocol(text: &str) -> Meaning<Protocol> {
    Protocol::parse(text).ok_or("must be TCP, UDP or SCTP")
}

/// A port number.
#[cfg(feature = "api")]
pub(crate) fn port(number: i64) -> Meaning<u16> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        Ok(_) | Err(_) => Err("must be a whole number from 1 to 65535"),
    }
}

/// ipMode of a load-balancer address: whether packets reach the node without that destination.
pub(crate) fn is_proxied(text: &str) -> Meaning<bool> {
    match text {
        "" | "VIP" => Ok(false),
        "Proxy" => Ok(true),
        _ => Err("must be VIP or Proxy; served as VIP"),
    }
}

/// An address of any sort, as a Node may have.
pub(crate) fn any_address(text: &str) -> Meaning<IpAddr> {
    parse_ip(text).ok_or("must be an IP address such as 192.0.2.1 or 2001:db8::1")
}

/// An address that may be that of a service or endpoint.
pub(crate) fn address(text: &str) -> Meaning<IpAddr> {
    let ip = any_address(text)?;
    special(ip).map_or(Ok(ip), Err)
}

/// A range of addresses.
pub(crate) fn net(text: &str) -> Meaning<IpNet> {
    parse_net(text).ok_or("must be a range such as 192.0.2.0/24 or 2001:db8::/64")
}

/// The sort of an address that can be neither a service's nor an endpoint's.
fn special(ip: IpAddr) -> Option<&'static str> {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if ip.is_unspecified() {
        Some("must not be the unspecified address")
    } else if ip.is_loopback() {
        Some("must not be a loopback address")
    } else if ip.is_multicast() {
        Some("must not be a multicast address")
    } else if link_local {
        Some("must not be a link-local address")
    } else {
        None
    }
}
