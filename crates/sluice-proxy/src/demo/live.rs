//! Changes while connections are being made: which of them notice.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sluice_model::fact::{
    Conditions, Endpoint, Fact, Family, Protocol, Service, ServiceType, Slice, TrafficPolicy,
};
use sluice_model::name::ObjectKey;

use super::cast::Cast;
use super::proxy::Proxy;
use super::question::Answer;
use super::{now, time};
use crate::sandbox::{Outcome, Place, Probe, World};

/// How many endpoints a scale-up adds.
const ADDED: usize = 3;

/// Connections that must have been made before a change, and again after it.
const AROUND: usize = 200;

/// A service whose endpoints change, in IPv4.
struct Star<'a> {
    key: &'a ObjectKey,
    at: SocketAddr,
    slice_key: &'a ObjectKey,
    slice: &'a Slice,
    port: u16,
    from: Vec<Place>,
}

impl<'a> Star<'a> {
    /// The plain service with the most endpoints, at least two.
    fn find(cast: &'a Cast) -> anyhow::Result<Star<'a>> {
        cast.services
            .iter()
            .filter(|(_, service)| is_plain(service))
            .filter_map(|(key, service)| Star::of(cast, key, service))
            .max_by_key(|star| star.slice.endpoints.len())
            .context("the manifests have no plain TCP service with two endpoints")
    }

    fn of(cast: &'a Cast, key: &'a ObjectKey, service: &Service) -> Option<Star<'a>> {
        let ip = service.cluster_ips.iter().find(|ip| ip.is_ipv4())?;
        let port = service
            .ports
            .first()
            .filter(|port| port.protocol == Protocol::Tcp)?;
        let mut slices = cast.slices_of(key, Family::V4);
        let (slice_key, slice) = slices
            .next()
            .filter(|(_, slice)| slice.endpoints.len() > 1)?;
        let client = cast.client().into_iter().find(IpAddr::is_ipv4);
        let pod = client.map(Place::Pod);
        Some(Star {
            key,
            at: SocketAddr::new(*ip, port.port),
            slice_key,
            slice,
            port: slice.ports.first()?.port?,
            from: [Place::Node].into_iter().chain(pod).collect(),
        })
    }

    fn fact(&self, slice: Slice) -> Vec<Fact> {
        vec![Fact::Slice(self.slice_key.clone(), Some(Box::new(slice)))]
    }

    fn probe(&self, from: Place) -> Probe {
        Probe {
            timeout: Duration::from_secs(2),
            ..Probe::new(from, Protocol::Tcp, self.at)
        }
    }

    fn probes(&self) -> Vec<Probe> {
        self.from
            .iter()
            .flat_map(|from| [self.probe(*from); 8])
            .collect()
    }

    /// The last endpoint, and what the slice says without it.
    fn without_last(&self) -> anyhow::Result<(Endpoint, Slice)> {
        let mut slice = self.slice.clone();
        let last = slice.endpoints.pop().context("the service has endpoints")?;
        Ok((last, slice))
    }

    fn on_port(&self, ip: IpAddr) -> SocketAddr {
        SocketAddr::new(ip, self.port)
    }
}

fn is_plain(service: &Service) -> bool {
    let reachable = match service.service_type {
        ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::LoadBalancer => true,
        ServiceType::ExternalName => false,
    };
    reachable
        && !service.headless
        && service.affinity_seconds.is_none()
        && service.internal_policy == TrafficPolicy::Cluster
}

/// Adds endpoints.
pub(super) fn scale_up(world: &World, proxy: &mut Proxy, cast: &Cast) -> anyhow::Result<()> {
    let star = Star::find(cast)?;
    let mut slice = star.slice.clone();
    let mut added = Vec::new();
    for number in 0..ADDED {
        // Beyond the addresses of synthetic endpoints, which serve nothing.
        let ip = cast.spare(Family::V4, 64 + number)?;
        world.serve(Protocol::Tcp, star.on_port(ip))?;
        added.push(star.on_port(ip));
        slice.endpoints.push(endpoint(ip));
    }
    let before = star.slice.endpoints.len();
    let after = slice.endpoints.len();
    println!(
        "\nScaling {} from {before} to {after} endpoints under load:",
        star.key
    );
    let start = now();
    let (settled, traffic) = under_load(world, &star.probes(), || {
        let start = now();
        proxy.feed(star.fact(slice))?;
        Ok((start, now()))
    })?;
    println!("  in the kernel after {}", since(settled.0, settled.1));
    let first = added.iter().filter_map(|ip| traffic.first.get(ip)).min();
    if let Some(first) = first {
        println!(
            "  a new endpoint answered {} after the change",
            since(settled.0, *first)
        );
    }
    let reached = added
        .iter()
        .filter(|ip| traffic.first.contains_key(ip))
        .count();
    println!("  {reached} of {ADDED} new endpoints answered");
    println!("  {}", traffic.summary(start));
    let start = now();
    proxy.feed(star.fact(star.slice.clone()))?;
    println!("  scaled back: in the kernel after {}", since(start, now()));
    for endpoint in &added {
        world.stop_serving(endpoint.ip());
    }
    Ok(())
}

