//! This node: which addresses are its own, which packets are its pods', where it stands.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::fact::{Family, Node};
use crate::name::Name;
use crate::route::{NodePortMatch, NodeView, PodMatch};
use crate::settings::{DetectLocal, NodePortAddresses, Settings};

use super::select::Standpoint;

/// What is known of this node and of the cluster as a whole.
#[derive(Debug, Default)]
pub(super) struct Surroundings {
    /// The Node as last seen. It is kept when the object is deleted: either the machine is going,
    /// or its kubelet is about to register it again with the same addresses.
    pub(super) node: Option<Box<Node>>,
    /// The Node object exists now.
    pub(super) registered: bool,
    pub(super) cidrs: BTreeMap<Name, Vec<IpNet>>,
    pub(super) local_addresses: Vec<IpAddr>,
}

/// What routes take from the surroundings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outlook {
    /// Per family: whether pods of this node can be told from other sources.
    pub(super) knows_pods: [bool; 2],
    /// Per family: the node's own address.
    pub(super) node_ip: [Option<IpAddr>; 2],
    pub(super) standpoint: Standpoint,
}

impl Surroundings {
    /// What routes take from here.
    pub(super) fn outlook(&self, settings: &Settings) -> Outlook {
        let node = self.node.as_deref();
        Outlook {
            knows_pods: Family::ALL.map(|family| self.pods(settings, family).is_some()),
            node_ip: Family::ALL.map(|family| self.node_ip(settings, family)),
            standpoint: Standpoint {
                node: settings.node_name.clone(),
                zone: node
                    .and_then(|node| node.zone.clone())
                    .filter(|zone| !zone.is_empty()),
            },
        }
    }

    /// What the node contributes in a family.
    pub(super) fn view(&self, settings: &Settings, family: Family) -> NodeView {
        let cidrs: Vec<IpNet> = of_family(self.cidrs.values().flatten(), family).collect();
        NodeView {
            pods: self.pods(settings, family),
            node_ports: self.node_ports(settings, family),
            service_cidrs: merged(cidrs),
        }
    }

    /// The node's address: the configured one where it is of this family, else the first the Node
    /// lists, InternalIPs before ExternalIPs.
    fn node_ip(&self, settings: &Settings, family: Family) -> Option<IpAddr> {
        let listed = self.node.iter().flat_map(|node| node.addresses.iter());
        settings
            .node_ip_override
            .iter()
            .chain(listed)
            .copied()
            .find(|ip| Family::of(*ip) == family && !ip.is_unspecified())
    }

    fn pods(&self, settings: &Settings, family: Family) -> Option<PodMatch> {
        let first = |nets: &[IpNet]| of_family(nets, family).next().map(PodMatch::Source);
        match &settings.detect_local {
            DetectLocal::ClusterCidr(nets) => first(nets),
            DetectLocal::NodeCidr => first(&self.node.as_ref()?.pod_cidrs),
            DetectLocal::BridgeInterface(name) => Some(PodMatch::Interface(name.clone())),
            DetectLocal::InterfaceNamePrefix(name) => Some(PodMatch::InterfacePrefix(name.clone())),
        }
    }

    /// Where nothing of a family is known, node ports of that family are closed: kube-proxy opens
    /// them on every address then, which is the opposite of what `primary` asks for.
    fn node_ports(&self, settings: &Settings, family: Family) -> NodePortMatch {
        let mut addresses: Vec<IpAddr> = match &settings.node_port_addresses {
            NodePortAddresses::Primary => self.node_ip(settings, family).into_iter().collect(),
            NodePortAddresses::Within(nets) => {
                let nets: Vec<IpNet> = of_family(nets, family).collect();
                if nets.is_empty() || nets.iter().any(|net| net.prefix_len() == 0) {
                    return NodePortMatch::AnyLocal;
                }
                let local = self.local_addresses.iter().copied();
                local
                    .filter(|ip| nets.iter().any(|net| net.contains(ip)))
                    .collect()
            }
        };
        addresses.retain(|ip| !ip.is_loopback() && !ip.is_unspecified());
        addresses.sort_unstable();
        addresses.dedup();
        NodePortMatch::Addresses(addresses)
    }
}

/// Those of a family, without host bits.
pub(super) fn of_family<'a>(
    nets: impl IntoIterator<Item = &'a IpNet>,
    family: Family,
) -> impl Iterator<Item = IpNet> {
    nets.into_iter()
        .filter(move |net| Family::of_net(**net) == family)
        .map(|net| net.trunc())
}

/// The same addresses in as few prefixes as possible, sorted.
pub(super) fn merged(nets: Vec<IpNet>) -> Vec<IpNet> {
    let mut nets = IpNet::aggregate(&nets);
    nets.sort_unstable();
    nets
}
