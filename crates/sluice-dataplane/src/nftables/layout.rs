//! How typed keys and values lie in the kernel: the definitions of the sets, and bytes to and fro.
//!
//! A key of several fields is a concatenation, each field padded to four bytes, in network order;
//! a slot is a plain 32-bit number in host order, as `numgen` writes it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use sluice_model::fact::{Family, Protocol};
use sluice_netlink::nft::userdata::{Field, typeof_map};
use sluice_netlink::nft::{DataType, KeyLayout, Set, SetFlags};

use super::element::{Key, SetId};

/// Upper bound on remembered clients per time-out and family. The kernel refuses to learn more, so
/// a flood of forged sources costs at most some 40 MB.
const MAX_CLIENTS: u32 = 262_144;

fn key_fields(family: Family, set: SetId) -> Vec<DataType> {
    use DataType::{InetProto as Proto, InetService as Port, Integer as Slot};
    let ip = ip_type(family);
    match set {
        SetId::ClusterIps | SetId::NodePortIps => vec![ip],
        SetId::Hairpin => vec![ip, ip],
        SetId::ServiceIps
        | SetId::LocalIps
        | SetId::NoEndpointServices
        | SetId::FirewallIps
        | SetId::StickyIps => vec![ip, Proto, Port],
        SetId::ServiceNodePorts
        | SetId::LocalNodePorts
        | SetId::NoEndpointNodePorts
        | SetId::StickyNodePorts => vec![Proto, Port],
        SetId::Endpoints => vec![ip, Proto, Port, Slot],
        SetId::NodePortEndpoints => vec![Proto, Port, Slot],
        SetId::FirewallAllow => vec![ip, Proto, Port, ip],
        SetId::Affinity(_) => vec![ip, ip, Proto, Port],
    }
}

fn ip_type(family: Family) -> DataType {
    match family {
        Family::V4 => DataType::Ipv4Addr,
        Family::V6 => DataType::Ipv6Addr,
    }
}

/// The definition of a set.
pub fn definition(family: Family, set: SetId) -> Set {
    let key = KeyLayout::of(&key_fields(family, set));
    let endpoint = KeyLayout::of(&[ip_type(family), DataType::InetService]);
    let name = set.to_string();
    match set {
        SetId::ServiceIps
        | SetId::LocalIps
        | SetId::ServiceNodePorts
        | SetId::LocalNodePorts
        | SetId::NoEndpointServices
        | SetId::NoEndpointNodePorts
        | SetId::StickyIps
        | SetId::StickyNodePorts => Set::verdict_map(name, &key),
        SetId::Endpoints | SetId::NodePortEndpoints => slot_map(name, family, set),
        SetId::Affinity(seconds) => Set {
            flags: SetFlags::MAP | SetFlags::TIMEOUT | SetFlags::EVAL,
            timeout_ms: Some(u64::from(seconds) * 1000),
            size: Some(MAX_CLIENTS),
            ..Set::map(name, &key, &endpoint)
        },
        SetId::FirewallAllow => Set::ranges(name, &key),
        SetId::ClusterIps | SetId::NodePortIps | SetId::Hairpin | SetId::FirewallIps => {
            Set::keyed(name, &key)
        }
    }
}

/// How nft shows a slot map: with `typeof`, since a slot has no type name of its own.
fn slot_map(name: String, family: Family, set: SetId) -> Set {
    let daddr = match family {
        Family::V4 => Field::IpDaddr,
        Family::V6 => Field::Ip6Daddr,
    };
    let shown = [
        daddr,
        Field::L4Proto,
        Field::ThDport,
        Field::NumgenRandom(2),
    ];
    let shown = if set == SetId::Endpoints {
        &shown[..]
    } else {
        &shown[1..]
    };
    let key = KeyLayout::of(&key_fields(family, set));
    let endpoint = KeyLayout::of(&[ip_type(family), DataType::InetService]);
    Set {
        userdata: typeof_map(shown, &[daddr, Field::ThDport], None),
        ..Set::map(name, &key, &endpoint)
    }
}

/// The bytes of a key or an endpoint, in place: a load has a hundred thousand of them.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    bytes: [u8; LONGEST],
    length: usize,
}

/// The longest key: two IPv6 addresses, protocol, port.
const LONGEST: usize = 40;

