//! The compiler against the oracle, on typed rules: random clusters that change at random, and
//! after every change every packet that could matter, traced through what the transactions left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it looks at"
)]
#![allow(clippy::panic, reason = "a test fails by panicking")]

mod fake;
mod machine;

use std::collections::BTreeSet;

use proptest::prelude::*;
use sluice_dataplane::nftables::Compiler;
use sluice_dataplane::nftables::tx::Tx;
use sluice_model::cluster::Cluster;
use sluice_model::fact::{Fact, Family, Protocol};
use sluice_model::oracle::{Decision, Origin, Packet, Peer, Reach, decide};
use sluice_model::route::Changes;
use sluice_model::settings::{DetectLocal, NodePortAddresses, Settings};
use sluice_model::testing::{endpoint, ip, listed, net, no_service, node, service, slice};

use fake::Fake;
use machine::{Fate, send};

/// A service drawn at random. Few names, addresses and ports: collisions are the point.
#[derive(Clone, Debug)]
struct Draw {
    name: u8,
    gone: bool,
    vip: u8,
    external: Option<u8>,
    balancer: Option<u8>,
    node_port: bool,
    udp: bool,
    flags: u8,
    endpoints: Vec<(u8, u8)>,
}

fn draws() -> impl Strategy<Value = Draw> {
    let endpoints = prop::collection::vec((0u8..6, 0u8..8), 0..5);
    let place = prop::option::of(0u8..3);
    let parts = (
        0u8..4,
        prop::bool::weighted(0.15),
        0u8..4,
        place.clone(),
        place,
    );
    (parts, any::<(bool, bool, u8)>(), endpoints).prop_map(
        |((name, gone, vip, external, balancer), (node_port, udp, flags), endpoints)| Draw {
            name,
            gone,
            vip,
            external,
            balancer,
            node_port,
            udp,
            flags,
            endpoints,
        },
    )
}

fn address(family: Family, group: u8, last: u8) -> String {
    match family {
        Family::V4 => format!(
            "{}.{last}",
            ["10.96.0", "203.0.113", "198.51.100"][group as usize]
        ),
        Family::V6 => format!("fd00:{group}::{last:x}"),
    }
}

impl Draw {
    fn facts(&self, family: Family) -> Vec<Fact> {
        let name = format!("s{}", self.name);
        let own = slice(&format!("{name}-x"), &name);
        if self.gone {
            return vec![no_service(&name), own.fact()];
        }
        let at = |group, last| address(family, group, last);
        let protocol = if self.udp {
            Protocol::Udp
        } else {
            Protocol::Tcp
        };
        let mut s = service(&name)
            .cluster_ip(&at(0, self.vip))
            .port(protocol, "p", 80);
        if self.node_port {
            s = s.node_port(30_080 + u16::from(self.name % 2));
        }
        if let Some(external) = self.external {
            s = s.external_ip(&at(1, external));
        }
        if let Some(balancer) = self.balancer {
            s = s.load_balancer(&at(1, 10 + balancer));
            if self.flags & 1 != 0 {
                s = s.source_range(&format!("{}/{}", at(2, 0), net_length(family, 2)));
            }
        }
        if self.flags & 2 != 0 {
            s = s.external_local();
        }
        if self.flags & 4 != 0 {
            s = s.internal_local();
        }
        if self.flags & 8 != 0 {
            s = s.affinity(if self.flags & 16 != 0 { 60 } else { 10_800 });
        }
        let mut own = own.port(protocol, "p", 8080);
        for (last, state) in &self.endpoints {
            let mut e = endpoint(&at(2, *last));
            if state & 1 != 0 {
                e = e.on("node-a");
            }
            e = if state & 6 == 6 { e.terminating() } else { e };
            own = own.with(e);
        }
        vec![s.fact(), own.fact()]
    }
}

fn net_length(family: Family, host_bits: u8) -> u8 {
    match family {
        Family::V4 => 32 - host_bits,
        Family::V6 => 128 - host_bits,
    }
}

fn settings(family: Family, kind: u8) -> Settings {
    let mut settings = Settings::for_node("node-a");
    settings.masquerade_all = kind & 1 != 0;
    let pods = format!("{}/{}", address(family, 2, 0), net_length(family, 3));
    settings.detect_local = match kind >> 1 & 3 {
        0 => DetectLocal::ClusterCidr(vec![net(&pods)]),
        1 => DetectLocal::ClusterCidr(Vec::new()),
        2 => DetectLocal::BridgeInterface("cbr0".into()),
        _ => DetectLocal::InterfaceNamePrefix("pod".into()),
    };
    settings.node_port_addresses = match kind >> 3 & 1 {
        0 => NodePortAddresses::Primary,
        _ => NodePortAddresses::Within(Vec::new()),
    };
    settings
}

const NODE_V4: &str = "192.0.2.11";
const NODE_V6: &str = "2001:db8::11";

fn packets(family: Family) -> Vec<Packet> {
    let own = if family == Family::V4 {
        NODE_V4
    } else {
        NODE_V6
    };
    let outside = if family == Family::V4 {
        "192.0.2.200"
    } else {
        "2001:db8::200"
    };
    let pods = [1, 5].map(|last| address(family, 2, last));
    let from_pod = |interface: &str| Origin::Interface(interface.into());
    let mut sources = vec![
        (own.to_owned(), Origin::Process),
        (outside.to_owned(), Origin::Interface("eth0".into())),
        (pods[0].clone(), from_pod("pod1")),
        (pods[1].clone(), from_pod("cbr0")),
    ];
    sources.push((address(family, 2, 200), from_pod("pod9")));
    let vips = (0..5)
        .map(|n| address(family, 0, n))
        .chain((0..13).map(|n| address(family, 1, n)));
    let mut places: Vec<(String, u16)> = vips
        .flat_map(|vip| [80, 81].map(|port| (vip.clone(), port)))
        .collect();
    places.extend([30_080, 30_081, 30_082].map(|port| (own.to_owned(), port)));
    let mut packets = Vec::new();
    for (source, origin) in &sources {
        for (destination, port) in &places {
            for protocol in machine::PROTOCOLS {
                let reach = if destination == own {
                    Reach::Here
                } else {
                    Reach::Elsewhere
                };
                packets.push(Packet {
                    source: ip(source),
                    origin: origin.clone(),
                    destination: ip(destination),
                    reach,
                    port: *port,
                    protocol,
                });
            }
        }
    }
    packets
}

