//! The sandbox on this kernel: who reaches whom, and what is left afterwards.
//!
//! No test harness: an ordinary user must enter a user namespace before the first thread starts.
//! Run as root, every case runs twice: as root, and as a user without rights.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this file is a test")]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use sluice_model::fact::Protocol;
use sluice_proxy::sandbox::{
    Outcome, Place, PodLink, Privilege, Probe, World, WorldSpec, enter_user_namespace,
};

/// A case by its name.
type Case = (&'static str, fn());

const CASES: &[Case] = &[
    (
        "pods_reach_each_other_with_their_own_source",
        pods_reach_each_other_with_their_own_source,
    ),
    (
        "the_outside_host_reaches_node_and_pods",
        the_outside_host_reaches_node_and_pods,
    ),
    (
        "a_bridge_carries_pods_as_well",
        a_bridge_carries_pods_as_well,
    ),
    (
        "a_pod_reaches_itself_through_the_node",
        a_pod_reaches_itself_through_the_node,
    ),
    ("a_stopped_server_refuses", a_stopped_server_refuses),
    (
        "an_address_that_nobody_has_times_out",
        an_address_that_nobody_has_times_out,
    ),
    (
        "a_rejected_packet_is_a_refusal",
        a_rejected_packet_is_a_refusal,
    ),
    (
        "connections_stay_open_until_their_server_stops",
        connections_stay_open,
    ),
    ("many_probes_fly_at_once", many_probes_fly_at_once),
    (
        "without_ipv6_addresses_there_is_no_ipv6",
        without_ipv6_addresses_there_is_no_ipv6,
    ),
    (
        "nothing_is_left_of_a_dropped_world",
        nothing_is_left_of_a_dropped_world,
    ),
];

/// Tells the second run, which has no rights, from the first.
const UNPRIVILEGED: &str = "--as-nobody";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let second = words.iter().any(|word| word == UNPRIVILEGED);
    words.retain(|word| word != UNPRIVILEGED);
    if words.iter().any(|word| word == "--list") {
        CASES.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let privilege = match enter_user_namespace() {
        Ok(privilege) => privilege,
        Err(error) => {
            eprintln!("the sandbox cannot be tested here: {error}");
            return ExitCode::FAILURE;
        }
    };
    let right = match privilege {
        Privilege::Already => "root",
        Privilege::UserNamespace => "user namespace",
    };
    for (name, case) in selected(&words) {
        case();
        println!("test {name} ({right}) ... ok");
    }
    if privilege == Privilege::UserNamespace || second {
        return ExitCode::SUCCESS;
    }
    run_as_nobody(&words)
}

fn selected(words: &[String]) -> impl Iterator<Item = &'static Case> {
    let filters: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    CASES.iter().filter(move |(name, _)| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    })
}

