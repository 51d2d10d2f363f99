//! One family's table as intended, and the operations that changes to it need.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use sluice_model::fact::{Family, Protocol};
use sluice_model::route::{
    At, Backend, NodePortMatch, NodeView, Path, PoolChoice, PortKey, Route, RouteChange,
};

use super::compile::{Compiled, Element, Slots, compile};
use super::element::{ChainId, Key, LOCAL_SLOTS, SetId, Value, record_chain};
use super::program::{Ground, Program};
use super::tx::{Forget, Op, Part};
use crate::arrange::arrange;
use crate::image::{Shared, difference};

/// Class chains without users that may stay: a service that goes back and forth between two sizes
/// must not make and delete chains each time.
const IDLE_CHAINS: usize = 64;

/// A family's table as it should be.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) ground: Ground,
    pub(super) placed: HashMap<PortKey, Placed>,
    pub(super) shared: Shared<(SetId, Key)>,
    chains: Shared<ChainId>,
    timeouts: Shared<u32>,
    /// Class chains that the kernel has, used or idle.
    existing: BTreeSet<ChainId>,
    existing_timeouts: BTreeSet<u32>,
}

/// A route with the slots of its endpoints.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) route: Arc<Route>,
    pub(super) slots: Slots,
}

/// Endpoints by slot, as read from the kernel, so that an adopted table keeps its slots.
pub(super) type SlotHints = HashMap<(At, Protocol), Vec<(u32, Backend)>>;

/// Element changes gathered over many routes, so that what one gives up another can take over.
#[derive(Debug, Default)]
pub(super) struct Delta {
    old: Vec<Element>,
    new: Vec<Element>,
    forget: Vec<Forget>,
}

impl Table {
    /// An empty table.
    pub(super) fn new(family: Family, mark: u32) -> Table {
        let node = NodeView {
            pods: None,
            node_ports: NodePortMatch::Addresses(Vec::new()),
            service_cidrs: Vec::new(),
        };
        Table {
            ground: Ground { family, node, mark },
            placed: HashMap::new(),
            shared: Shared::default(),
            chains: Shared::default(),
            timeouts: Shared::default(),
            existing: BTreeSet::new(),
            existing_timeouts: BTreeSet::new(),
        }
    }

