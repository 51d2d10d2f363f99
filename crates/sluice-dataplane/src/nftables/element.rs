//! The elements of the table's sets and maps, typed.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use sluice_model::fact::Protocol;
use sluice_model::route::PoolChoice;

/// A set or map of the table. Names and contents: `docs/nftables.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetId {
    /// Virtual address, protocol, port -> class chain.
    ServiceIps,
    /// The same for the local pool of a split frontend.
    LocalIps,
    /// Protocol, node port -> class chain.
    ServiceNodePorts,
    /// The same for the local pool of a split frontend.
    LocalNodePorts,
    /// Virtual address, protocol, port, slot -> endpoint.
    Endpoints,
    /// Protocol, node port, slot -> endpoint.
    NodePortEndpoints,
    /// Every cluster IP in use.
    ClusterIps,
    /// Node addresses that accept node ports, where that is not every local address.
    NodePortIps,
    /// Endpoint address twice: connections of an endpoint to itself.
    Hairpin,
    /// Virtual address, protocol, port -> reject or drop.
    NoEndpointServices,
    /// Protocol, node port -> reject or drop.
    NoEndpointNodePorts,
    /// Frontends that check sources.
    FirewallIps,
    /// Frontend and allowed source range.
    FirewallAllow,
    /// Frontends with affinity -> where their time-out's connections are recorded.
    StickyIps,
    /// The same for node ports.
    StickyNodePorts,
    /// Client and frontend -> endpoint, learned by the kernel, kept so many seconds.
    Affinity(u32),
}

impl SetId {
    /// The sets that every table has.
    pub const CONSTANT: [SetId; 15] = [
        SetId::ServiceIps,
        SetId::LocalIps,
        SetId::ServiceNodePorts,
        SetId::LocalNodePorts,
        SetId::Endpoints,
        SetId::NodePortEndpoints,
        SetId::ClusterIps,
        SetId::NodePortIps,
        SetId::Hairpin,
        SetId::NoEndpointServices,
        SetId::NoEndpointNodePorts,
        SetId::FirewallIps,
        SetId::FirewallAllow,
        SetId::StickyIps,
        SetId::StickyNodePorts,
    ];

    /// Reads a name back.
    pub fn parse(name: &str) -> Option<SetId> {
        SetId::CONSTANT
            .into_iter()
            .find(|set| set.to_string() == name)
            .or_else(|| {
                name.strip_prefix("affinity-")?
                    .parse()
                    .ok()
                    .map(SetId::Affinity)
            })
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetId::ServiceIps => "service-ips",
            SetId::LocalIps => "local-ips",
            SetId::ServiceNodePorts => "service-nodeports",
            SetId::LocalNodePorts => "local-nodeports",
            SetId::Endpoints => "endpoints",
            SetId::NodePortEndpoints => "nodeport-endpoints",
            SetId::ClusterIps => "cluster-ips",
            SetId::NodePortIps => "nodeport-ips",
            SetId::Hairpin => "hairpin",
            SetId::NoEndpointServices => "no-endpoint-services",
            SetId::NoEndpointNodePorts => "no-endpoint-nodeports",
            SetId::FirewallIps => "firewall-ips",
            SetId::FirewallAllow => "firewall-allow",
            SetId::StickyIps => "sticky-ips",
            SetId::StickyNodePorts => "sticky-nodeports",
            SetId::Affinity(seconds) => return write!(f, "affinity-{seconds}"),
        })
    }
}

/// Key of an element. Which variant belongs to which set follows from [`SetId`]'s docs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An address.
    Ip(IpAddr),
    /// An address, twice.
    Hairpin(IpAddr),
    /// Virtual address, protocol, port.
    Vip(IpAddr, Protocol, u16),
    /// Protocol, node port.
    NodePort(Protocol, u16),
    /// Virtual address, protocol, port, slot.
    VipSlot(IpAddr, Protocol, u16, u32),
    /// Protocol, node port, slot.
    NodePortSlot(Protocol, u16, u32),
    /// Virtual address, protocol, port, source range.
    Allow(IpAddr, Protocol, u16, IpNet),
    /// Client, frontend address, protocol, port.
    Client(IpAddr, IpAddr, Protocol, u16),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Ip(ip) => write!(f, "{ip}"),
            Key::Hairpin(ip) => write!(f, "{ip} . {ip}"),
            Key::Vip(ip, proto, port) => write!(f, "{ip} . {proto} . {port}"),
            Key::NodePort(proto, port) => write!(f, "{proto} . {port}"),
            Key::VipSlot(ip, proto, port, slot) => write!(f, "{ip} . {proto} . {port} . {slot}"),
            Key::NodePortSlot(proto, port, slot) => write!(f, "{proto} . {port} . {slot}"),
            Key::Allow(ip, proto, port, net) => write!(f, "{ip} . {proto} . {port} . {net}"),
            Key::Client(client, ip, proto, port) => {
                write!(f, "{client} . {ip} . {proto} . {port}")
            }
        }
    }
}