/// The same cases in a process of the user `nobody`.
fn run_as_nobody(words: &[String]) -> ExitCode {
    let mut own = Command::new("/proc/self/exe");
    let own = own
        .args(words)
        .arg(UNPRIVILEGED)
        .current_dir("/")
        .gid(65534)
        .uid(65534);
    match own.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            eprintln!("the unprivileged run ended with {status}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("the unprivileged run did not start: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn pod(text: &str) -> Place {
    Place::Pod(ip(text))
}

fn probe(world: &World, from: Place, protocol: Protocol, to: &str) -> Outcome {
    let mut probe = Probe::new(from, protocol, at(to));
    probe.timeout = Duration::from_secs(3);
    world.probe(&probe).unwrap()
}

/// Which server answered, and the address that it saw.
#[track_caller]
fn assert_reached(outcome: Outcome, endpoint: &str, source: &str) {
    match outcome {
        Outcome::Reached {
            endpoint: seen,
            source: from,
        } => assert_eq!((seen, from.ip()), (at(endpoint), ip(source))),
        other @ (Outcome::Refused
        | Outcome::TimedOut
        | Outcome::Closed
        | Outcome::Unreachable(_)) => panic!("{endpoint} from {source}: {other}"),
    }
}

fn pods_reach_each_other_with_their_own_source() {
    let world = World::create(&WorldSpec::default()).unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for (from, to) in [
            ("198.51.100.1", "198.51.100.2:8080"),
            ("198.51.100.1", "198.51.100.130:8080"),
            ("198.51.100.200", "198.51.100.2:8080"),
            ("fd00:10:1::1", "[fd00:10:1::2]:8080"),
            ("fd00:10:1::1", "[fd00:10:2::77]:8080"),
            ("fd00:10:2::99", "[fd00:10:1::2]:8080"),
        ] {
            if !world.served().contains(&(at(to), protocol)) {
                world.serve(protocol, at(to)).unwrap();
            }
            assert_reached(probe(&world, pod(from), protocol, to), to, from);
        }
    }
    // Named by one address, asking from the other.
    let twin = probe(
        &world,
        pod("198.51.100.1"),
        Protocol::Tcp,
        "[fd00:10:1::2]:8080",
    );
    assert_reached(twin, "[fd00:10:1::2]:8080", "fd00:10:1::1");
}

fn the_outside_host_reaches_node_and_pods() {
    let world = World::create(&WorldSpec::default()).unwrap();
    for (to, source) in [
        ("192.0.2.11:10256", "192.0.2.200"),
        ("[2001:db8:1::11]:10256", "2001:db8:1::200"),
        ("198.51.100.3:53", "192.0.2.200"),
        ("198.51.100.140:53", "192.0.2.200"),
        ("[fd00:10:1::3]:53", "2001:db8:1::200"),
        ("[fd00:10:2::3]:53", "2001:db8:1::200"),
    ] {
        world.serve(Protocol::Tcp, at(to)).unwrap();
        world.serve(Protocol::Udp, at(to)).unwrap();
        assert_reached(probe(&world, Place::Outside, Protocol::Tcp, to), to, source);
        assert_reached(probe(&world, Place::Outside, Protocol::Udp, to), to, source);
    }
    for (from, source) in [
        (Place::Node, "192.0.2.11"),
        (Place::OtherNode, "192.0.2.12"),
    ] {
        let outcome = probe(&world, from, Protocol::Tcp, "198.51.100.3:53");
        assert_reached(outcome, "198.51.100.3:53", source);
    }
}

fn a_bridge_carries_pods_as_well() {
    let spec = WorldSpec {
        pod_link: PodLink::Bridge("cbr0".into()),
        ..WorldSpec::default()
    };
    let world = World::create(&spec).unwrap();
    for (from, to) in [
        ("198.51.100.1", "198.51.100.2:80"),
        ("198.51.100.1", "198.51.100.130:80"),
        ("fd00:10:1::1", "[fd00:10:1::2]:80"),
        ("fd00:10:2::9", "[fd00:10:1::3]:80"),
    ] {
        world.serve(Protocol::Tcp, at(to)).unwrap();
        assert_reached(probe(&world, pod(from), Protocol::Tcp, to), to, from);
    }
    let rules = "table ip t {
        chain c { type filter hook forward priority 0; iifname != cbr0 drop; }
    }";
    nft(&world, rules);
    let outcome = probe(
        &world,
        pod("198.51.100.1"),
        Protocol::Tcp,
        "198.51.100.2:80",
    );
    assert_reached(outcome, "198.51.100.2:80", "198.51.100.1");
}

/// Loads rules on the node.
fn nft(world: &World, rules: &str) {
    // A rule ends with its line.
    let rules = rules.replace('}', "\n}");
    let status = world
        .run_in(Place::Node, move || {
            Command::new("nft").arg(rules).status().unwrap()
        })
        .unwrap();
    assert!(status.success());
}

fn a_pod_reaches_itself_through_the_node() {
    for pod_link in [
        PodLink::Interfaces("pod".into()),
        PodLink::Bridge("cbr0".into()),
    ] {
        let world = World::create(&WorldSpec {
            pod_link,
            ..WorldSpec::default()
        })
        .unwrap();
        let rules = "table inet t {
            chain pre { type nat hook prerouting priority -100;
                ip daddr 10.96.0.1 tcp dport 80 dnat ip to 198.51.100.1:8080
                ip6 daddr fd00:10:96::1 tcp dport 80 dnat ip6 to [fd00:10:1::1]:8080 }
            chain out { type nat hook output priority -100;
                ip daddr 10.96.0.1 tcp dport 80 dnat ip to 198.51.100.1:8080 }
            chain post { type nat hook postrouting priority 100;
                ct status dnat masquerade }
        }";
        nft(&world, rules);
        for (own, service, endpoint, node) in [
            (
                "198.51.100.1",
                "10.96.0.1:80",
                "198.51.100.1:8080",
                "192.0.2.11",
            ),
            (
                "fd00:10:1::1",
                "[fd00:10:96::1]:80",
                "[fd00:10:1::1]:8080",
                "2001:db8:1::11",
            ),
        ] {
            world.serve(Protocol::Tcp, at(endpoint)).unwrap();
            let outcome = probe(&world, pod(own), Protocol::Tcp, service);
            assert_reached(outcome, endpoint, node);
        }
        let from_node = probe(&world, Place::Node, Protocol::Tcp, "10.96.0.1:80");
        assert_reached(from_node, "198.51.100.1:8080", "192.0.2.11");
        let from_outside = probe(&world, Place::Outside, Protocol::Tcp, "10.96.0.1:80");
        assert_reached(from_outside, "198.51.100.1:8080", "192.0.2.11");
    }
}

fn a_stopped_server_refuses() {
    let world = World::create(&WorldSpec::default()).unwrap();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        world.serve(protocol, at("198.51.100.2:8080")).unwrap();
        world.serve(protocol, at("198.51.100.2:8081")).unwrap();
    }
    assert_eq!(world.stop_serving(ip("198.51.100.2")), 4);
    assert_eq!(world.served(), []);
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for from in [
            pod("198.51.100.1"),
            Place::Node,
            Place::Outside,
            pod("198.51.100.129"),
        ] {
            let outcome = probe(&world, from, protocol, "198.51.100.2:8080");
            assert_eq!(outcome, Outcome::Refused, "{protocol} from {from}");
        }
    }
}

