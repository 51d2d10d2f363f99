//! Who is where: the addresses of the lab, the node under test and its settings.

use std::net::IpAddr;

use anyhow::{Result, bail};
use ipnet::IpNet;
use sluice_model::fact::{self, Fact, Family};
use sluice_model::name::Name;
use sluice_model::settings::{DetectLocal, ExternalIps, NodePortAddresses, Settings};

use crate::family;
use crate::scenario::{ConfigSpec, DetectLocalMode, From, NodeSpec};

/// Address of the node under test.
pub const NODE: &str = "192.0.2.11";
/// Pods of the node under test.
pub const LOCAL_PODS: &str = "198.51.100.0/25";
/// Pods of the whole cluster.
pub const ALL_PODS: &str = "198.51.100.0/24";
/// A pod of the node under test that is no endpoint.
pub const LOCAL_POD: &str = "198.51.100.10";
/// A pod of another node that is no endpoint.
pub const REMOTE_POD: &str = "198.51.100.200";
/// A machine outside the cluster.
pub const OUTSIDE: &str = "192.0.2.200";
/// What the names of the interfaces start with by which packets of the node's pods arrive.
pub const POD_INTERFACES: &str = "pod";
/// The bridge by which they arrive instead where detectLocalMode is BridgeInterface.
pub const POD_BRIDGE: &str = "cbr0";
/// Address of another node.
pub const OTHER_NODE: &str = "192.0.2.12";
/// Interface of the node by which all other packets arrive.
pub const UPLINK: &str = "eth0";

impl Default for NodeSpec {
    fn default() -> Self {
        NodeSpec {
            name: "node-a".to_owned(),
            zone: None,
            addresses: both(NODE).to_vec(),
            extra_addresses: Vec::new(),
            pod_cidrs: both_nets(LOCAL_PODS),
        }
    }
}

/// An address of the lab and its IPv6 twin.
pub fn both(text: &str) -> [IpAddr; 2] {
    let v4 = text.parse().expect("the constants above are addresses");
    [v4, family::ip(v4)]
}

/// A prefix of the lab and its IPv6 twin.
pub fn both_nets(text: &str) -> Vec<IpNet> {
    text.parse().into_iter().chain(twin_net(text)).collect()
}

fn twin_net(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let length: u8 = length.parse().ok()?;
    IpNet::new(family::ip(address.parse().ok()?), 96 + length).ok()
}

/// A client with all that its packets carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Source address.
    pub ip: IpAddr,
    /// Where it runs.
    pub place: Place,
}

/// Where a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the node under test, in its own network namespace.
    Node,
    /// In a pod of the node under test.
    LocalPod,
    /// Anywhere else.
    Beyond,
}

/// The client that a probe means, for a destination.
pub fn client(node: &NodeSpec, from: From, to: IpAddr) -> Result<Client> {
    let family = Family::of(to);
    let pick = |text| {
        let [v4, v6] = both(text);
        if family == Family::V4 { v4 } else { v6 }
    };
    let (ip, place) = match from {
        From::Pod => (pick(LOCAL_POD), Place::LocalPod),
        From::RemotePod => (pick(REMOTE_POD), Place::Beyond),
        From::Outside => (pick(OUTSIDE), Place::Beyond),
        From::Node if to.is_loopback() => (to, Place::Node),
        From::Node => match node.addresses.iter().find(|a| Family::of(**a) == family) {
            Some(ip) => (*ip, Place::Node),
            None => bail!("the node has no {family} address to connect to {to} from"),
        },
        From::Address(ip) if Family::of(ip) != family => bail!("{ip} cannot connect to {to}"),
        From::Address(ip) => (ip, place(node, ip)),
    };
    Ok(Client { ip, place })
}

fn place(node: &NodeSpec, ip: IpAddr) -> Place {
    if interfaces(node).any(|own| own == ip) {
        Place::Node
    } else if node.pod_cidrs.iter().any(|net| net.contains(&ip)) {
        Place::LocalPod
    } else {
        Place::Beyond
    }
}

/// The interface of the node by which packets of one of its pods arrive.
pub fn pod_interface(config: &ConfigSpec) -> String {
    match config.detect_local_mode {
        DetectLocalMode::BridgeInterface => POD_BRIDGE.to_owned(),
        DetectLocalMode::ClusterCIDR
        | DetectLocalMode::NodeCIDR
        | DetectLocalMode::InterfaceNamePrefix => format!("{POD_INTERFACES}0"),
    }
}

/// Every address on the node's interfaces, loopback included.
pub fn interfaces(node: &NodeSpec) -> impl Iterator<Item = IpAddr> {
    let own = node.addresses.iter().chain(&node.extra_addresses).copied();
    own.chain(both("127.0.0.1"))
}

/// What the node itself reports: its Node object and its interfaces.
pub fn node_facts(node: &NodeSpec) -> Vec<Fact> {
    let object = fact::Node {
        addresses: node.addresses.clone(),
        pod_cidrs: node.pod_cidrs.clone(),
        zone: node.zone.as_deref().map(Name::from),
        leaving: false,
        problems: Vec::new(),
    };
    vec![
        Fact::Node(Name::from(&*node.name), Some(Box::new(object))),
        Fact::LocalAddresses(interfaces(node).collect()),
    ]
}

/// The settings that a configuration amounts to.
pub fn settings(node: &NodeSpec, config: &ConfigSpec) -> Result<Settings> {
    Ok(Settings {
        node_name: Name::from(&*node.name),
        masquerade_all: config.masquerade_all,
        detect_local: detect_local(config)?,
        node_port_addresses: node_port_addresses(config.node_port_addresses.as_deref())?,
        node_ip_override: config.bind_address.filter(|ip| !ip.is_unspecified()),
        external_ips: ExternalIps::Served,
    })
}

fn detect_local(config: &ConfigSpec) -> Result<DetectLocal> {
    let need = |text: &str, field: &str| {
        if text.is_empty() {
            bail!("config: detectLocal.{field} is missing");
        }
        Ok(Name::from(text))
    };
    let detail = &config.detect_local;
    Ok(match config.detect_local_mode {
        DetectLocalMode::ClusterCIDR => DetectLocal::ClusterCidr(match &config.cluster_cidr {
            None => both_nets(ALL_PODS),
            Some(list) => nets(list.split(',').filter(|part| !part.is_empty()))?,
        }),
        DetectLocalMode::NodeCIDR => DetectLocal::NodeCidr,
        DetectLocalMode::BridgeInterface => {
            DetectLocal::BridgeInterface(need(&detail.bridge_interface, "bridgeInterface")?)
        }
        DetectLocalMode::InterfaceNamePrefix => DetectLocal::InterfaceNamePrefix(need(
            &detail.interface_name_prefix,
            "interfaceNamePrefix",
        )?),
    })
}

fn node_port_addresses(list: Option<&[String]>) -> Result<NodePortAddresses> {
    Ok(match list {
        None => NodePortAddresses::Primary,
        Some([word]) if word == "primary" => NodePortAddresses::Primary,
        Some(list) => NodePortAddresses::Within(nets(list.iter().map(String::as_str))?),
    })
}

fn nets<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Vec<IpNet>> {
    texts
        .map(|text| match fact::parse_net(text) {
            Some(net) => Ok(net),
            None => bail!("config: {text:?} is no prefix"),
        })
        .collect()
}
