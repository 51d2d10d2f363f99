//! Packets through the typed rules, compared with the oracle: on random clusters, after a fresh
//! start and after a change that was applied step by step.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod iptables_common;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use iptables_common::cluster;
use proptest::prelude::*;
use sluice_dataplane::iptables::Compiler;
use sluice_dataplane::iptables::ground::{LocalhostNodePorts, Options};
use sluice_dataplane::iptables::name::{Chain, Fixed, Hook, Table};
use sluice_dataplane::iptables::rule::{Match, Rule, Sense, State, Target};
use sluice_dataplane::iptables::ruleset::Ruleset;
use sluice_dataplane::iptables::tx::Observed;
use sluice_model::cluster::Cluster;
use sluice_model::fact::{Fact, Family, Protocol};
use sluice_model::oracle::{Decision, Origin, Packet, Peer, Reach, Target as Goal, decide};
use sluice_model::settings::{DetectLocal, NodePortAddresses, Settings};
use sluice_model::testing::{ip, net, no_service, no_slice, node, service, slice};

const MARK: u32 = 0x4000;

/// A packet on its way.
#[derive(Clone, Debug)]
struct Flight {
    packet: Packet,
    destination: SocketAddr,
    translated: bool,
    mark: u32,
    /// How likely it takes this way.
    chance: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// Came out at the chain's end.
    Through,
    Accepted,
    Dropped,
    Refused,
    Masqueraded,
}

/// Every way that packets can take through a chain.
fn walk(rules: &Ruleset, at: (Table, Chain), flight: Flight) -> Vec<(End, Flight)> {
    let mut ends = Vec::new();
    let mut going = vec![flight];
    let chain = rules.chains.get(&at);
    for rule in chain.unwrap_or_else(|| panic!("jump to missing chain {}", at.1)) {
        let mut next = Vec::new();
        for flight in going {
            let chance = matches(rule, &flight);
            if chance < 1.0 {
                let chance = flight.chance * (1.0 - chance);
                next.push(Flight {
                    chance,
                    ..flight.clone()
                });
            }
            if chance > 0.0 {
                let chance = flight.chance * chance;
                for (end, flight) in hit(rules, at.0, rule, Flight { chance, ..flight }) {
                    match end {
                        Some(end) => ends.push((end, flight)),
                        None => next.push(flight),
                    }
                }
            }
        }
        going = next;
    }
    ends.extend(going.into_iter().map(|flight| (End::Through, flight)));
    ends
}

/// Ways out of the chain by a rule that matched; `None` goes on to the next rule.
fn hit(
    rules: &Ruleset,
    table: Table,
    rule: &Rule,
    mut flight: Flight,
) -> Vec<(Option<End>, Flight)> {
    let mut end = None;
    match &rule.target {
        None => {}
        Some(Target::Jump(chain)) => return jump(rules, (table, Chain::Fixed(*chain)), flight),
        Some(Target::Service(chain)) => {
            return jump(rules, (table, Chain::Service(*chain)), flight);
        }
        Some(Target::Accept) => end = Some(End::Accepted),
        Some(Target::Drop) => end = Some(End::Dropped),
        Some(Target::Reject(_)) => end = Some(End::Refused),
        Some(Target::Return) => end = Some(End::Through),
        Some(Target::SetMark(mark)) => flight.mark |= mark,
        Some(Target::FlipMark(mark)) => flight.mark ^= mark,
        Some(Target::Masquerade(_)) => end = Some(End::Masqueraded),
        Some(Target::Dnat(to)) => {
            flight.destination = *to;
            flight.translated = true;
            end = Some(End::Accepted);
        }
    }
    vec![(end, flight)]
}

fn jump(rules: &Ruleset, to: (Table, Chain), flight: Flight) -> Vec<(Option<End>, Flight)> {
    let ends = walk(rules, to, flight).into_iter();
    ends.map(|(end, flight)| match end {
        End::Through => (None, flight),
        End::Accepted | End::Dropped | End::Refused | End::Masqueraded => (Some(end), flight),
    })
    .collect()
}

/// How likely a rule matches.
fn matches(rule: &Rule, flight: &Flight) -> f64 {
    rule.matches.iter().map(|m| one(m, flight)).product()
}

