//! The oracle as a backend: facts go into the model, its routes decide.
//!
//! Besides answering, a session holds the model to its word after every change: the changes it
//! handed out must add up to its routes, and a model that meets the final facts at once, in the
//! opposite order, must come to the same routes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Result, bail};
use sluice_model::cluster::Cluster;
use sluice_model::fact::{Fact, Family, Kind};
use sluice_model::name::{Name, ObjectKey};
use sluice_model::oracle::{Decision, Origin, Packet, Peer, Reach, decide};
use sluice_model::route::{PortKey, Route};
use sluice_model::settings::Settings;

use crate::backend::{Aim, Answers, Attempt, Backend, Seen, Session};
use crate::scenario::{NodeSpec, Scenario};
use crate::world::{self, Place};

/// Answers from routes, without a kernel.
#[derive(Debug, Default)]
pub struct Oracle;

impl Backend for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn begin(&mut self, scenario: &Scenario) -> Result<Box<dyn Session>> {
        let settings = world::settings(&scenario.node, &scenario.config)?;
        Ok(Box::new(Play {
            node: scenario.node.clone(),
            pod_interface: world::pod_interface(&scenario.config),
            cluster: listed(settings.clone(), Vec::new()),
            settings,
            standing: BTreeMap::new(),
            replayed: BTreeMap::new(),
        }))
    }
}

type Routes = BTreeMap<(PortKey, Family), Arc<Route>>;

struct Play {
    node: NodeSpec,
    pod_interface: String,
    settings: Settings,
    cluster: Cluster,
    /// The last fact of every object.
    standing: BTreeMap<Subject, Fact>,
    /// The routes that the changes handed out add up to.
    replayed: Routes,
}

/// What a fact is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Service(ObjectKey),
    Slice(ObjectKey),
    Endpoints(ObjectKey),
    Node(Name),
    Cidrs(Name),
    LocalAddresses,
    List(Kind),
}

impl Subject {
    fn of(fact: &Fact) -> Subject {
        match fact {
            Fact::Service(key, _) => Subject::Service(key.clone()),
            Fact::Slice(key, _) => Subject::Slice(key.clone()),
            Fact::Endpoints(key, _) => Subject::Endpoints(key.clone()),
            Fact::Node(name, _) => Subject::Node(name.clone()),
            Fact::Cidrs(name, _) => Subject::Cidrs(name.clone()),
            Fact::LocalAddresses(_) => Subject::LocalAddresses,
            Fact::Begin(kind) | Fact::Synced(kind) => Subject::List(*kind),
        }
    }
}

const KINDS: [Kind; 5] = [
    Kind::Services,
    Kind::Slices,
    Kind::Endpoints,
    Kind::Nodes,
    Kind::Cidrs,
];

/// A cluster whose first complete list is `facts`.
pub(crate) fn listed(settings: Settings, facts: Vec<Fact>) -> Cluster {
    let mut cluster = Cluster::new(settings);
    KINDS
        .into_iter()
        .for_each(|kind| cluster.apply(Fact::Begin(kind)));
    facts.into_iter().for_each(|fact| cluster.apply(fact));
    KINDS
        .into_iter()
        .for_each(|kind| cluster.apply(Fact::Synced(kind)));
    cluster
}

fn routes(cluster: &Cluster) -> Routes {
    let keyed = |route: &Arc<Route>| ((route.key.clone(), route.family), Arc::clone(route));
    cluster.routes().map(keyed).collect()
}

impl Session for Play {
    fn apply(&mut self, facts: Vec<Fact>) -> Result<()> {
        for fact in facts {
            self.standing.insert(Subject::of(&fact), fact.clone());
            self.cluster.apply(fact);
        }
        for change in self.cluster.changes().routes {
            if let Some(old) = change.old {
                self.replayed.remove(&(old.key.clone(), old.family));
            }
            if let Some(new) = change.new {
                self.replayed.insert((new.key.clone(), new.family), new);
            }
        }
        let now = routes(&self.cluster);
        same(
            "the changes handed out do not add up to the routes",
            &self.replayed,
            &now,
        )?;
        let facts = self.standing.values().rev().cloned().collect();
        let mut fresh = listed(self.settings.clone(), facts);
        fresh.changes();
        same(
            "another order of the same facts gives other routes",
            &routes(&fresh),
            &now,
        )
    }

    fn attempt(&mut self, attempt: &Attempt) -> Result<Seen> {
        let Attempt {
            client,
            to,
            protocol,
            tries,
            aim,
        } = attempt;
        let here = world::interfaces(&self.node).any(|own| own == to.ip());
        let packet = Packet {
            source: client.ip,
            origin: match client.place {
                Place::Node => Origin::Process,
                Place::LocalPod => Origin::Interface((&*self.pod_interface).into()),
                Place::Beyond => Origin::Interface(world::UPLINK.into()),
            },
            destination: to.ip(),
            reach: if here { Reach::Here } else { Reach::Elsewhere },
            port: to.port(),
            protocol: *protocol,
        };
        let view = self.cluster.node_view(Family::of(to.ip()));
        Ok(
            match decide(self.cluster.routes().map(|r| &**r), view, &packet) {
                Decision::Untouched => Seen::Untouched,
                Decision::Refused => Seen::Refused,
                Decision::Dropped => Seen::Dropped,
                Decision::Served { targets, affinity } => {
                    let sticks = *aim == Aim::Stick && affinity.is_some();
                    let chosen = if sticks { &targets[..1] } else { &targets[..] };
                    let share = tries / u32::try_from(chosen.len())?;
                    let node_ip = self
                        .node_addresses()
                        .into_iter()
                        .find(|a| a.is_ipv4() == to.is_ipv4());
                    let answers = chosen.iter().map(|target| {
                        let peer = match target.peer {
                            Peer::Kept => Some(client.ip),
                            Peer::Masqueraded => node_ip,
                        };
                        let answers = Answers {
                            count: share,
                            peers: peer.into_iter().collect(),
                        };
                        (SocketAddr::new(target.ip, target.port), answers)
                    });
                    Seen::Served(answers.collect())
                }
            },
        )
    }

    fn node_addresses(&self) -> Vec<IpAddr> {
        self.node.addresses.clone()
    }
}

fn same(complaint: &str, one: &Routes, other: &Routes) -> Result<()> {
    let differs = one
        .keys()
        .chain(other.keys())
        .find(|key| one.get(*key) != other.get(*key));
    match differs {
        None => Ok(()),
        Some(key) => {
            let (port, family) = key;
            let (one, other) = (one.get(key), other.get(key));
            bail!("{complaint}: {port} {family}: {one:#?} is not {other:#?}")
        }
    }
}