fn an_address_that_nobody_has_times_out() {
    let world = World::create(&WorldSpec::default()).unwrap();
    let probes: Vec<Probe> = [Place::Node, Place::Outside, pod("198.51.100.1")]
        .into_iter()
        .flat_map(|from| {
            [Protocol::Tcp, Protocol::Udp].map(|protocol| Probe {
                timeout: Duration::from_millis(200),
                ..Probe::new(from, protocol, at("10.96.0.77:80"))
            })
        })
        .collect();
    assert_eq!(world.probe_all(&probes).unwrap(), [Outcome::TimedOut; 6]);
    let error = world.serve(Protocol::Tcp, at("10.96.0.77:80")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nobody in the sandbox has the address 10.96.0.77"
    );
}

fn a_rejected_packet_is_a_refusal() {
    let world = World::create(&WorldSpec::default()).unwrap();
    let rules = "table inet t {
        chain f { type filter hook forward priority 0; meta l4proto { tcp, udp } th dport 9 reject }
        chain o { type filter hook output priority 0;
            meta l4proto { tcp, udp } th dport 9 reject; udp dport 10 drop }
    }";
    nft(&world, rules);
    for from in [pod("198.51.100.1"), Place::Node, Place::Outside] {
        for (protocol, to) in [
            (Protocol::Tcp, "198.51.100.2:9"),
            (Protocol::Udp, "198.51.100.2:9"),
            (Protocol::Udp, "203.0.113.1:9"),
        ] {
            let outcome = probe(&world, from, protocol, to);
            assert_eq!(outcome, Outcome::Refused, "{protocol} {to} from {from}");
        }
    }
    // Kernels hold back ICMP messages after a few per second and destination unless told not to.
    for to in ["198.51.100.2:9", "[fd00:10:1::2]:9"] {
        let burst = vec![Probe::new(Place::Outside, Protocol::Tcp, at(to)); 100];
        assert_eq!(
            world.probe_all(&burst).unwrap(),
            [Outcome::Refused; 100],
            "{to}"
        );
    }
    let mut dropped = Probe::new(Place::Node, Protocol::Udp, at("198.51.100.2:10"));
    dropped.timeout = Duration::from_millis(200);
    assert_eq!(world.probe(&dropped).unwrap(), Outcome::TimedOut);
}

fn connections_stay_open() {
    let world = World::create(&WorldSpec::default()).unwrap();
    let to = at("198.51.100.2:8080");
    world.serve(Protocol::Tcp, to).unwrap();
    let request = Probe::new(Place::Outside, Protocol::Tcp, to);
    let open = world.connect(&request).unwrap().unwrap();
    assert_eq!((open.endpoint, open.source.ip()), (to, ip("192.0.2.200")));
    let second = Duration::from_secs(1);
    assert_eq!(open.exchange(second), Ok(()));
    assert_eq!(open.exchange(second), Ok(()));
    world.stop_serving(to.ip());
    assert_eq!(open.exchange(second), Err(Outcome::Closed));
}

fn many_probes_fly_at_once() {
    let world = World::create(&WorldSpec::default()).unwrap();
    let to = at("198.51.100.2:8080");
    world.serve(Protocol::Tcp, to).unwrap();
    let probes = vec![Probe::new(pod("198.51.100.1"), Protocol::Tcp, to); 600];
    let outcomes = world.probe_all(&probes).unwrap();
    assert_eq!(outcomes.len(), 600);
    for outcome in outcomes {
        assert_reached(outcome, "198.51.100.2:8080", "198.51.100.1");
    }
}

fn without_ipv6_addresses_there_is_no_ipv6() {
    let mut spec = WorldSpec::default();
    spec.node.truncate(1);
    let world = World::create(&spec).unwrap();
    assert_eq!(world.spec().local_pods[0], [ip("198.51.100.1")]);
    let error = world
        .serve(Protocol::Tcp, at("[fd00:10:1::1]:80"))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "nobody in the sandbox has the address fd00:10:1::1"
    );
}

fn nothing_is_left_of_a_dropped_world() {
    let before = own_resources();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let world = World::create(&WorldSpec::default()).unwrap();
    world.serve(Protocol::Tcp, at("198.51.100.2:8080")).unwrap();
    let to = Probe::new(Place::Outside, Protocol::Tcp, at("198.51.100.2:8080"));
    let open = world.connect(&to).unwrap().unwrap();
    drop(open);
    assert_ne!(own_resources(), before);
    drop(world);
    assert_eq!(own_resources(), before);
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap(), mounts);
}

/// Threads and descriptors of this process: all that holds a namespace.
fn own_resources() -> (usize, usize) {
    let count = |folder: &str| fs::read_dir(folder).unwrap().count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}
