//! One family as intended, and the steps that changes to it need.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use sluice_model::fact::Family;
use sluice_model::name::ObjectKey;
use sluice_model::route::{At, HealthCheck, NodeView, PortKey, Route, RouteChange, Scope};

use super::compile::{Place, unused_port};
use super::fixed::{PLACES, health, rules};
use super::ground::{Detail, Ground, LARGE, Options};
use super::name::Chain;
use super::rule::Rule;
use super::tx::{LeftOut, Line, Old, Part, Step, Unit, add};
use crate::image::Shared;

/// A family as it should be.
#[derive(Debug)]
pub(super) struct Intent {
    pub(super) ground: Arc<Ground>,
    pub(super) routes: HashMap<PortKey, Arc<Route>>,
    /// Cluster IPs by number of ports.
    pub(super) cluster_ips: Shared<IpAddr>,
    pub(super) health: BTreeMap<ObjectKey, u16>,
    endpoints: usize,
    /// Service ports of which the kernel may hold something else than intended.
    pub(super) unsure: HashSet<PortKey>,
    /// What the last transaction changes, until its outcome is known.
    pub(super) flying: Vec<PortKey>,
    /// Whether the chains of services in the kernel are known to be those intended, apart from
    /// the unsure ones.
    pub(super) known: Knowledge,
}

/// What is known of the chains of services in the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Knowledge {
    /// Nothing: all must be written.
    Nothing,
    /// They are as intended, but for those in doubt.
    Written,
}

/// News for one family.
#[derive(Clone, Copy)]
pub(super) struct News<'a> {
    pub(super) node: Option<&'a NodeView>,
    pub(super) routes: &'a [&'a RouteChange],
    pub(super) health: &'a [(ObjectKey, Option<HealthCheck>)],
}

impl Intent {
    /// An empty family.
    pub(super) fn new(family: Family, options: Options) -> Intent {
        Intent {
            ground: Arc::new(Ground::new(family, options)),
            routes: HashMap::new(),
            cluster_ips: Shared::default(),
            health: BTreeMap::new(),
            endpoints: 0,
            unsure: HashSet::new(),
            flying: Vec::new(),
            known: Knowledge::Nothing,
        }
    }

    /// Takes news in without saying what they need: a full comparison follows.
    pub(super) fn adopt(&mut self, news: News<'_>) {
        self.doubt_flying();
        for change in news.routes {
            let key = self.replace(change).map(|(key, _)| key);
            self.unsure.extend(key);
        }
        self.cluster_ips.settle();
        self.take_health(news.health);
        let before = Arc::clone(&self.ground);
        self.ground = Arc::new(self.next_ground(news.node));
        if before.node != self.ground.node {
            self.known = Knowledge::Nothing;
        }
    }

    /// Takes news in and gives back what they need.
    pub(super) fn update(&mut self, news: News<'_>) -> Part {
        self.flying.clear();
        let mut units = Vec::new();
        let mut changed = HashSet::new();
        for change in news.routes {
            let Some((key, old)) = self.replace(change) else {
                continue;
            };
            changed.insert(key.clone());
            if self.unsure.contains(&key) {
                // What the kernel has of it is not known; the next comparison writes it.
                continue;
            }
            self.flying.push(key.clone());
            units.push(Unit {
                key,
                old: Old::Known(old),
                new: change.new.clone(),
            });
        }
        let before = Arc::clone(&self.ground);
        self.ground = Arc::new(self.next_ground(news.node));
        let mut first = Vec::new();
        let mut last = Vec::new();
        self.cluster_ip_steps(&before, &mut last);
        last.extend(self.health_steps(news.health));
        if before.node != self.ground.node {
            own_steps(&before, &self.ground, &mut first);
            let rest = self
                .routes
                .iter()
                .filter(|(key, _)| !changed.contains(*key));
            for (key, route) in rest.filter(|(key, _)| !self.unsure.contains(*key)) {
                self.flying.push(key.clone());
                let old = Old::Known(Some(Arc::clone(route)));
                units.push(Unit {
                    key: key.clone(),
                    old,
                    new: Some(Arc::clone(route)),
                });
            }
        }
        Part {
            family: before.family,
            before,
            ground: Arc::clone(&self.ground),
            first,
            units,
            last,
        }
    }

