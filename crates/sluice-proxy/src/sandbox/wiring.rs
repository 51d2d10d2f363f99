//! Connects the namespaces of a sandbox: who has which link, address and route.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use ipnet::{IpNet, Ipv6Net};

use super::links::{Links, Way, exists, set};
use super::{Namespace, Place, PodLink, SandboxError, World, WorldSpec};

/// The node's end of every pod link: pods ask it for everything in IPv6. (In IPv4 they ask for
/// the node's own address, which ARP answers on any link and neighbour discovery does not.)
const POD_GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The bridge that joins the uplinks, in the outside namespace.
const LAN: &str = "lan";

const UPLINK: &str = "eth0";

/// Settings of every namespace. A new one copies IPv4 settings from the host (except on kernels
/// told otherwise), so what matters is written down.
const COMMON: [(&str, &str); 5] = [
    // No message is held back, or one refusal in a second looks like a refusal and the rest like
    // drops. (The mask says which ICMP types are limited.)
    ("ipv4/icmp_ratemask", "0"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
    ("ipv4/conf/all/accept_redirects", "0"),
    ("ipv4/conf/default/accept_redirects", "0"),
];

/// The same for IPv6: addresses are usable at once, routes come from nobody but us.
const COMMON_V6: [(&str, &str); 6] = [
    ("ipv6/icmp/ratelimit", "0"),
    ("ipv6/conf/all/disable_ipv6", "0"),
    ("ipv6/conf/default/accept_dad", "0"),
    ("ipv6/conf/default/accept_ra", "0"),
    ("ipv6/conf/all/accept_redirects", "0"),
    ("ipv6/conf/default/accept_redirects", "0"),
];

/// The mask of IPv6, which kernels before 5.1 do not have: type 0 does not exist.
const MASK_V6: [(&str, &str); 1] = [("ipv6/icmp/ratemask", "0")];

/// The node forwards, and does not tell neighbours of shorter ways past it.
const NODE: [(&str, &str); 3] = [
    ("ipv4/ip_forward", "1"),
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/default/send_redirects", "0"),
];

/// Where the kernel shows bridged frames to packet filters, a pod's packet to itself would not get
/// off its bridge port: pods are routed here, so nothing is lost without it.
const BRIDGE: [(&str, &str); 2] = [
    ("bridge/bridge-nf-call-iptables", "0"),
    ("bridge/bridge-nf-call-ip6tables", "0"),
];

const NODE_V6: [(&str, &str); 1] = [("ipv6/conf/all/forwarding", "1")];

/// Links all namespaces of `world`.
pub(super) fn connect(world: &World) -> Result<(), SandboxError> {
    let node = world.namespace(Place::Node)?;
    let outside = world.namespace(Place::Outside)?;
    let others = world.namespace(Place::OtherNode)?;
    let spec = world.spec();

    for namespace in [node, outside, others].into_iter().chain(world.pods()) {
        let v6 = spec.has_v6();
        act(namespace, move |links| basics(links, v6))?;
    }
    act(outside, |links| {
        links.bridge(LAN)?;
        links.up(LAN)
    })?;
    uplink(node, outside, "node")?;
    uplink(others, outside, "others")?;
    let own = spec.clone();
    act(outside, move |links| {
        for address in &own.outside {
            links.address(LAN, IpNet::from(*address))?;
        }
        through_node(links, &own, LAN)
    })?;
    let own = spec.clone();
    act(others, move |links| other_nodes(links, &own))?;
    let own = spec.clone();
    act(node, move |links| node_itself(links, &own))?;
    for (number, addresses) in spec.local_pods.iter().enumerate() {
        attach_pod(node, &world.pods()[number], (number, addresses), spec)?;
    }
    Ok(())
}

/// Runs one step on a namespace's thread.
fn act(
    namespace: &Namespace,
    step: impl FnOnce(&mut Links) -> Result<(), SandboxError> + Send + 'static,
) -> Result<(), SandboxError> {
    namespace.run(move || step(&mut Links::open()?))?
}

fn basics(links: &mut Links, v6: bool) -> Result<(), SandboxError> {
    set(&COMMON)?;
    if v6 {
        set(&COMMON_V6)?;
        if exists("ipv6/icmp/ratemask") {
            set(&MASK_V6)?;
        }
    }
    if exists("bridge") {
        set(&BRIDGE)?;
    }
    links.up("lo")
}

/// A veth pair between a namespace's `eth0` and a port of the bridge outside.
fn uplink(
    namespace: &Namespace,
    outside: &Namespace,
    port: &'static str,
) -> Result<(), SandboxError> {
    let there = descriptor(outside)?;
    act(namespace, move |links| {
        use std::os::fd::AsFd;
        links.veth(UPLINK, port, there.as_fd())?;
        links.up(UPLINK)
    })?;
    act(outside, move |links| {
        links.enslave(port, LAN)?;
        links.up(port)
    })
}

fn descriptor(namespace: &Namespace) -> Result<OwnedFd, SandboxError> {
    let own = namespace.fd().try_clone_to_owned();
    own.map_err(|cause| SandboxError::Socket {
        operation: "duplicate the descriptor of a namespace",
        cause,
    })
}

/// Routes everything to the node, neighbours included.
fn through_node(links: &mut Links, spec: &WorldSpec, link: &str) -> Result<(), SandboxError> {
    for gateway in spec.gateways() {
        links.route(IpNet::from(gateway), Way::Link, link)?;
        links.route(everything(gateway), Way::Via(gateway), link)?;
    }
    Ok(())
}

fn other_nodes(links: &mut Links, spec: &WorldSpec) -> Result<(), SandboxError> {
    for address in &spec.other_nodes {
        links.address(UPLINK, IpNet::from(*address))?;
    }
    through_node(links, spec, UPLINK)?;
    for range in &spec.remote_pods {
        links.route(*range, Way::Local, "lo")?;
    }
    Ok(())
}

fn node_itself(links: &mut Links, spec: &WorldSpec) -> Result<(), SandboxError> {
    set(&NODE)?;
    if spec.has_v6() {
        set(&NODE_V6)?;
    }
    for address in &spec.node {
        links.address(UPLINK, *address)?;
    }
    for neighbour in spec.outside.iter().chain(&spec.other_nodes) {
        links.route(IpNet::from(*neighbour), Way::Link, UPLINK)?;
    }
    for gateway in spec.gateways() {
        // What no pod, node or service has goes to the outside host, which drops it.
        if let Some(router) = first_like(&spec.outside, gateway) {
            links.route(everything(gateway), Way::Via(router), UPLINK)?;
        }
    }
    for range in &spec.remote_pods {
        let Some(other) = first_like(&spec.other_nodes, range.addr()) else {
            return Err(SandboxError::Specification(
                "another node's address in each family in which there are remote pods",
            ));
        };
        links.route(*range, Way::Via(other), UPLINK)?;
    }
    match &spec.pod_link {
        PodLink::Bridge(name) => {
            links.bridge(name)?;
            links.up(name)?;
            pod_gateway(links, spec, name)
        }
        PodLink::Interfaces(_) => Ok(()),
    }
}

fn pod_gateway(links: &mut Links, spec: &WorldSpec, link: &str) -> Result<(), SandboxError> {
    if !spec.has_v6() {
        return Ok(());
    }
    let gateway = Ipv6Net::new_assert(POD_GATEWAY, 64);
    links.address(link, gateway.into())
}

fn attach_pod(
    node: &Namespace,
    pod: &Namespace,
    (number, addresses): (usize, &[IpAddr]),
    spec: &WorldSpec,
) -> Result<(), SandboxError> {
    let there = descriptor(pod)?;
    let (own, pod_addresses) = (spec.clone(), addresses.to_vec());
    act(node, move |links| {
        use std::os::fd::AsFd;
        let port = own.pod_link.port(number);
        links.veth(&port, UPLINK, there.as_fd())?;
        let link = match &own.pod_link {
            PodLink::Bridge(bridge) => {
                links.enslave(&port, bridge)?;
                links.up(&port)?;
                bridge
            }
            PodLink::Interfaces(_) => {
                links.up(&port)?;
                pod_gateway(links, &own, &port)?;
                &port
            }
        };
        for address in pod_addresses {
            links.route(IpNet::from(address), Way::Link, link)?;
        }
        Ok(())
    })?;
    let (own, pod_addresses) = (spec.clone(), addresses.to_vec());
    act(pod, move |links| {
        links.up(UPLINK)?;
        for address in &pod_addresses {
            links.address(UPLINK, IpNet::from(*address))?;
        }
        for gateway in own.gateways() {
            if first_like(&pod_addresses, gateway).is_none() {
                continue;
            }
            let way = match gateway {
                IpAddr::V4(_) => {
                    links.route(IpNet::from(gateway), Way::Link, UPLINK)?;
                    Way::Via(gateway)
                }
                IpAddr::V6(_) => Way::Via(POD_GATEWAY.into()),
            };
            links.route(everything(gateway), way, UPLINK)?;
        }
        Ok(())
    })
}

/// The default route's prefix in the family of `like`.
fn everything(like: IpAddr) -> IpNet {
    let any = match like {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    IpNet::new_assert(any, 0)
}

fn first_like(addresses: &[IpAddr], like: IpAddr) -> Option<IpAddr> {
    let mut addresses = addresses.iter().copied();
    addresses.find(|address| address.is_ipv4() == like.is_ipv4())
}