impl std::ops::Deref for Packed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Packed {
    const EMPTY: Packed = Packed {
        bytes: [0; LONGEST],
        length: 0,
    };

    /// Appends. Every key fits: the tests encode the longest ones.
    fn extend(&mut self, more: &[u8]) {
        let end = self.length + more.len();
        self.bytes[self.length..end].copy_from_slice(more);
        self.length = end;
    }
}

/// The bytes of a key: first, and for a range last.
pub fn encode_key(key: &Key) -> (Packed, Option<Packed>) {
    let mut out = Packed::EMPTY;
    match *key {
        Key::Ip(ip) => put_ip(&mut out, ip),
        Key::Hairpin(ip) => {
            put_ip(&mut out, ip);
            put_ip(&mut out, ip);
        }
        Key::Vip(ip, proto, port) => put_vip(&mut out, ip, proto, port),
        Key::NodePort(proto, port) => put_node_port(&mut out, proto, port),
        Key::VipSlot(ip, proto, port, slot) => {
            put_vip(&mut out, ip, proto, port);
            out.extend(&slot.to_ne_bytes());
        }
        Key::NodePortSlot(proto, port, slot) => {
            put_node_port(&mut out, proto, port);
            out.extend(&slot.to_ne_bytes());
        }
        Key::Allow(ip, proto, port, net) => {
            put_vip(&mut out, ip, proto, port);
            let mut last = out;
            put_ip(&mut out, net.network());
            put_ip(&mut last, net.broadcast());
            return (out, Some(last));
        }
        Key::Client(client, ip, proto, port) => {
            put_ip(&mut out, client);
            put_vip(&mut out, ip, proto, port);
        }
    }
    (out, None)
}

/// The bytes of an endpoint.
pub fn encode_endpoint(ip: IpAddr, port: u16) -> Packed {
    let mut out = Packed::EMPTY;
    put_ip(&mut out, ip);
    put_port(&mut out, port);
    out
}

fn put_ip(out: &mut Packed, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => out.extend(&ip.octets()),
        IpAddr::V6(ip) => out.extend(&ip.octets()),
    }
}

fn put_port(out: &mut Packed, port: u16) {
    out.extend(&port.to_be_bytes());
    out.extend(&[0, 0]);
}

fn put_node_port(out: &mut Packed, proto: Protocol, port: u16) {
    out.extend(&[proto.number(), 0, 0, 0]);
    put_port(out, port);
}

fn put_vip(out: &mut Packed, ip: IpAddr, proto: Protocol, port: u16) {
    put_ip(out, ip);
    put_node_port(out, proto, port);
}

/// Reads a key of a set back. `None` for bytes that this program cannot have written.
pub fn decode_key(family: Family, set: SetId, key: &[u8], end: Option<&[u8]>) -> Option<Key> {
    let mut bytes = Bytes { family, rest: key };
    let key = match set {
        SetId::ClusterIps | SetId::NodePortIps => Key::Ip(bytes.ip()?),
        SetId::Hairpin => {
            let (a, b) = (bytes.ip()?, bytes.ip()?);
            (a == b).then_some(Key::Hairpin(a))?
        }
        SetId::ServiceIps
        | SetId::LocalIps
        | SetId::NoEndpointServices
        | SetId::FirewallIps
        | SetId::StickyIps => Key::Vip(bytes.ip()?, bytes.proto()?, bytes.port()?),
        SetId::ServiceNodePorts
        | SetId::LocalNodePorts
        | SetId::NoEndpointNodePorts
        | SetId::StickyNodePorts => Key::NodePort(bytes.proto()?, bytes.port()?),
        SetId::Endpoints => Key::VipSlot(bytes.ip()?, bytes.proto()?, bytes.port()?, bytes.slot()?),
        SetId::NodePortEndpoints => Key::NodePortSlot(bytes.proto()?, bytes.port()?, bytes.slot()?),
        SetId::FirewallAllow => {
            let (ip, proto, port, first) =
                (bytes.ip()?, bytes.proto()?, bytes.port()?, bytes.ip()?);
            let mut end = Bytes { family, rest: end? };
            let same = (end.ip()?, end.proto()?, end.port()?) == (ip, proto, port);
            Key::Allow(ip, proto, port, range(first, end.ip()?).filter(|_| same)?)
        }
        SetId::Affinity(_) => Key::Client(bytes.ip()?, bytes.ip()?, bytes.proto()?, bytes.port()?),
    };
    bytes.rest.is_empty().then_some(key)
}