/// What an element maps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Member of a set.
    Member,
    /// `goto` a class chain.
    Goto(ChainId),
    /// `goto` the chain that records connections of this affinity time-out, seconds.
    Record(u32),
    /// `goto reject-chain`.
    Reject,
    /// `drop`.
    Drop,
    /// An endpoint.
    Endpoint(IpAddr, u16),
    /// Something this program never writes, as read from the kernel.
    Foreign,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Member => f.write_str("member"),
            Value::Goto(chain) => write!(f, "goto {chain}"),
            Value::Record(seconds) => write!(f, "goto {}", record_chain(*seconds)),
            Value::Reject => f.write_str("reject"),
            Value::Drop => f.write_str("drop"),
            Value::Endpoint(ip, port) => write!(f, "{ip} . {port}"),
            Value::Foreign => f.write_str("a foreign value"),
        }
    }
}

/// Name of the chain that records connections of an affinity time-out.
pub fn record_chain(seconds: u32) -> String {
    format!("record-{seconds}")
}

/// Reads the name of a recording chain back.
pub fn parse_record_chain(name: &str) -> Option<u32> {
    name.strip_prefix("record-")?.parse().ok()
}

/// A class chain: what happens before the pick, and among how many slots it picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainId {
    /// Reached by address or by node port.
    pub entry: Entry,
    /// What happens before the pick.
    pub class: Class,
    /// Number of slots; at least 1.
    pub slots: u32,
    /// Affinity, seconds; 0 is none.
    pub sticky: u32,
}

/// By which kind of key a chain's frontends are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entry {
    /// Virtual addresses.
    Vip,
    /// Node ports.
    NodePort,
}

/// What happens before the pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Nothing: the source is kept.
    Plain,
    /// Sources other than this node's pods are marked for masquerade.
    NotPods,
    /// Every source is marked for masquerade.
    Masquerade,
    /// Pods go on to Plain, node processes are marked and go on to Plain, others are looked up in
    /// the local pool.
    Split,
    /// Nothing; picks from the local pool's slots.
    Local,
}

/// First slot of the local pool in the endpoint maps, beyond any number of cluster slots that the
/// API can produce for one service port on a node that still works.
pub const LOCAL_SLOTS: u32 = 1 << 24;

impl ChainId {
    /// The pool that this chain picks from.
    pub fn pool(self) -> PoolChoice {
        match self.class {
            Class::Local => PoolChoice::Local,
            Class::Plain | Class::NotPods | Class::Masquerade | Class::Split => PoolChoice::Cluster,
        }
    }

    /// The chain that this one goes on to.
    pub fn successor(self) -> Option<ChainId> {
        match self.class {
            Class::Split => Some(ChainId {
                class: Class::Plain,
                ..self
            }),
            Class::Plain | Class::NotPods | Class::Masquerade | Class::Local => None,
        }
    }

    /// Reads a name back.
    pub fn parse(name: &str) -> Option<ChainId> {
        let (entry, rest) = match name.strip_prefix("nodeport-") {
            Some(rest) => (Entry::NodePort, rest),
            None => (Entry::Vip, name),
        };
        let (rest, sticky) = match rest.split_once("-sticky-") {
            Some((rest, seconds)) => (rest, seconds.parse().ok()?),
            None => (rest, 0),
        };
        let (class, slots) = rest.rsplit_once('-')?;
        let class = [
            Class::Plain,
            Class::NotPods,
            Class::Masquerade,
            Class::Split,
            Class::Local,
        ]
        .into_iter()
        .find(|c| c.word() == class)?;
        Some(ChainId {
            entry,
            class,
            slots: slots.parse().ok()?,
            sticky,
        })
    }
}

impl Class {
    fn word(self) -> &'static str {
        match self {
            Class::Plain => "plain",
            Class::NotPods => "cluster",
            Class::Masquerade => "masquerade",
            Class::Split => "split",
            Class::Local => "local",
        }
    }
}

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entry == Entry::NodePort {
            f.write_str("nodeport-")?;
        }
        write!(f, "{}-{}", self.class.word(), self.slots)?;
        if self.sticky > 0 {
            write!(f, "-sticky-{}", self.sticky)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_names_read_back() {
        for name in [
            "cluster-3",
            "nodeport-split-1200-sticky-10800",
            "local-1",
            "plain-2-sticky-1",
        ] {
            assert_eq!(
                ChainId::parse(name).map(|c| c.to_string()).as_deref(),
                Some(name)
            );
        }
        for name in [
            "services",
            "cluster-",
            "cluster-x",
            "cluster-3-sticky-",
            "mine-3",
        ] {
            assert_eq!(ChainId::parse(name), None, "{name}");
        }
    }

    #[test]
    fn set_names_read_back() {
        for set in SetId::CONSTANT.into_iter().chain([SetId::Affinity(10800)]) {
            assert_eq!(SetId::parse(&set.to_string()), Some(set));
        }
    }
}
