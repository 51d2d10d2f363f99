//! A scenario written in IPv4, run in IPv6.
//!
//! The IPv6 twin of an IPv4 address carries it in its last 32 bits: `a.b.c.d` becomes
//! `fd00::a.b.c.d`, and a prefix keeps its meaning, `/n` becoming `/(96+n)`. Two addresses have
//! twins of their own: `127.0.0.1` is `::1` and `0.0.0.0/0` is `::/0`. In objects the word `IPv4`
//! becomes `IPv6`; text that is no address, prefix or address with port stays as it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv6Net};
use serde_json::Value;

use crate::scenario::{Expect, From, NodeSpec, Object, Probe, Scenario, Served, Source, Variant};

/// The scenario as this variant runs it.
pub fn variant(scenario: &Scenario, variant: Variant) -> Scenario {
    match variant {
        Variant::V4 | Variant::Dual => scenario.clone(),
        Variant::V6 => in_v6(scenario.clone()),
    }
}

fn in_v6(mut scenario: Scenario) -> Scenario {
    node(&mut scenario.node);
    let config = &mut scenario.config;
    config.cluster_cidr = config.cluster_cidr.as_deref().map(text);
    for net in config.node_port_addresses.iter_mut().flatten() {
        *net = text(net);
    }
    config.bind_address = config.bind_address.map(ip);
    scenario.objects.iter_mut().for_each(object);
    scenario.probes.iter_mut().for_each(probe);
    for step in &mut scenario.steps {
        step.apply.iter_mut().for_each(object);
        step.probes.iter_mut().for_each(probe);
    }
    scenario
}

fn node(node: &mut NodeSpec) {
    for list in [&mut node.addresses, &mut node.extra_addresses] {
        list.iter_mut().for_each(|a| *a = ip(*a));
        let mut seen = Vec::new();
        list.retain(|a| {
            !seen.contains(a) && {
                seen.push(*a);
                true
            }
        });
    }
    node.pod_cidrs.iter_mut().for_each(|n| *n = net(*n));
    node.pod_cidrs.dedup();
}

fn probe(probe: &mut Probe) {
    if let From::Address(address) = &mut probe.from {
        *address = ip(*address);
    }
    probe.to = socket(probe.to);
    if let Expect::Served(Served {
        endpoints,
        source: seen,
        except,
        ..
    }) = &mut probe.expect
    {
        endpoints.iter_mut().for_each(|e| *e = socket(*e));
        *seen = source(*seen);
        *except = except
            .iter()
            .map(|(at, s)| (socket(*at), source(*s)))
            .collect();
    }
}

fn source(seen: Source) -> Source {
    match seen {
        Source::Kept => Source::Kept,
        Source::Node => Source::Node,
        Source::Address(address) => Source::Address(ip(address)),
    }
}

fn object(object: &mut Object) {
    value(&mut object.value);
}

fn value(json: &mut Value) {
    match json {
        Value::String(string) => *string = text(string),
        Value::Array(list) => list.iter_mut().for_each(value),
        Value::Object(map) => map.values_mut().for_each(value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The twin of a text: each of its comma-separated parts by itself.
fn text(text: &str) -> String {
    let part = |part: &str| {
        let parsed = part.trim();
        if parsed == "IPv4" {
            "IPv6".to_owned()
        } else if let Ok(address) = parsed.parse() {
            ip(address).to_string()
        } else if let Ok(prefix) = parsed.parse() {
            net(prefix).to_string()
        } else if let Ok(at) = parsed.parse() {
            socket(at).to_string()
        } else {
            part.to_owned()
        }
    };
    text.split(',').map(part).collect::<Vec<_>>().join(",")
}

/// The IPv6 twin of an address; an IPv6 address is its own.
pub fn ip(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(v4) => IpAddr::V6(embed(v4)),
        IpAddr::V6(v6) => IpAddr::V6(v6),
    }
}

fn embed(v4: Ipv4Addr) -> Ipv6Addr {
    let prefix = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0).to_bits();
    Ipv6Addr::from_bits(prefix | u128::from(v4.to_bits()))
}

fn net(prefix: IpNet) -> IpNet {
    match prefix {
        IpNet::V4(v4) if v4.prefix_len() == 0 => IpNet::V6(Ipv6Net::default()),
        IpNet::V4(v4) => {
            let twin = Ipv6Net::new(embed(v4.addr()), 96 + v4.prefix_len());
            twin.map_or(prefix, IpNet::V6)
        }
        IpNet::V6(_) => prefix,
    }
}

fn socket(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(ip(at.ip()), at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_prefixes_and_ports_turn_into_their_twins() {
        for (written, twin) in [
            ("198.51.100.85", "fd00::c633:6455"),
            ("198.51.100.0/25", "fd00::c633:6400/121"),
            ("0.0.0.0/0", "::/0"),
            ("127.0.0.1", "::1"),
            ("10.96.0.10:80", "[fd00::a60:a]:80"),
            (
                "198.51.100.0/24,10.0.0.0/8",
                "fd00::c633:6400/120,fd00::a00:0/104",
            ),
            ("2001:db8::1", "2001:db8::1"),
            ("IPv4", "IPv6"),
            ("primary", "primary"),
            ("web-1", "web-1"),
        ] {
            assert_eq!(text(written), twin, "{written}");
        }
    }

    #[test]
    fn objects_are_turned_all_the_way_down() {
        let mut json = serde_json::json!({"spec": {"clusterIPs": ["10.96.0.10"], "ports": [80]}});
        value(&mut json);
        let twin = serde_json::json!({"spec": {"clusterIPs": ["fd00::a60:a"], "ports": [80]}});
        assert_eq!(json, twin);
    }
}