    /// Takes changes in without saying what they need: a full comparison follows.
    pub(super) fn adopt<'a>(
        &mut self,
        node: Option<&NodeView>,
        changes: impl Iterator<Item = &'a RouteChange>,
        hints: &SlotHints,
    ) {
        if let Some(node) = node {
            self.ground.node = node.clone();
        }
        for change in changes {
            self.replace(change, hints, None);
        }
        self.shared.settle();
        self.chains.settle();
        self.timeouts.settle();
    }

    /// Takes changes in and gives back what they need.
    pub(super) fn update<'a>(
        &mut self,
        node: Option<&NodeView>,
        changes: impl Iterator<Item = &'a RouteChange>,
    ) -> Part {
        let mut delta = Delta::default();
        let mut ops = Vec::new();
        if let Some(node) = node {
            self.change_ground(node, &mut delta, &mut ops);
        }
        for change in changes {
            self.replace(change, &SlotHints::new(), Some(&mut delta));
        }
        let (gone, come) = self.shared.settle();
        delta
            .old
            .extend(gone.into_iter().map(|key| (key, Value::Member)));
        delta
            .new
            .extend(come.into_iter().map(|key| (key, Value::Member)));
        self.make_chains(&mut ops);
        let change = difference(delta.old, delta.new);
        if !change.remove.is_empty() {
            ops.push(Op::Remove(change.remove));
        }
        if !change.add.is_empty() {
            ops.push(Op::Add(change.add));
        }
        ops.extend(delta.forget.into_iter().map(Op::Forget));
        Part {
            family: self.ground.family,
            ops,
            sweep: self.sweep(),
        }
    }

    /// The program as it should be, given the chains that the kernel has: class chains and
    /// affinity time-outs that are idle may stay, like those that this process made itself.
    pub(super) fn settle_program(&mut self, seen: &Program) -> Program {
        self.existing = self.chains.present().copied().collect();
        self.existing_timeouts = self.timeouts.present().copied().collect();
        let found: BTreeSet<ChainId> = seen
            .chains
            .keys()
            .filter_map(|name| ChainId::parse(name))
            .collect();
        let idle: BTreeSet<ChainId> = found.difference(&self.existing).copied().collect();
        if idle.len() <= IDLE_CHAINS {
            let whole =
                |chain: &ChainId| chain.successor().is_none_or(|next| found.contains(&next));
            self.existing.extend(idle.into_iter().filter(whole));
        }
        // A chain that stays holds on to the map that it reads.
        let read = self.existing.iter().map(|chain| chain.sticky);
        self.existing_timeouts.extend(read.filter(|t| *t > 0));
        Program::new(
            &self.ground,
            self.existing.iter(),
            self.existing_timeouts.iter(),
        )
    }

    /// Every element that should be there.
    pub(super) fn elements(&self) -> Vec<Element> {
        let own = self
            .placed
            .values()
            .flat_map(|p| compile(&p.route, &p.slots).elements);
        let shared = self.shared.present().map(|key| (*key, Value::Member));
        own.chain(shared)
            .chain(node_port_ips(&self.ground.node))
            .collect()
    }

    fn change_ground(&mut self, node: &NodeView, delta: &mut Delta, ops: &mut Vec<Op>) {
        let program = |ground: &Ground| {
            Program::new(ground, self.existing.iter(), self.existing_timeouts.iter())
        };
        let before = program(&self.ground);
        delta.old.extend(node_port_ips(&self.ground.node));
        delta.new.extend(node_port_ips(node));
        let ground = Ground {
            node: node.clone(),
            ..self.ground.clone()
        };
        let after = program(&ground);
        self.ground = ground;
        for (name, (_, rules)) in after.chains {
            if before
                .chains
                .get(&name)
                .is_none_or(|(_, old)| *old != rules)
            {
                ops.push(Op::FlushChain(name));
                ops.extend(rules.into_iter().map(Op::AddRule));
            }
        }
    }

    fn replace(&mut self, change: &RouteChange, hints: &SlotHints, delta: Option<&mut Delta>) {
        let Some(key) = change
            .old
            .as_ref()
            .or(change.new.as_ref())
            .map(|r| r.key.clone())
        else {
            return;
        };
        let old = self.placed.remove(&key);
        let new = change.new.as_ref().map(|route| Placed {
            route: Arc::clone(route),
            slots: place(route, old.as_ref().map(|p| &p.slots), hints),
        });
        let compiled = |p: &Option<Placed>| {
            p.as_ref()
                .map_or_else(Compiled::default, |p| compile(&p.route, &p.slots))
        };
        let (before, after) = (compiled(&old), compiled(&new));
        after.shared.iter().for_each(|key| self.shared.take(*key));
        after
            .chains
            .iter()
            .for_each(|chain| self.chains.take(*chain));
        after
            .timeout
            .iter()
            .for_each(|seconds| self.timeouts.take(*seconds));
        before
            .shared
            .iter()
            .for_each(|key| self.shared.release(*key));
        before
            .chains
            .iter()
            .for_each(|chain| self.chains.release(*chain));
        before
            .timeout
            .iter()
            .for_each(|seconds| self.timeouts.release(*seconds));
        if let Some(delta) = delta {
            delta.old.extend(before.elements);
            delta.new.extend(after.elements);
            if let Some(old) = &old {
                forget(
                    &old.route,
                    new.as_ref().map(|p| &*p.route),
                    &mut delta.forget,
                );
            }
        }
        if let Some(new) = new {
            self.placed.insert(key, new);
        }
    }

    fn make_chains(&mut self, ops: &mut Vec<Op>) {
        let (_, timeouts) = self.timeouts.settle();
        let (_, chains) = self.chains.settle();
        let new_timeouts: Vec<u32> = timeouts
            .into_iter()
            .filter(|t| self.existing_timeouts.insert(*t))
            .collect();
        let new_chains: Vec<ChainId> = chains
            .into_iter()
            .filter(|c| self.existing.insert(*c))
            .collect();
        if new_timeouts.is_empty() && new_chains.is_empty() {
            return;
        }
        let added = Program::new(&self.ground, new_chains.iter(), new_timeouts.iter());
        for seconds in &new_timeouts {
            let set = SetId::Affinity(*seconds).to_string();
            ops.extend(added.sets.get(&set).cloned().map(Op::AddSet));
        }
        let records = new_timeouts.iter().map(|seconds| record_chain(*seconds));
        let names = records.chain(new_chains.iter().map(ChainId::to_string));
        let bodies: Vec<_> = names.filter_map(|name| added.chains.get(&name)).collect();
        ops.extend(bodies.iter().map(|(chain, _)| Op::AddChain(chain.clone())));
        ops.extend(
            bodies
                .iter()
                .flat_map(|(_, rules)| rules.iter().cloned().map(Op::AddRule)),
        );
    }

    fn sweep(&mut self) -> Vec<ChainId> {
        // Every used chain exists, so that counting finds the idle ones without a look at any.
        if self.existing.len() - self.chains.len() <= IDLE_CHAINS {
            return Vec::new();
        }
        let used: BTreeSet<ChainId> = self.chains.present().copied().collect();
        // Referrers first: split chains sort after the plain ones that they go on to.
        let idle = self
            .existing
            .iter()
            .rev()
            .filter(|c| !used.contains(c))
            .copied()
            .collect();
        self.existing = used;
        idle
    }
}

