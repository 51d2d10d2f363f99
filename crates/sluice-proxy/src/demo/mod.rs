//! `kube-proxy demo`: the proxy at work on a node of network namespaces, with no cluster and no
//! root.
//!
//! The engine and the driver are the daemon's own; only the node, its pods and its clients are
//! made up. Everything ends with the process.

mod arguments;
mod cast;
mod examples;
mod live;
mod proxy;
mod question;
mod synthetic;
mod table;

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use sluice_dataplane::iptables::driver::Choice;
use sluice_dataplane::iptables::ground::LocalhostNodePorts;
use sluice_dataplane::mode::Dataplane;

use crate::config::Mode;
use crate::sandbox::{Privilege, World, enter_user_namespace};

use cast::Cast;
use proxy::Proxy;

/// What the demonstration shows.
#[derive(Clone, Copy, Debug)]
pub struct DemoOptions {
    /// How services are carried out.
    pub mode: Mode,
    /// Synthetic services to add to those of `examples/`.
    pub services: Option<u32>,
}

/// `kube-proxy demo` with these words after it.
pub fn main(words: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    match arguments::parse(words)? {
        Some(options) => run(options),
        None => {
            println!("{}", arguments::USAGE);
            Ok(())
        }
    }
}

/// Shows the proxy at work and prints what it does. To be called before a second thread starts,
/// except as root, see [`enter_user_namespace`].
pub fn run(options: DemoOptions) -> anyhow::Result<()> {
    let mode = match options.mode {
        Mode::Nftables => Dataplane::Nftables,
        Mode::Iptables => Dataplane::Iptables(Choice::Host, LocalhostNodePorts::Closed),
        Mode::Ipvs | Mode::Userspace => {
            anyhow::bail!(
                "mode {} is not there yet, nftables and iptables are",
                options.mode
            )
        }
    };
    let privilege = enter_user_namespace()?;
    let cast = Cast::from_facts(examples::facts()?)?;
    let world = build(&cast, privilege)?;
    let mut proxy = Proxy::start(&world, mode, cast.settings())?;
    load(&mut proxy, &cast, options.services)?;
    show(&world, &cast)?;
    live::scale_up(&world, &mut proxy, &cast)?;
    live::drain(&world, &mut proxy, &cast)?;
    live::crash(&world, &mut proxy, &cast)?;
    proxy.stop()?;
    println!("\nDone. The namespaces, their rules and their servers end with this process.");
    Ok(())
}

fn build(cast: &Cast, privilege: Privilege) -> anyhow::Result<World> {
    let start = now();
    let world = World::create(&cast.world()).context("building the sandbox")?;
    let right = match privilege {
        Privilege::Already => "as root",
        Privilege::UserNamespace => "without root, in a user namespace",
    };
    println!(
        "A node with {} pods, another node and a host outside, each in a network namespace \
         ({right}): {}.",
        world.spec().local_pods.len(),
        elapsed(start)
    );
    let mut served = 0;
    let mut no_sctp = 0;
    for (address, protocol) in cast.servers() {
        match world.serve(protocol, address) {
            Ok(()) => served += 1,
            Err(error) if error.is_unsupported() => no_sctp += 1,
            Err(error) => return Err(error.into()),
        }
    }
    println!("{served} servers that answer with their own address and the caller's.");
    if no_sctp > 0 {
        println!("{no_sctp} SCTP servers are missing: this kernel has no SCTP sockets.");
    }
    Ok(world)
}

fn load(proxy: &mut Proxy, cast: &Cast, services: Option<u32>) -> anyhow::Result<()> {
    let start = now();
    proxy.feed(cast.listing())?;
    println!(
        "The {} services of examples/ are in the kernel: {}.",
        cast.count(),
        elapsed(start)
    );
    let Some(services) = services.filter(|count| *count > 0) else {
        return Ok(());
    };
    let facts = synthetic::facts(services, cast)?;
    let start = now();
    proxy.feed(facts)?;
    println!(
        "{services} more services with {} endpoints: {}.",
        services * synthetic::ENDPOINTS,
        elapsed(start)
    );
    let start = now();
    proxy.feed(synthetic::change(services, cast)?)?;
    println!("One endpoint of one of them replaced: {}.", elapsed(start));
    if let Some(memory) = memory() {
        println!("Memory of this process, sandbox included: {memory}.");
    }
    Ok(())
}

fn show(world: &World, cast: &Cast) -> anyhow::Result<()> {
    let questions = question::of_services(cast);
    let answers = question::ask_all(world, &questions)?;
    println!(
        "\n{} connections, {} of a kind:\n",
        answers.len() * question::TRIES,
        question::TRIES
    );
    println!("{}", table::of_answers(&questions, &answers, cast));
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a demonstration tells how long things took"
)]
fn now() -> Instant {
    Instant::now()
}

fn elapsed(start: Instant) -> String {
    time(now().saturating_duration_since(start))
}

/// Milliseconds, with decimals where they matter.
fn time(span: Duration) -> String {
    let milliseconds = span.as_secs_f64() * 1000.0;
    if milliseconds < 10.0 {
        format!("{milliseconds:.1} ms")
    } else {
        format!("{milliseconds:.0} ms")
    }
}

/// Resident memory of this process, from proc(5).
fn memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(format!("{} MB", kibibytes * 1024 / 1_000_000))
}