    /// Takes the outcome of the last transaction in: what was left out stays in doubt.
    pub(super) fn settle<'a>(&mut self, left_out: impl Iterator<Item = &'a LeftOut>) {
        let left_out: HashSet<&PortKey> = left_out.map(|l| &l.key).collect();
        let doubtful = self.flying.drain(..).filter(|key| left_out.contains(key));
        self.unsure.extend(doubtful);
    }

    /// Whether anything waits for the next comparison.
    pub(super) fn in_doubt(&self) -> bool {
        !self.unsure.is_empty()
    }

    /// Nobody said what became of the last transaction.
    pub(super) fn doubt_flying(&mut self) {
        self.unsure.extend(self.flying.drain(..));
    }

    /// Lines of health-check node ports.
    pub(super) fn health_lines(&self) -> impl Iterator<Item = (Place, Rule)> {
        self.health
            .iter()
            .map(|(key, port)| health(&key.to_string(), *port))
    }

    fn replace(&mut self, change: &RouteChange) -> Option<(PortKey, Option<Arc<Route>>)> {
        let either = change.old.as_ref().or(change.new.as_ref())?;
        let key = either.key.clone();
        let old = match &change.new {
            Some(new) => self.routes.insert(key.clone(), Arc::clone(new)),
            None => self.routes.remove(&key),
        };
        for ip in change.new.iter().flat_map(|route| cluster_ips(route)) {
            self.cluster_ips.take(ip);
        }
        for ip in old.iter().flat_map(|route| cluster_ips(route)) {
            self.cluster_ips.release(ip);
        }
        let count = |route: &Arc<Route>| route.cluster.len().max(route.local.len());
        self.endpoints += change.new.as_ref().map_or(0, count);
        self.endpoints -= old.as_ref().map_or(0, count);
        Some((key, old))
    }

    fn next_ground(&self, node: Option<&NodeView>) -> Ground {
        let detail = if self.endpoints > LARGE {
            Detail::Lean
        } else {
            Detail::Full
        };
        let node = node.unwrap_or(&self.ground.node).clone();
        Ground {
            node,
            detail,
            ..Ground::clone(&self.ground)
        }
    }

    fn cluster_ip_steps(&mut self, before: &Ground, steps: &mut Vec<Step>) {
        let (gone, come) = self.cluster_ips.settle();
        let delete = |(place, rule): (Place, Rule)| Step {
            table: place.0,
            line: Line::Delete(Chain::Fixed(place.1), rule),
        };
        for ip in &come {
            let (place, rule) = unused_port(*ip, &self.ground);
            steps.push(add(place, rule));
        }
        if before.node.service_cidrs != self.ground.node.service_cidrs {
            let come: HashSet<IpAddr> = come.iter().copied().collect();
            for ip in self.cluster_ips.present().filter(|ip| !come.contains(*ip)) {
                let (old, new) = (unused_port(*ip, before), unused_port(*ip, &self.ground));
                if old != new {
                    steps.push(add(new.0, new.1));
                    steps.push(delete(old));
                }
            }
        }
        steps.extend(gone.iter().map(|ip| delete(unused_port(*ip, before))));
    }

    fn take_health(&mut self, news: &[(ObjectKey, Option<HealthCheck>)]) {
        for (key, check) in news {
            match check {
                Some(check) => self.health.insert(key.clone(), check.port),
                None => self.health.remove(key),
            };
        }
    }

    fn health_steps(&mut self, news: &[(ObjectKey, Option<HealthCheck>)]) -> Vec<Step> {
        let mut steps = Vec::new();
        for (key, check) in news {
            let old = self.health.get(key).copied();
            let new = check.as_ref().map(|check| check.port);
            if old == new {
                continue;
            }
            let line = |port: u16| health(&key.to_string(), port);
            steps.extend(new.map(line).map(|(place, rule)| add(place, rule)));
            steps.extend(old.map(line).map(|(place, rule)| Step {
                table: place.0,
                line: Line::Delete(Chain::Fixed(place.1), rule),
            }));
        }
        self.take_health(news);
        steps
    }
}

/// Cluster IPs of a route, one for each port of it there.
pub(super) fn cluster_ips(route: &Route) -> impl Iterator<Item = IpAddr> {
    route
        .frontends
        .iter()
        .filter(|f| f.scope == Scope::Cluster)
        .filter_map(|f| match f.at {
            At::Vip(ip, _) => Some(ip),
            At::NodePort(_) => None,
        })
}

/// Changes of the shared chains' own rules. New ones go last: of those that depend on the node,
/// none has to be before a line of a service.
fn own_steps(before: &Ground, after: &Ground, steps: &mut Vec<Step>) {
    for place in PLACES {
        let (old, new) = (rules(place, before), rules(place, after));
        let chain = Chain::Fixed(place.1);
        let come = new.iter().filter(|rule| !old.contains(rule));
        let come = come.map(|rule| Line::Append(chain, rule.clone()));
        let gone = old.iter().filter(|rule| !new.contains(rule));
        let gone = gone.map(|rule| Line::Delete(chain, rule.clone()));
        steps.extend(come.chain(gone).map(|line| Step {
            table: place.0,
            line,
        }));
    }
}
