//! Names of chains: those that every node has, and those of services, which are hashed as
//! kube-proxy hashes them, so that either proxy finds the other's chains.

use std::fmt;
use std::net::SocketAddr;

use sha2::{Digest, Sha256};
use sluice_model::route::{Backend, PortKey};

/// A table of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// `filter`: accept, reject, drop.
    Filter,
    /// `nat`: destinations and sources are rewritten here.
    Nat,
    /// `mangle`: only a canary of ours.
    Mangle,
}

impl Table {
    /// All three, in the order in which they are written.
    pub const ALL: [Table; 3] = [Table::Filter, Table::Nat, Table::Mangle];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Filter => "filter",
            Table::Nat => "nat",
            Table::Mangle => "mangle",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A chain of one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// A chain of the kernel's.
    Hook(Hook),
    /// A chain that every node has once.
    Fixed(Fixed),
    /// A chain of a service port or endpoint, in `nat`.
    Service(ServiceChain),
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chain::Hook(hook) => hook.fmt(f),
            Chain::Fixed(fixed) => fixed.fmt(f),
            Chain::Service(chain) => chain.fmt(f),
        }
    }
}

/// Where the kernel enters a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// Packets that arrive.
    Prerouting,
    /// Packets for this node.
    Input,
    /// Packets that pass through.
    Forward,
    /// Packets of this node's processes.
    Output,
    /// Packets that leave.
    Postrouting,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::Prerouting => "PREROUTING",
            Hook::Input => "INPUT",
            Hook::Forward => "FORWARD",
            Hook::Output => "OUTPUT",
            Hook::Postrouting => "POSTROUTING",
        })
    }
}

/// Chains that exist once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fixed {
    /// `nat`: virtual addresses to their service chains. `filter`: what has no endpoints.
    Services,
    /// `nat`: node ports to their service chains. `filter`: health-check node ports.
    NodePorts,
    /// `filter`: external addresses and node ports without endpoints.
    ExternalServices,
    /// `filter`: what is forwarded on behalf of services.
    Forward,
    /// `filter`: guarded load-balancer addresses. What got past its source ranges has been
    /// translated and does not match here any more.
    ProxyFirewall,
    /// `filter`: guard against strangers on loopback addresses; kubelet's as well.
    Firewall,
    /// `filter`: cluster IPs in use, whose other ports refuse. Reached only by packets that are
    /// still on their way to a service range. kube-proxy has no such chain.
    ClusterIps,
    /// `nat`: source translation of marked packets.
    Postrouting,
    /// `nat`: marks packets for source translation.
    MarkMasq,
    /// Empty chain in each table; when it is gone somebody flushed the table.
    Canary,
}

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fixed::Services => "KUBE-SERVICES",
            Fixed::NodePorts => "KUBE-NODEPORTS",
            Fixed::ExternalServices => "KUBE-EXTERNAL-SERVICES",
            Fixed::Forward => "KUBE-FORWARD",
            Fixed::ProxyFirewall => "KUBE-PROXY-FIREWALL",
            Fixed::Firewall => "KUBE-FIREWALL",
            Fixed::ClusterIps => "KUBE-CLUSTER-IPS",
            Fixed::Postrouting => "KUBE-POSTROUTING",
            Fixed::MarkMasq => "KUBE-MARK-MASQ",
            Fixed::Canary => "KUBE-PROXY-CANARY",
        })
    }
}

/// What a service's chain is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Translates to one endpoint.
    Endpoint,
    /// Picks from the cluster pool.
    Cluster,
    /// Picks from the local pool.
    Local,
    /// Entrance from external addresses and node ports.
    External,
    /// Source ranges of load-balancer addresses.
    Firewall,
}

impl Role {
    /// All of them, those that are jumped to before those that jump.
    pub const ALL: [Role; 5] = [
        Role::Endpoint,
        Role::Cluster,
        Role::Local,
        Role::External,
        Role::Firewall,
    ];

    /// What the names of such chains start with.
    pub const fn prefix(self) -> &'static str {
        match self {
            Role::Endpoint => "KUBE-SEP-",
            Role::Cluster => "KUBE-SVC-",
            Role::Local => "KUBE-SVL-",
            Role::External => "KUBE-EXT-",
            Role::Firewall => "KUBE-FW-",
        }
    }
}

/// Length of the hashed part of a name.
const HASH: usize = 16;

/// A chain of a service port or of one of its endpoints.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceChain {
    role: Role,
    hash: [u8; HASH],
}