/// What the oracle says, as the fates that must be seen over all random picks.
fn wanted(decision: &Decision) -> BTreeSet<Fate> {
    match decision {
        Decision::Untouched => BTreeSet::from([Fate::Untouched]),
        Decision::Refused => BTreeSet::from([Fate::Refused]),
        Decision::Dropped => BTreeSet::from([Fate::Dropped]),
        Decision::Served { targets, .. } => targets
            .iter()
            .map(|t| Fate::Translated {
                ip: t.ip,
                port: t.port,
                masqueraded: t.peer == Peer::Masqueraded,
            })
            .collect(),
    }
}

struct World {
    family: Family,
    settings: Settings,
    cluster: Cluster,
    compiler: Compiler,
    kernel: Fake,
}

impl World {
    fn new(family: Family, kind: u8) -> World {
        let settings = settings(family, kind);
        let mut cluster = Cluster::new(settings.clone());
        let addresses = vec![ip(NODE_V4), ip(NODE_V6), ip("127.0.0.1"), ip("::1")];
        cluster.apply(Fact::LocalAddresses(addresses));
        let [first, second] = match family {
            Family::V4 => [NODE_V4, NODE_V6],
            Family::V6 => [NODE_V6, NODE_V4],
        };
        cluster.apply(node("node-a", &[first, second], None));
        let range = match family {
            Family::V4 => "10.96.0.0/24",
            Family::V6 => "fd00:0::/120",
        };
        if kind & 16 != 0 {
            cluster.apply(Fact::Cidrs("kubernetes".into(), Some(vec![net(range)])));
        }
        listed([]).into_iter().for_each(|fact| cluster.apply(fact));
        let (compiler, kernel) = (Compiler::new(0x4000), Fake::default());
        World {
            family,
            settings,
            cluster,
            compiler,
            kernel,
        }
    }

    fn start(&mut self) {
        let changes = self.cluster.changes();
        let observed = self.kernel.observe();
        self.compiler.adopt(&changes, &observed);
        let (tx, _) = self.compiler.resync(&observed);
        self.kernel.apply(&tx);
    }

    fn change(&mut self, draw: &Draw) {
        draw.facts(self.family)
            .into_iter()
            .for_each(|fact| self.cluster.apply(fact));
        let tx = self.compiler.update(&self.cluster.changes());
        self.kernel.apply(&tx);
    }

    /// A process that starts now and finds this kernel has nothing to write.
    fn check_restart(&self) {
        let node = Family::ALL.map(|family| Some(self.cluster.node_view(family).clone()));
        let routes = self
            .cluster
            .routes()
            .map(|route| sluice_model::route::RouteChange {
                old: None,
                new: Some(std::sync::Arc::clone(route)),
            });
        let changes = Changes {
            node,
            routes: routes.collect(),
            ..Changes::default()
        };
        let mut fresh = Compiler::new(0x4000);
        let observed = self.kernel.observe();
        fresh.adopt(&changes, &observed);
        let (_, drifts) = fresh.resync(&observed);
        assert!(drifts.iter().all(|d| d.is_none()), "{drifts:?}");
    }

    /// The kernel knows hairpins only of endpoints on this node: others' packets come from
    /// other nodes, where their own proxy saw them first.
    fn is_endpoint_elsewhere(&self, source: std::net::IpAddr) -> bool {
        let backends = self
            .cluster
            .routes()
            .flat_map(|r| r.cluster.iter().chain(&*r.local));
        backends.into_iter().any(|b| b.ip == source && !b.local)
    }

    fn check_packets(&self) {
        let table = self.kernel.tables[self.family as usize].as_ref().unwrap();
        let view = self.cluster.node_view(self.family);
        for packet in packets(self.family) {
            if self.is_endpoint_elsewhere(packet.source) {
                continue;
            }
            let decision = decide(self.cluster.routes().map(|r| &**r), view, &packet);
            let seen: BTreeSet<Fate> = (0..6).map(|pick| send(table, &packet, pick)).collect();
            // Six picks reach every slot of pools of up to six, and wrap around smaller ones.
            assert_eq!(
                seen,
                wanted(&decision),
                "{packet:?}\nsettings {:?}",
                self.settings
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn rules_and_oracle_agree_on_every_packet_after_every_change(
        six in any::<bool>(),
        kind in 0u8..32,
        before in prop::collection::vec(draws(), 0..4),
        after in prop::collection::vec(draws(), 1..6),
    ) {
        let mut world = World::new(if six { Family::V6 } else { Family::V4 }, kind);
        for draw in &before {
            draw.facts(world.family).into_iter().for_each(|fact| world.cluster.apply(fact));
        }
        world.start();
        world.check_packets();
        for draw in &after {
            world.change(draw);
            world.check_packets();
            world.check_restart();
        }
    }
}

#[test]
fn nothing_is_written_when_nothing_changed() {
    let mut world = World::new(Family::V4, 0);
    world.start();
    assert_eq!(
        world.compiler.update(&world.cluster.changes()),
        Tx::default()
    );
}
