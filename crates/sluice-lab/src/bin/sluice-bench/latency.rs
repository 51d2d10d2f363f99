//! What a connection pays for a virtual address in a full table.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use anyhow::Context as _;
use sluice_model::fact::{
    Conditions, Endpoint, Fact, Family, Protocol, Service, ServicePort, Slice, SlicePort,
};
use sluice_model::name::{Name, ObjectKey};
use sluice_model::settings::{DetectLocal, Settings};
use sluice_proxy::sandbox::{Place, World, WorldSpec};

use crate::figures::{Latencies, Latency, Spread, median, milliseconds, now};
use crate::fleet::{Fleet, Size};
use crate::subject::Subject;

/// The cluster IP under measurement, beyond those of any fleet.
const VIP: Ipv4Addr = Ipv4Addr::new(10, 111, 0, 1);
/// Endpoints listen on two ports, so that the two kinds of connection never share a connection
/// tracking entry: one would have to be moved to another source port.
const DIRECT: u16 = 8080;
const BEHIND_VIP: u16 = 8081;
const ENDPOINTS: u8 = 10;
const ROUNDS: u32 = 15;

/// Connects `pairs` times each way, in each round, from a pod and from the node.
pub(crate) fn measure(size: Size, pairs: u32) -> anyhow::Result<Latencies> {
    let world = World::create(&spec())?;
    listen(&world)?;
    let settings = Settings {
        detect_local: DetectLocal::ClusterCidr(vec!["198.51.100.0/24".parse()?]),
        ..Fleet::settings()
    };
    let netns = world.netns_fd(Place::Node)?.try_clone_to_owned()?;
    let mut subject = Subject::start(netns, settings)?;
    let mut facts = Fleet::new(size).listing();
    facts.extend(measured_service());
    subject.carry_out(facts)?;
    let from_pod = rounds(&world, Place::Pod(pod(ENDPOINTS + 1)), pairs)?;
    let from_node = rounds(&world, Place::Node, pairs)?;
    subject.stop()?;
    Ok(Latencies {
        from_pod,
        from_node,
    })
}

/// Ten pods that serve and one that asks.
fn spec() -> WorldSpec {
    WorldSpec {
        local_pods: (1..=ENDPOINTS + 1).map(|n| vec![pod(n)]).collect(),
        ..WorldSpec::default()
    }
}

fn pod(number: u8) -> IpAddr {
    [198, 51, 100, number].into()
}

/// Servers that close every connection at once: the client knows by that when all is quiet again.
/// They end with the process.
fn listen(world: &World) -> anyhow::Result<()> {
    for number in 1..=ENDPOINTS {
        for port in [DIRECT, BEHIND_VIP] {
            let address = SocketAddr::new(pod(number), port);
            let listener = world
                .run_in(Place::Pod(pod(number)), move || TcpListener::bind(address))?
                .with_context(|| format!("listening on {address}"))?;
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || listener.incoming().for_each(drop))?;
        }
    }
    Ok(())
}

fn measured_service() -> [Fact; 2] {
    let port_name = || Name::from("http");
    let service = Service {
        created: Some(0),
        families: vec![Family::V4],
        cluster_ips: vec![VIP.into()],
        ports: vec![ServicePort {
            name: port_name(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 0,
        }],
        ..Service::default()
    };
    let endpoints = (1..=ENDPOINTS).map(|number| Endpoint {
        ip: pod(number),
        conditions: Conditions::new(None, None, None),
        node: Some("node-0".into()),
        hints: None,
    });
    let slice = Slice {
        service: Some("measured".into()),
        family: Some(Family::V4),
        ports: vec![SlicePort {
            name: Some(port_name()),
            protocol: Protocol::Tcp,
            port: Some(BEHIND_VIP),
        }],
        endpoints: endpoints.collect(),
        ..Slice::default()
    };
    let key = |name| ObjectKey::new("bench", name);
    [
        Fact::Service(key("measured"), Some(Box::new(service))),
        Fact::Slice(key("measured-1"), Some(Box::new(slice))),
    ]
}

fn rounds(world: &World, from: Place, pairs: u32) -> anyhow::Result<Latency> {
    let (mut direct, mut virtual_ip, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // One round to warm up, which does not count.
    for round in 0..=ROUNDS {
        let (a, b) = world.run_in(from, move || interleaved(pairs))??;
        if round > 0 {
            ratios.push(median(b.clone()) / median(a.clone()));
            direct.extend(a);
            virtual_ip.extend(b);
        }
    }
    let smallest = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = ratios.iter().copied().fold(0.0, f64::max);
    Ok(Latency {
        direct: Spread::of(direct),
        virtual_ip: Spread::of(virtual_ip),
        ratio: median(ratios),
        ratio_range: [smallest, largest],
    })
}

/// Direct and virtual connections by turns, so that whatever else the machine does meets both.
fn interleaved(pairs: u32) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut direct, mut virtual_ip) = (Vec::new(), Vec::new());
    let virtual_address = SocketAddr::new(VIP.into(), 80);
    for turn in 0..pairs {
        let server = pod((turn % u32::from(ENDPOINTS)) as u8 + 1);
        let to = SocketAddr::new(server, DIRECT);
        // Who goes first changes too.
        if turn % 2 == 0 {
            direct.push(connect(to)?);
            virtual_ip.push(connect(virtual_address)?);
        } else {
            virtual_ip.push(connect(virtual_address)?);
            direct.push(connect(to)?);
        }
    }
    Ok((direct, virtual_ip))
}

/// Milliseconds for one handshake; the connection is over when this returns.
fn connect(to: SocketAddr) -> anyhow::Result<f64> {
    let start = now();
    let mut stream = TcpStream::connect(to).with_context(|| format!("connecting to {to}"))?;
    let took = milliseconds(start.elapsed());
    let ended = stream.read(&mut [0; 1]);
    anyhow::ensure!(matches!(ended, Ok(0)), "{to} answered {ended:?}");
    Ok(took)
}
