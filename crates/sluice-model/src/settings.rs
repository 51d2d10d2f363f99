//! What the operator configured, as far as it changes what a service must do.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::name::Name;

/// The part of the configuration that policy depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// This node's name, trimmed and lower-cased.
    pub node_name: Name,
    /// Masquerade everything that is sent to a cluster IP.
    pub masquerade_all: bool,
    /// How traffic of this node's pods is told from the rest.
    pub detect_local: DetectLocal,
    /// Which node addresses accept node ports.
    pub node_port_addresses: NodePortAddresses,
    /// bindAddress unless unspecified: overrides the primary node IP.
    pub node_ip_override: Option<IpAddr>,
    /// Gate AllowServiceExternalIPs: false means externalIPs yield nothing.
    pub external_ips: ExternalIps,
}

impl Settings {
    /// kube-proxy's defaults in nftables mode for a node of this name.
    pub fn for_node(name: &str) -> Settings {
        Settings {
            node_name: name.into(),
            masquerade_all: false,
            detect_local: DetectLocal::ClusterCidr(Vec::new()),
            node_port_addresses: NodePortAddresses::Primary,
            node_ip_override: None,
            external_ips: ExternalIps::Served,
        }
    }
}

/// detectLocalMode with its parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum DetectLocal {
    /// Source address within the first of these prefixes of the packet's family.
    ClusterCidr(Vec<IpNet>),
    /// Source address within the Node's spec.podCIDRs.
    NodeCidr,
    /// Arrives on this bridge.
    BridgeInterface(Name),
    /// Arrives on an interface whose name starts with this.
    InterfaceNamePrefix(Name),
}

/// nodePortAddresses.
#[derive(Clone, Debug, PartialEq)]
pub enum NodePortAddresses {
    /// `primary`: the Node's own address of each family.
    Primary,
    /// Local addresses within these prefixes; empty, or a zero-length prefix, means all.
    Within(Vec<IpNet>),
}

/// Whether spec.externalIPs are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExternalIps {
    /// As upstream's default.
    Served,
    /// Ignored: whoever may edit a Service can otherwise take over any address.
    Ignored,
}