fn one(condition: &Match, flight: &Flight) -> f64 {
    let Flight {
        packet,
        destination,
        translated,
        mark,
        ..
    } = flight;
    let interface = match &packet.origin {
        Origin::Process => "",
        Origin::Interface(name) => name,
    };
    let sense = |sense: &Sense, holds: bool| holds == (*sense == Sense::Is);
    let to_node = !translated && packet.reach == Reach::Here;
    let holds = match condition {
        Match::Comment(_) | Match::Remember(_) | Match::Count(_) => true,
        Match::Protocol(protocol) => *protocol == packet.protocol,
        Match::Source(s, net) => sense(s, net.contains(&packet.source)),
        Match::Destination(s, net) => sense(s, net.contains(&destination.ip())),
        Match::Port(port) => *port == destination.port(),
        Match::Interface(s, name) => sense(s, interface == &**name),
        Match::InterfacePrefix(s, name) => sense(s, interface.starts_with(&**name)),
        Match::SourceIsLocal => packet.origin == Origin::Process,
        Match::DestinationIsLocal(s) => sense(s, to_node),
        Match::Mark(s, bits) => sense(s, mark & bits == *bits),
        Match::State(s, states) => {
            let dnat = *translated && states.contains(&State::Dnat);
            sense(s, states.contains(&State::New) || dnat)
        }
        // Nobody was there before.
        Match::Remembered(..) => false,
        Match::OneIn(n) => return 1.0 / *n as f64,
    };
    if holds { 1.0 } else { 0.0 }
}

/// What becomes of a packet: each outcome with its likelihood.
fn trace(rules: &Ruleset, packet: &Packet) -> BTreeMap<String, f64> {
    let flight = Flight {
        packet: packet.clone(),
        destination: SocketAddr::new(packet.destination, packet.port),
        translated: false,
        mark: 0,
        chance: 1.0,
    };
    let process = packet.origin == Origin::Process;
    let entry = if process {
        Hook::Output
    } else {
        Hook::Prerouting
    };
    let mut outcomes = BTreeMap::new();
    for (end, flight) in walk(rules, (Table::Nat, Chain::Hook(entry)), flight) {
        assert!(
            matches!(end, End::Through | End::Accepted),
            "{end:?} in nat"
        );
        let here = packet.reach == Reach::Here && !flight.translated;
        let hooks: &[Hook] = match (process, here) {
            (true, true) => &[Hook::Output, Hook::Input],
            (true, false) => &[Hook::Output],
            (false, true) => &[Hook::Input],
            (false, false) => &[Hook::Forward],
        };
        filter(rules, hooks, flight, &mut outcomes);
    }
    outcomes
}

fn filter(rules: &Ruleset, hooks: &[Hook], flight: Flight, outcomes: &mut BTreeMap<String, f64>) {
    let Some((hook, rest)) = hooks.split_first() else {
        return leave(rules, flight, outcomes);
    };
    for (end, flight) in walk(rules, (Table::Filter, Chain::Hook(*hook)), flight) {
        let word = match end {
            End::Through | End::Accepted => {
                filter(rules, rest, flight, outcomes);
                continue;
            }
            End::Dropped => "dropped",
            End::Refused => "refused",
            End::Masqueraded => panic!("masquerade in filter"),
        };
        *outcomes.entry(word.to_owned()).or_insert(0.0) += flight.chance;
    }
}

fn leave(rules: &Ruleset, flight: Flight, outcomes: &mut BTreeMap<String, f64>) {
    for (end, flight) in walk(rules, (Table::Nat, Chain::Hook(Hook::Postrouting)), flight) {
        let seen = match end {
            End::Masqueraded => Peer::Masqueraded,
            End::Through | End::Accepted | End::Dropped | End::Refused => Peer::Kept,
        };
        let word = match (flight.translated, seen) {
            (true, peer) => format!("{} {peer:?}", flight.destination),
            (false, Peer::Kept) => "untouched".to_owned(),
            (false, Peer::Masqueraded) => "untouched, but masqueraded".to_owned(),
        };
        *outcomes.entry(word).or_insert(0.0) += flight.chance;
    }
}

fn expected(decision: &Decision) -> BTreeMap<String, f64> {
    let one = |word: &str| BTreeMap::from([(word.to_owned(), 1.0)]);
    match decision {
        Decision::Untouched => one("untouched"),
        Decision::Refused => one("refused"),
        Decision::Dropped => one("dropped"),
        Decision::Served {
            targets,
            affinity: _,
        } => {
            let share = 1.0 / targets.len() as f64;
            let word = |t: &Goal| format!("{} {:?}", SocketAddr::new(t.ip, t.port), t.peer);
            targets.iter().map(|target| (word(target), share)).collect()
        }
    }
}