/// Slots for a route's endpoints: as before, or as found in the kernel, or in order.
fn place(route: &Route, old: Option<&Slots>, hints: &SlotHints) -> Slots {
    let pool = |choice: PoolChoice, old: Option<&[Backend]>| {
        let old: Vec<Option<Backend>> = match old {
            Some(old) => old.iter().copied().map(Some).collect(),
            None => hinted(route, choice, hints),
        };
        arrange(&old, route.pool(choice))
    };
    Slots {
        cluster: pool(PoolChoice::Cluster, old.map(|s| &*s.cluster)),
        local: pool(PoolChoice::Local, old.map(|s| &*s.local)),
    }
}

fn hinted(route: &Route, choice: PoolChoice, hints: &SlotHints) -> Vec<Option<Backend>> {
    let mut slots = vec![None; route.pool(choice).len()];
    for frontend in &route.frontends {
        let first = match (frontend.path, choice) {
            (Path::Split, PoolChoice::Local) => LOCAL_SLOTS,
            (Path::Split, PoolChoice::Cluster) => 0,
            (Path::Uniform(pool, _), _) if pool == choice => 0,
            (Path::Uniform(..), _) => continue,
        };
        for (slot, backend) in hints
            .get(&(frontend.at, route.key.protocol))
            .into_iter()
            .flatten()
        {
            if let Some(place) = slot
                .checked_sub(first)
                .and_then(|i| slots.get_mut(i as usize))
            {
                *place = Some(*backend);
            }
        }
    }
    slots
}

fn node_port_ips(node: &NodeView) -> Vec<Element> {
    let ips: &[IpAddr] = match &node.node_ports {
        NodePortMatch::AnyLocal => &[],
        NodePortMatch::Addresses(ips) => ips,
    };
    ips.iter()
        .map(|ip| ((SetId::NodePortIps, Key::Ip(*ip)), Value::Member))
        .collect()
}

/// Affinity to endpoints that a frontend no longer has must end with the same commit.
fn forget(old: &Route, new: Option<&Route>, out: &mut Vec<Forget>) {
    let Some(seconds) = old.affinity else { return };
    for frontend in &old.frontends {
        let kept = new.filter(|new| {
            new.affinity == old.affinity && new.frontends.iter().any(|f| f.at == frontend.at)
        });
        let has = |route: &Route, b: &Backend| {
            route
                .cluster
                .iter()
                .chain(&*route.local)
                .any(|k| (k.ip, k.port) == (b.ip, b.port))
        };
        let gone: Vec<Backend> = old
            .cluster
            .iter()
            .chain(&*old.local)
            .filter(|b| kept.is_none_or(|new| !has(new, b)))
            .copied()
            .collect();
        if !gone.is_empty() {
            let protocol = old.key.protocol;
            out.push(Forget {
                seconds,
                at: frontend.at,
                protocol,
                gone,
            });
        }
    }
}