/// Takes an endpoint away as Kubernetes does when a pod is deleted: first it is terminating, then
/// it is gone.
pub(super) fn drain(world: &World, proxy: &mut Proxy, cast: &Cast) -> anyhow::Result<()> {
    let star = Star::find(cast)?;
    let (last, rest) = star.without_last()?;
    let address = star.on_port(last.ip);
    println!("\nDeleting the pod {} of {} under load:", last.ip, star.key);
    let held = hold(world, &star, address)?;
    let mut terminating = star.slice.clone();
    if let Some(endpoint) = terminating.endpoints.last_mut() {
        endpoint.conditions = Conditions::new(Some(false), Some(true), Some(true));
    }
    let start = now();
    let (span, traffic) = under_load(world, &star.probes(), || {
        let start = now();
        proxy.feed(star.fact(terminating))?;
        Ok((start, now()))
    })?;
    println!(
        "  it is terminating: in the kernel after {}",
        since(span.0, span.1)
    );
    println!("  {}", traffic.summary(start));
    let late = ask(world, &star.probes())?;
    println!(
        "  of {} new connections it gets {}",
        total(&late),
        late.endpoints.get(&address).unwrap_or(&0)
    );
    match held.exchange(Duration::from_secs(1)) {
        Ok(()) => println!("  the connection that was open to it still answers"),
        Err(outcome) => println!("  the connection that was open to it: {outcome}"),
    }
    proxy.feed(star.fact(rest))?;
    world.stop_serving(last.ip);
    let late = ask(world, &star.probes())?;
    println!("  it is gone: {}", spoken(&late));
    world.serve(Protocol::Tcp, address)?;
    proxy.feed(star.fact(star.slice.clone()))
}

/// A pod that dies before anybody knows.
pub(super) fn crash(world: &World, proxy: &mut Proxy, cast: &Cast) -> anyhow::Result<()> {
    let star = Star::find(cast)?;
    let (last, rest) = star.without_last()?;
    println!("\nThe pod {} of {} dies without a word:", last.ip, star.key);
    world.stop_serving(last.ip);
    let unaware = ask(world, &star.probes())?;
    println!("  until the API says so: {}", spoken(&unaware));
    let start = now();
    proxy.feed(star.fact(rest))?;
    println!(
        "  the API says so: in the kernel after {}",
        since(start, now())
    );
    let aware = ask(world, &star.probes())?;
    println!("  from then on: {}", spoken(&aware));
    Ok(())
}

fn endpoint(ip: IpAddr) -> Endpoint {
    Endpoint {
        ip,
        conditions: Conditions::new(None, None, None),
        node: None,
        hints: None,
    }
}

/// An open connection to one endpoint through its service.
fn hold(
    world: &World,
    star: &Star<'_>,
    endpoint: SocketAddr,
) -> anyhow::Result<crate::sandbox::Connection> {
    // The pick is random: 500 misses in a row among a few endpoints do not happen.
    for _ in 0..500 {
        if let Ok(open) = world.connect(&star.probe(star.from[0]))?
            && open.endpoint == endpoint
        {
            return Ok(open);
        }
    }
    anyhow::bail!("no connection to {} reached {endpoint}", star.at)
}

fn ask(world: &World, probes: &[Probe]) -> anyhow::Result<Answer> {
    let mut answer = Answer::default();
    for _ in 0..AROUND.div_ceil(probes.len()) {
        world
            .probe_all(probes)?
            .into_iter()
            .for_each(|outcome| answer.add(outcome));
    }
    Ok(answer)
}

fn total(answer: &Answer) -> usize {
    answer
        .endpoints
        .values()
        .chain(answer.others.values())
        .sum()
}

fn spoken(answer: &Answer) -> String {
    let reached: usize = answer.endpoints.values().sum();
    let others = answer
        .others
        .iter()
        .map(|(outcome, count)| format!(", {count} {outcome}"));
    format!(
        "{reached} of {} connections answered{}",
        total(answer),
        others.collect::<String>()
    )
}

/// Connections made while something changed.
#[derive(Debug, Default)]
struct Traffic {
    answer: Answer,
    /// When each endpoint was reached first.
    first: BTreeMap<SocketAddr, Instant>,
}

impl Traffic {
    fn add(&mut self, outcome: Outcome) {
        self.answer.add(outcome);
        match outcome {
            Outcome::Reached { endpoint, .. } => {
                self.first.entry(endpoint).or_insert_with(now);
            }
            Outcome::Refused | Outcome::TimedOut | Outcome::Closed | Outcome::Unreachable(_) => {}
        }
    }

    fn count(&self) -> usize {
        total(&self.answer)
    }

    fn summary(&self, start: Instant) -> String {
        let failed: usize = self.answer.others.values().sum();
        let kinds = self
            .answer
            .others
            .iter()
            .map(|(kind, count)| format!(", {count} {kind}"));
        format!(
            "{} connections meanwhile ({}), {failed} failed{}",
            self.count(),
            since(start, now()),
            kinds.collect::<String>()
        )
    }
}

/// Carries out a change while another thread makes connections: some before it, some after.
fn under_load<T>(
    world: &World,
    probes: &[Probe],
    change: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Traffic)> {
    let stop = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let tell = tell;
            let mut traffic = Traffic::default();
            while !stop.load(Ordering::Relaxed) {
                world
                    .probe_all(probes)?
                    .into_iter()
                    .for_each(|outcome| traffic.add(outcome));
                if tell.send(traffic.count()).is_err() {
                    break;
                }
            }
            Ok::<_, crate::sandbox::SandboxError>(traffic)
        });
        let mut made = 0;
        let mut wait_for = |more: usize| {
            made = told.try_iter().last().unwrap_or(made);
            let enough = made + more;
            // The channel ends early only with the load, whose error is found below.
            made = told.iter().find(|count| *count >= enough).unwrap_or(made);
        };
        wait_for(AROUND);
        let changed = change();
        wait_for(AROUND);
        stop.store(true, Ordering::Relaxed);
        let traffic = load
            .join()
            .map_err(|_| anyhow::anyhow!("the load thread panicked"))??;
        Ok((changed?, traffic))
    })
}

fn since(start: Instant, end: Instant) -> String {
    time(end.saturating_duration_since(start))
}
