//! A real kernel as a backend: namespaces for everybody in the scenario, the mode under test on
//! the node, and real packets.
//!
//! Every destination that a probe names and nobody has gets a *decoy*: a pod with that address and
//! a server on that port. So `untouched` means that the packet arrived there with its own source,
//! and `refused` and `dropped` mean that something kept it from getting there.

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use sluice_model::cluster::Cluster;
use sluice_model::fact::{Fact, Protocol, Slice};
use sluice_model::name::Names;
use sluice_proxy::sandbox::{self, Outcome, PodLink, Probe, SandboxError, World, WorldSpec};

use node::OnNode;

pub use node::ModeName;

use crate::backend::{Aim, Attempt, Backend, Seen, Session};
use crate::scenario::{DetectLocalMode, NodeSpec, Scenario};
use crate::world::{self, Client, Place};
use crate::{objects, oracle};

/// Real packets through the rules of one mode.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    mode: ModeName,
}

impl Kernel {
    /// The kernel with this mode, `nftables`, `iptables-nft` or `iptables-legacy`. The process
    /// must be able to make network namespaces.
    pub fn new(mode: &str) -> Result<Kernel> {
        match ModeName::ALL.into_iter().find(|name| name.word() == mode) {
            Some(mode) => Ok(Kernel { mode }),
            None => {
                let known = ModeName::ALL.map(ModeName::word).join(", ");
                bail!("the lab cannot run mode {mode:?}, only {known}")
            }
        }
    }
}

impl Backend for Kernel {
    fn name(&self) -> &str {
        self.mode.word()
    }

    fn begin(&mut self, scenario: &Scenario) -> Result<Box<dyn Session>> {
        let plan = Plan::of(scenario)?;
        let sandbox = World::create(&plan.spec)?;
        settle(&sandbox)?;
        let unserved = plan.serve(&sandbox)?;
        let settings = world::settings(&scenario.node, &scenario.config)?;
        let bit = scenario.config.masquerade_bit.unwrap_or(14);
        let mode = OnNode::open(self.mode, &sandbox, bit)?;
        let cluster = oracle::listed(settings, Vec::new());
        Ok(Box::new(Play {
            sandbox,
            unserved,
            mode,
            cluster,
        }))
    }
}

/// Who must exist for a scenario.
struct Plan {
    spec: WorldSpec,
    servers: BTreeSet<(Protocol, SocketAddr)>,
}

impl Plan {
    fn of(scenario: &Scenario) -> Result<Plan> {
        let node = &scenario.node;
        let mut plan = Plan {
            spec: spec(scenario)?,
            servers: BTreeSet::new(),
        };
        let mut names = Names::default();
        for list in [&scenario.objects]
            .into_iter()
            .chain(scenario.steps.iter().map(|s| &s.apply))
        {
            for fact in objects::facts(list, &mut names)? {
                plan.endpoints(node, &fact);
            }
        }
        let steps = scenario.steps.iter().flat_map(|step| &step.probes);
        for probe in scenario.probes.iter().chain(steps) {
            plan.client(node, &world::client(node, probe.from, probe.to.ip())?);
            plan.decoy(probe.protocol.protocol(), probe.to);
        }
        Ok(plan)
    }

    fn endpoints(&mut self, node: &NodeSpec, fact: &Fact) {
        let slices: Vec<&Slice> = match fact {
            Fact::Slice(_, slice) => slice.iter().map(|slice| &**slice).collect(),
            Fact::Endpoints(_, slices) => slices.iter().flatten().collect(),
            Fact::Service(..)
            | Fact::Node(..)
            | Fact::Cidrs(..)
            | Fact::LocalAddresses(_)
            | Fact::Begin(_)
            | Fact::Synced(_) => Vec::new(),
        };
        for slice in slices {
            for endpoint in &slice.endpoints {
                self.pod(node, endpoint.ip);
                let numbers = slice
                    .ports
                    .iter()
                    .filter_map(|p| Some((p.protocol, p.port?)));
                let at = |(protocol, port)| (protocol, SocketAddr::new(endpoint.ip, port));
                self.servers.extend(numbers.map(at));
            }
        }
    }

    fn pod(&mut self, node: &NodeSpec, ip: IpAddr) {
        if node.pod_cidrs.iter().any(|net| net.contains(&ip)) {
            self.spec.add_local_pods([ip]);
        } else {
            self.spec.add_remote_pods([ip]);
        }
    }