/// Addresses of the node.
const NODE: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

fn packets() -> Vec<Packet> {
    let pod = |name: &str| Origin::Interface(name.into());
    let sources = [
        ("10.1.0.1", pod("cni0")),
        ("10.1.0.2", pod("cni0")),
        ("10.2.0.1", pod("eth0")),
        ("203.0.113.5", pod("eth0")),
        ("198.51.100.7", pod("eth0")),
        (NODE[0], Origin::Process),
    ];
    let destinations = [
        "172.30.0.1",
        "172.30.0.2",
        "172.30.0.3",
        "172.30.9.9",
        "172.31.0.1",
        "192.0.2.1",
        "192.0.2.2",
        "192.0.2.10",
        "192.0.2.11",
    ];
    let ports = [
        (Protocol::Tcp, 80),
        (Protocol::Tcp, 81),
        (Protocol::Udp, 80),
        (Protocol::Sctp, 80),
        (Protocol::Tcp, 30_080),
        (Protocol::Udp, 30_080),
        (Protocol::Tcp, 30_081),
    ];
    let mut packets = Vec::new();
    for (source, origin) in &sources {
        for destination in destinations {
            let reach = if NODE.contains(&destination) {
                Reach::Here
            } else {
                Reach::Elsewhere
            };
            packets.extend(ports.iter().map(|(protocol, port)| Packet {
                source: ip(source),
                origin: origin.clone(),
                destination: ip(destination),
                reach,
                port: *port,
                protocol: *protocol,
            }));
        }
    }
    packets
}