impl ServiceChain {
    /// What it is for.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The chain of this name, if it has the form of a service's chain.
    pub fn parse(name: &str) -> Option<ServiceChain> {
        let role = Role::ALL
            .into_iter()
            .find(|role| name.starts_with(role.prefix()))?;
        let hash: [u8; HASH] = name.as_bytes()[role.prefix().len()..].try_into().ok()?;
        hash.iter()
            .all(|byte| ALPHABET.contains(byte))
            .then_some(ServiceChain { role, hash })
    }
}

impl fmt::Display for ServiceChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.prefix())?;
        self.hash
            .iter()
            .try_for_each(|byte| fmt::Write::write_char(f, char::from(*byte)))
    }
}

impl fmt::Debug for ServiceChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Names the chains of one service port.
#[derive(Debug)]
pub struct Namer {
    text: String,
    own: [u8; HASH],
}

impl Namer {
    /// A namer for a service port.
    pub fn new(key: &PortKey) -> Namer {
        let text = format!("{key}{}", key.protocol);
        let own = hash(&text, "");
        Namer { text, own }
    }

    /// The service port's chain of a role other than [`Role::Endpoint`].
    pub fn own(&self, role: Role) -> ServiceChain {
        ServiceChain {
            role,
            hash: self.own,
        }
    }

    /// The chain of one of its endpoints.
    pub fn endpoint(&self, backend: &Backend) -> ServiceChain {
        let at = SocketAddr::new(backend.ip, backend.port).to_string();
        ServiceChain {
            role: Role::Endpoint,
            hash: hash(&self.text, &at),
        }
    }
}

const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// The first 16 digits in base 32 (RFC 4648) of the SHA-256 of both texts in a row.
fn hash(first: &str, second: &str) -> [u8; HASH] {
    let mut digest = Sha256::new();
    digest.update(first);
    digest.update(second);
    let bytes = digest.finalize();
    let mut digits = [0; HASH];
    for (index, digit) in digits.iter_mut().enumerate() {
        let bit = index * 5;
        // Five bits lie within two neighbouring bytes; the digest is longer than the 80 bits used.
        let pair = u16::from_be_bytes([bytes[bit / 8], bytes[bit / 8 + 1]]);
        *digit = ALPHABET[usize::from((pair >> (11 - bit % 8)) & 31)];
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::fact::Protocol;
    use sluice_model::name::ObjectKey;

    fn namer(namespace: &str, name: &str, port: &str, protocol: Protocol) -> Namer {
        let service = ObjectKey::new(namespace, name);
        Namer::new(&PortKey {
            service,
            port: port.into(),
            protocol,
        })
    }

    fn backend(text: &str) -> Backend {
        let at: SocketAddr = text.parse().unwrap();
        Backend {
            ip: at.ip(),
            port: at.port(),
            local: false,
        }
    }

    #[test]
    fn names_are_those_of_kube_proxy() {
        let first = namer("ns1", "svc1", "p80", Protocol::Tcp);
        assert_eq!(
            first.own(Role::Cluster).to_string(),
            "KUBE-SVC-XPGD46QRK7WJZT7O"
        );
        assert_eq!(
            first.endpoint(&backend("10.180.0.1:80")).to_string(),
            "KUBE-SEP-SXIVWICOYRO3J4NJ"
        );
        assert_eq!(
            first.endpoint(&backend("[fd00::1]:80")).to_string(),
            "KUBE-SEP-T5UNFIPVCZXM3U7X"
        );
        let fifth = namer("ns5", "svc5", "p80", Protocol::Tcp);
        assert_eq!(
            fifth.own(Role::Firewall).to_string(),
            "KUBE-FW-NUKIZ6OKUXPJNT4C"
        );
        let unnamed = namer("ns", "svc", "", Protocol::Udp);
        assert_eq!(
            unnamed.own(Role::External).to_string(),
            "KUBE-EXT-HMYKOXKBMOZPKJU5"
        );
    }

    #[test]
    fn only_names_of_service_chains_parse() {
        let chain = namer("ns1", "svc1", "p80", Protocol::Tcp).own(Role::Local);
        assert_eq!(
            ServiceChain::parse("KUBE-SVL-XPGD46QRK7WJZT7O"),
            Some(chain)
        );
        for other in [
            "KUBE-SERVICES",
            "KUBE-SVC-",
            "KUBE-SVC-XPGD46QRK7WJZT7",
            "KUBE-SVC-xpgd46qrk7wjzt7o",
        ] {
            assert_eq!(ServiceChain::parse(other), None, "{other}");
        }
    }
}