    /// A client beyond the node never shares a namespace with an endpoint beyond it, or the answer
    /// would take the short way, past the node. So clients are `outside`, pods among them too.
    fn client(&mut self, node: &NodeSpec, client: &Client) {
        let known = self.spec.outside.contains(&client.ip)
            || self
                .spec
                .remote_pods
                .iter()
                .any(|net| net.contains(&client.ip));
        match client.place {
            Place::Node => {}
            Place::LocalPod => self.pod(node, client.ip),
            Place::Beyond if known => {}
            Place::Beyond => self.spec.outside.push(client.ip),
        }
    }

    /// A server on the destination of a probe, and a pod to run it where nobody has the address.
    /// Loopback has none: whoever gets there unchanged finds nobody and is refused.
    fn decoy(&mut self, protocol: Protocol, to: SocketAddr) {
        let (ip, spec) = (to.ip(), &mut self.spec);
        if ip.is_loopback() {
            return;
        }
        let hosts = spec.outside.iter().chain(&spec.other_nodes).copied();
        let known = spec
            .node
            .iter()
            .map(IpNet::addr)
            .chain(hosts)
            .any(|own| own == ip)
            || spec.remote_pods.iter().any(|net| net.contains(&ip));
        if !known {
            spec.add_local_pods([ip]);
        }
        self.servers.insert((protocol, to));
    }