fn facts() -> impl Strategy<Value = Vec<Fact>> {
    let one = |n: u8| {
        let rules = (any::<bool>(), any::<bool>(), prop::option::of(Just(60u32)));
        let places = (
            prop::sample::subsequence(vec!["192.0.2.10", "192.0.2.2"], 0..=2),
            prop::sample::subsequence(vec!["192.0.2.11", "192.0.2.10"], 0..=2),
            prop::option::of(prop::sample::select(vec![30_080u16, 30_081])),
            prop::sample::subsequence(vec!["203.0.113.0/24", "192.0.2.0/29", "10.1.0.0/31"], 0..=3),
        );
        let protocol = prop::sample::select(Protocol::ALL.to_vec());
        let endpoints = prop::sample::subsequence(
            vec![
                ("10.1.0.1", "here"),
                ("10.1.0.2", "here"),
                ("10.2.0.1", "there"),
                ("10.2.0.2", "there"),
            ],
            0..=4,
        );
        (
            prop::bool::weighted(0.9),
            rules,
            places,
            protocol,
            endpoints,
        )
            .prop_map(move |(there, rules, places, protocol, endpoints)| {
                let name = format!("ns/s{n}");
                if !there {
                    return vec![no_service(&name), no_slice(&name)];
                }
                let mut service = service(&name)
                    .cluster_ip(&format!("172.30.0.{n}"))
                    .port(protocol, "p", 80);
                let (external, balancers, node_port, ranges) = places;
                service.service.external_ips = external.into_iter().map(ip).collect();
                service = balancers
                    .into_iter()
                    .fold(service, |s, ip| s.load_balancer(ip));
                service = node_port
                    .into_iter()
                    .fold(service, |s, port| s.node_port(port));
                service = ranges
                    .into_iter()
                    .fold(service, |s, net| s.source_range(net));
                let (external_local, internal_local, affinity) = rules;
                service = if external_local {
                    service.external_local()
                } else {
                    service
                };
                service = if internal_local {
                    service.internal_local()
                } else {
                    service
                };
                service.service.affinity_seconds = affinity;
                let mut slice = slice(&name, &format!("s{n}")).port(protocol, "p", 8080);
                slice = endpoints
                    .into_iter()
                    .fold(slice, |s, (ip, node)| s.ready(ip, node));
                vec![service.fact(), slice.fact()]
            })
    };
    let cidrs = prop::option::of(prop::sample::select(vec!["172.30.0.0/16", "172.30.0.2/31"]));
    (one(1), one(2), one(3), cidrs).prop_map(|(a, b, c, cidrs)| {
        let cidrs = cidrs.map(|text| vec![net(text)]);
        [a, b, c, vec![Fact::Cidrs("kubernetes".into(), cidrs)]].concat()
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let detect = prop_oneof![
        Just(DetectLocal::ClusterCidr(vec![net("10.1.0.0/16")])),
        Just(DetectLocal::ClusterCidr(vec![])),
        Just(DetectLocal::BridgeInterface("cni0".into())),
        Just(DetectLocal::InterfaceNamePrefix("cni".into())),
    ];
    let ports = prop_oneof![
        Just(NodePortAddresses::Primary),
        Just(NodePortAddresses::Within(vec![])),
        Just(NodePortAddresses::Within(vec![net("192.0.2.0/30")])),
    ];
    (detect, ports, any::<bool>()).prop_map(
        |(detect_local, node_port_addresses, masquerade_all)| Settings {
            detect_local,
            node_port_addresses,
            masquerade_all,
            ..Settings::for_node("here")
        },
    )
}

fn check(rules: &Ruleset, cluster: &Cluster) -> Result<(), TestCaseError> {
    let routes = || cluster.routes().map(|route| &**route);
    let view = cluster.node_view(Family::V4);
    for packet in packets() {
        let expected = expected(&decide(routes(), view, &packet));
        let traced = trace(rules, &packet);
        prop_assert!(
            traced.keys().eq(expected.keys())
                && traced
                    .iter()
                    .all(|(word, chance)| (chance - expected[word]).abs() < 1e-9),
            "{packet:?}\nrules: {traced:?}\noracle: {expected:?}\n{rules}"
        );
    }
    Ok(())
}

/// Chains with rules in an order that does not depend on history.
fn sorted(ruleset: &Ruleset) -> BTreeMap<(Table, Chain), Vec<String>> {
    let lines = |(at, rules): (&(Table, Chain), &Vec<Rule>)| {
        let mut lines: Vec<String> = rules.iter().map(ToString::to_string).collect();
        if matches!(at.1, Chain::Fixed(_)) {
            lines.sort();
        }
        (*at, lines)
    };
    ruleset.chains.iter().map(lines).collect()
}

fn last_is_for_node_ports(ruleset: &Ruleset) -> bool {
    let services = &ruleset.chains[&(Table::Nat, Chain::Fixed(Fixed::Services))];
    let node_ports = |rule: &Rule| rule.target == Some(Target::Jump(Fixed::NodePorts));
    services
        .iter()
        .skip_while(|rule| !node_ports(rule))
        .all(node_ports)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(120) })]

    #[test]
    fn packets_fare_as_the_oracle_says_and_history_does_not_matter(
        settings in settings(),
        before in facts(),
        after in facts(),
    ) {
        let nodes = vec![
            node("here", &["192.0.2.1"], None),
            Fact::LocalAddresses(NODE.iter().map(|text| ip(text)).collect::<Vec<IpAddr>>()),
        ];
        let mut cluster = cluster(settings, [nodes, before].concat());
        let options = Options {
            localhost: LocalhostNodePorts::Closed,
            ..Options::with_mark(MARK)
        };
        let mut compiler = Compiler::new(&options);
        let mut kernel = Ruleset::default();
        let observed = Observed { families: [Some(kernel.listing()), None] };
        compiler.adopt(&cluster.changes(), &observed);
        for part in &compiler.resync(&observed).0.parts {
            kernel.apply(part)?;
        }
        check(&kernel, &cluster)?;
        prop_assert_eq!(sorted(&kernel), sorted(&compiler.ruleset(Family::V4)));

        after.into_iter().for_each(|fact| cluster.apply(fact));
        let tx = compiler.update(&cluster.changes());
        for part in tx.parts.iter().filter(|part| part.family == Family::V4) {
            kernel.apply(part)?;
        }
        check(&kernel, &cluster)?;
        prop_assert_eq!(sorted(&kernel), sorted(&compiler.ruleset(Family::V4)));
        prop_assert!(last_is_for_node_ports(&kernel));
        let observed = Observed { families: [Some(kernel.listing()), None] };
        compiler.settle(&Default::default());
        let (tx, _) = compiler.resync(&observed);
        prop_assert!(tx.is_empty(), "{tx:?}");
    }
}