/// Reads an endpoint back.
pub fn decode_endpoint(family: Family, data: &[u8]) -> Option<(IpAddr, u16)> {
    let mut bytes = Bytes { family, rest: data };
    let endpoint = (bytes.ip()?, bytes.port()?);
    bytes.rest.is_empty().then_some(endpoint)
}

/// The prefix that spans exactly `first..=last`.
fn range(first: IpAddr, last: IpAddr) -> Option<IpNet> {
    let differing = match (first, last) {
        (IpAddr::V4(a), IpAddr::V4(b)) => 32 - (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => 128 - (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
    };
    let width = if first.is_ipv4() { 32 } else { 128 };
    let net = IpNet::new(first, (width - differing) as u8).ok()?;
    (net.network() == first && net.broadcast() == last).then_some(net)
}

struct Bytes<'a> {
    family: Family,
    rest: &'a [u8],
}

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    fn ip(&mut self) -> Option<IpAddr> {
        Some(match self.family {
            Family::V4 => Ipv4Addr::from(self.take::<4>()?).into(),
            Family::V6 => Ipv6Addr::from(self.take::<16>()?).into(),
        })
    }

    fn proto(&mut self) -> Option<Protocol> {
        let [number, ..] = self.take::<4>()?;
        Protocol::ALL.into_iter().find(|p| p.number() == number)
    }

    fn port(&mut self) -> Option<u16> {
        let [high, low, ..] = self.take::<4>()?;
        Some(u16::from_be_bytes([high, low]))
    }

    fn slot(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take::<4>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back() {
        let v4 = |text: &str| text.parse::<IpAddr>().unwrap();
        let vip = v4("10.96.0.10");
        let cases = [
            (SetId::ClusterIps, Key::Ip(vip)),
            (SetId::Hairpin, Key::Hairpin(vip)),
            (SetId::ServiceIps, Key::Vip(vip, Protocol::Udp, 53)),
            (
                SetId::ServiceNodePorts,
                Key::NodePort(Protocol::Sctp, 30000),
            ),
            (SetId::Endpoints, Key::VipSlot(vip, Protocol::Tcp, 80, 1199)),
            (
                SetId::NodePortEndpoints,
                Key::NodePortSlot(Protocol::Tcp, 30080, 2),
            ),
            (
                SetId::FirewallAllow,
                Key::Allow(vip, Protocol::Tcp, 80, "192.0.2.0/25".parse().unwrap()),
            ),
            (
                SetId::FirewallAllow,
                Key::Allow(vip, Protocol::Tcp, 80, "192.0.2.7/32".parse().unwrap()),
            ),
            (
                SetId::Affinity(5),
                Key::Client(v4("192.0.2.200"), vip, Protocol::Tcp, 80),
            ),
        ];
        for (set, key) in cases {
            let (bytes, end) = encode_key(&key);
            assert_eq!(
                bytes.len() as u32,
                definition(Family::V4, set).key_len,
                "{set}"
            );
            assert_eq!(
                decode_key(Family::V4, set, &bytes, end.as_deref()),
                Some(key)
            );
        }
    }

    #[test]
    fn the_longest_keys_read_back() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let (vip, client) = (ip("fd00:10:96::a"), ip("2001:db8:1::200"));
        let cases = [
            (
                SetId::Affinity(5),
                Key::Client(client, vip, Protocol::Tcp, 80),
            ),
            (
                SetId::FirewallAllow,
                Key::Allow(vip, Protocol::Tcp, 80, "2001:db8:1::/48".parse().unwrap()),
            ),
        ];
        for (set, key) in cases {
            let (bytes, end) = encode_key(&key);
            assert_eq!(bytes.len(), 40, "{set}");
            assert_eq!(
                decode_key(Family::V6, set, &bytes, end.as_deref()),
                Some(key)
            );
        }
    }

    #[test]
    fn ranges_that_are_no_prefix_are_foreign() {
        let ip = |n: u8| IpAddr::from([192, 0, 2, n]);
        assert_eq!(
            range(ip(0), ip(127)).map(|n| n.to_string()).as_deref(),
            Some("192.0.2.0/25")
        );
        assert_eq!(range(ip(1), ip(127)), None);
        assert_eq!(range(ip(0), ip(128)), None);
    }
}