    /// Starts all servers; those of the protocols returned are not there, since this kernel does
    /// not have such sockets.
    fn serve(&self, sandbox: &World) -> Result<BTreeSet<Protocol>> {
        let mut unserved = BTreeSet::new();
        for (protocol, address) in &self.servers {
            match sandbox.serve(*protocol, *address) {
                Ok(()) => {}
                Err(SandboxError::Serve {
                    protocol: Protocol::Sctp,
                    ..
                }) => {
                    unserved.insert(Protocol::Sctp);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(unserved)
    }
}

fn spec(scenario: &Scenario) -> Result<WorldSpec> {
    let node = &scenario.node;
    let on_link = |ip: &IpAddr| IpNet::new(*ip, if ip.is_ipv4() { 24 } else { 120 });
    let own = node
        .addresses
        .iter()
        .chain(&node.extra_addresses)
        .map(on_link);
    let pod_link = match scenario.config.detect_local_mode {
        DetectLocalMode::BridgeInterface => PodLink::Bridge(world::POD_BRIDGE.to_owned()),
        DetectLocalMode::ClusterCIDR
        | DetectLocalMode::NodeCIDR
        | DetectLocalMode::InterfaceNamePrefix => {
            PodLink::Interfaces(world::POD_INTERFACES.to_owned())
        }
    };
    Ok(WorldSpec {
        node: own
            .collect::<Result<_, _>>()
            .context("addresses of the node")?,
        other_nodes: world::both(world::OTHER_NODE).to_vec(),
        outside: world::both(world::OUTSIDE).to_vec(),
        local_pods: Vec::new(),
        remote_pods: Vec::new(),
        pod_link,
    })
}

/// Waits until every link carries packets: a new one drops them until the kernel has seen both of
/// its ends up, and neighbours must have found each other. Whoever refuses a connection that nobody
/// serves has been reached and has been heard.
fn settle(sandbox: &World) -> Result<()> {
    const ROUNDS: usize = 40;
    let spec = sandbox.spec();
    let everybody = spec.local_pods.iter().flatten();
    let everybody = everybody.chain(&spec.outside).chain(&spec.other_nodes);
    let ask = |ip: &IpAddr| Probe {
        timeout: Duration::from_millis(250),
        ..Probe::new(sandbox::Place::Node, Protocol::Tcp, (*ip, 1).into())
    };
    let mut silent: Vec<Probe> = everybody.map(ask).collect();
    for _ in 0..ROUNDS {
        let heard = sandbox.probe_all(&silent)?;
        let waiting = silent
            .iter()
            .zip(heard)
            .filter(|(_, outcome)| *outcome != Outcome::Refused);
        silent = waiting.map(|(probe, _)| *probe).collect();
        if silent.is_empty() {
            return Ok(());
        }
    }
    let who: Vec<_> = silent
        .iter()
        .map(|probe| probe.to.ip().to_string())
        .collect();
    bail!(
        "the sandbox does not settle: {} cannot be reached",
        who.join(", ")
    )
}

struct Play {
    sandbox: World,
    /// Protocols of which this kernel has no sockets.
    unserved: BTreeSet<Protocol>,
    mode: OnNode,
    cluster: Cluster,
}

impl Session for Play {
    fn apply(&mut self, facts: Vec<Fact>) -> Result<()> {
        facts.into_iter().for_each(|fact| self.cluster.apply(fact));
        self.mode.commit(&self.sandbox, &self.cluster.changes())?;
        self.mode.verify(&self.sandbox)
    }

    fn attempt(&mut self, attempt: &Attempt) -> Result<Seen> {
        if self.unserved.contains(&attempt.protocol) {
            return Ok(Seen::Untried(format!(
                "this kernel has no {} sockets",
                attempt.protocol
            )));
        }
        let probe = Probe {
            source: Some(attempt.client.ip),
            timeout: match attempt.protocol {
                Protocol::Tcp | Protocol::Sctp => PATIENCE,
                Protocol::Udp => PATIENCE / DATAGRAMS,
            },
            ..Probe::new(self.place(&attempt.client)?, attempt.protocol, attempt.to)
        };
        let probes = vec![probe; usize::try_from(attempt.tries)?];
        let outcomes = match attempt.aim {
            // One after the other: connections made at once are not bound to stay together.
            Aim::Stick => {
                let one = |probe| Ok(self.persist(std::slice::from_ref(probe))?.remove(0));
                probes.iter().map(one).collect::<Result<_>>()?
            }
            Aim::Reach => self.persist(&probes)?,
        };
        Ok(sum_up(attempt, &outcomes))
    }

    fn node_addresses(&self) -> Vec<IpAddr> {
        self.sandbox.spec().node.iter().map(IpNet::addr).collect()
    }
}

impl Play {
    /// Makes connections, and asks again where a datagram got no answer, as TCP does by itself: one
    /// in some ten thousand is lost between namespaces, with no rules anywhere.
    fn persist(&self, probes: &[Probe]) -> Result<Vec<Outcome>> {
        let mut outcomes = self.sandbox.probe_all(probes)?;
        for _ in 1..DATAGRAMS {
            let lost = |at: &usize| {
                probes[*at].protocol == Protocol::Udp && outcomes[*at] == Outcome::TimedOut
            };
            let lost: Vec<usize> = (0..probes.len()).filter(lost).collect();
            let again: Vec<Probe> = lost.iter().map(|at| probes[*at]).collect();
            for (at, outcome) in lost.iter().zip(self.sandbox.probe_all(&again)?) {
                outcomes[*at] = outcome;
            }
        }
        Ok(outcomes)
    }

    fn place(&self, client: &Client) -> Result<sandbox::Place> {
        Ok(match client.place {
            Place::Node => sandbox::Place::Node,
            Place::LocalPod => sandbox::Place::Pod(client.ip),
            Place::Beyond => self.sandbox.owner(client.ip)?,
        })
    }
}

/// How long to wait for an answer before a packet counts as dropped. More than a second, since an
/// ICMPv6 error that comes back while connect(2) still holds the socket, as it does between
/// namespaces, is taken note of by TCP only with the next SYN; and a busy machine is no dropped
/// packet.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a datagram is sent before the silence counts.
const DATAGRAMS: u32 = 3;

/// One word for outcomes that agree, or all of them where they do not.
fn sum_up(attempt: &Attempt, outcomes: &[Outcome]) -> Seen {
    let mut kinds: BTreeMap<String, (Seen, u32)> = BTreeMap::new();
    let mut answers: BTreeMap<SocketAddr, crate::backend::Answers> = BTreeMap::new();
    let to_loopback = attempt.to.ip().is_loopback();
    for outcome in outcomes {
        let seen = match outcome {
            Outcome::Reached { endpoint, source } if *endpoint != attempt.to => {
                let answer = answers.entry(*endpoint).or_default();
                answer.count += 1;
                answer.peers.insert(source.ip());
                continue;
            }
            Outcome::Reached { source, .. } if source.ip() == attempt.client.ip => Seen::Untouched,
            Outcome::Refused if to_loopback => Seen::Untouched,
            Outcome::Refused => Seen::Refused,
            Outcome::TimedOut => Seen::Dropped,
            Outcome::Reached { .. } | Outcome::Closed | Outcome::Unreachable(_) => {
                Seen::Other(outcome.to_string())
            }
        };
        kinds.entry(seen.to_string()).or_insert((seen, 0)).1 += 1;
    }
    if !answers.is_empty() {
        let count = answers.values().map(|a| a.count).sum();
        let served = Seen::Served(answers);
        kinds.insert(served.to_string(), (served, count));
    }
    if kinds.len() == 1
        && let Some((_, (seen, _))) = kinds.pop_first()
    {
        return seen;
    }
    Seen::Mixed(
        kinds
            .into_iter()
            .map(|(word, (_, count))| (word, count))
            .collect(),
    )
}
