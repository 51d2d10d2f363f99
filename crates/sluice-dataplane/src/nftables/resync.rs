//! Full synchronisation: the kernel as read is the old side, intent the new one.

use std::collections::HashSet;
use std::net::IpAddr;

use sluice_model::fact::Protocol;
use sluice_model::route::{At, Backend};

use super::compile::Element;
use super::element::{ChainId, Key, SetId, Value, parse_record_chain};
use super::program::Program;
use super::table::{SlotHints, Table};
use super::tx::{Activity, ObservedTable, Op, Part};
use crate::drift::Drift;
use crate::image::difference;

impl Table {
    /// What turns the table as read into the intended one, and how far it was off.
    pub(super) fn resync(&mut self, observed: Option<&ObservedTable>) -> (Part, Drift) {
        let nothing = Program::default();
        let intent = self.settle_program(observed.map_or(&nothing, |table| &table.program));
        let mut drift = Drift::default();
        let mut ops = Vec::new();
        match observed {
            Some(table) if repairable(table, &intent) => {
                let mut late = Vec::new();
                repair_program(&table.program, intent, &mut ops, &mut late, &mut drift);
                self.repair_elements(table, &mut ops, &mut drift);
                ops.extend(late);
            }
            other => {
                if other.is_none() {
                    drift.note(|| "the table is gone".into());
                }
                if let Some(table) = other {
                    ops.push(Op::DeleteTable);
                    drift.unexpected += table.program.chains.len() + table.program.sets.len();
                    drift.note(|| match table.activity {
                        Activity::Active => {
                            "a table of another make, or with objects in other form".into()
                        }
                        Activity::Dormant => "the table is dormant".into(),
                    });
                }
                create(intent, &mut ops, &mut drift);
                let elements = self.elements();
                drift.missing += elements.len();
                let added = difference(Vec::new(), elements).add;
                if !added.is_empty() {
                    ops.push(Op::Add(added));
                }
            }
        }
        (
            Part {
                family: self.ground.family,
                ops,
                sweep: Vec::new(),
            },
            drift,
        )
    }

    fn repair_elements(&self, table: &ObservedTable, ops: &mut Vec<Op>, drift: &mut Drift) {
        for foreign in &table.foreign {
            drift.unexpected += 1;
            drift.note(|| format!("foreign element in {}", foreign.set));
            ops.push(Op::RemoveForeign(foreign.clone()));
        }
        let stale = self.stale_clients(&table.clients);
        let change = difference(table.elements.clone(), self.elements());
        drift.missing += change.add.len();
        drift.unexpected += change.remove.len();
        let say =
            |verb: &str, ((set, key), value): &Element| format!("{verb} {set} {key}: {value}");
        change
            .remove
            .iter()
            .take(4)
            .for_each(|e| drift.note(|| say("unexpected", e)));
        change
            .add
            .iter()
            .take(4)
            .for_each(|e| drift.note(|| say("missing", e)));
        let remove: Vec<Element> = change.remove.into_iter().chain(stale).collect();
        if !remove.is_empty() {
            ops.push(Op::Remove(remove));
        }
        if !change.add.is_empty() {
            ops.push(Op::Add(change.add));
        }
    }

    /// Learned entries that no longer lead to an endpoint of their frontend.
    fn stale_clients(&self, clients: &[(u32, Element)]) -> Vec<Element> {
        if clients.is_empty() {
            return Vec::new();
        }
        let mut good: HashSet<(u32, At, Protocol, IpAddr, u16)> = HashSet::new();
        for placed in self.placed.values() {
            let route = &placed.route;
            let Some(seconds) = route.affinity else {
                continue;
            };
            for frontend in &route.frontends {
                for b in route.cluster.iter().chain(&*route.local) {
                    good.insert((seconds, frontend.at, route.key.protocol, b.ip, b.port));
                }
            }
        }
        let stale = |(seconds, ((_, key), value)): &&(u32, Element)| {
            let (Key::Client(_, ip, proto, port), Value::Endpoint(to, to_port)) = (key, value)
            else {
                return true;
            };
            let leads = |at| good.contains(&(*seconds, at, *proto, *to, *to_port));
            !leads(At::Vip(*ip, *port)) && !leads(At::NodePort(*port))
        };
        clients
            .iter()
            .filter(stale)
            .map(|(_, element)| *element)
            .collect()
    }
}

/// A table can be repaired in place unless it is switched off, or a base chain or a set of ours
/// has another form.
fn repairable(table: &ObservedTable, intent: &Program) -> bool {
    let seen = &table.program;
    let chain = |(name, (chain, _)): (&String, &(_, _))| {
        intent
            .chains
            .get(name)
            .is_none_or(|(wanted, _)| wanted == chain)
    };
    let set = |(name, set)| intent.sets.get(name).is_none_or(|wanted| wanted == set);
    let awake = match table.activity {
        Activity::Active => true,
        Activity::Dormant => false,
    };
    awake && seen.chains.iter().all(chain) && seen.sets.iter().all(set)
}

fn create(intent: Program, ops: &mut Vec<Op>, drift: &mut Drift) {
    drift.missing += intent.chains.len() + intent.sets.len();
    ops.push(Op::AddTable);
    ops.extend(intent.sets.into_values().map(Op::AddSet));
    ops.extend(
        intent
            .chains
            .values()
            .map(|(chain, _)| Op::AddChain(chain.clone())),
    );
    ops.extend(
        intent
            .chains
            .into_values()
            .flat_map(|(_, rules)| rules)
            .map(Op::AddRule),
    );
}

/// `early` comes before elements change, `late` after: a map may still lead to a chain that goes.
fn repair_program(
    seen: &Program,
    intent: Program,
    early: &mut Vec<Op>,
    late: &mut Vec<Op>,
    drift: &mut Drift,
) {
    for (name, set) in &intent.sets {
        if !seen.sets.contains_key(name) {
            drift.missing += 1;
            drift.note(|| format!("missing set {name}"));
            early.push(Op::AddSet(set.clone()));
        }
    }
    for name in seen
        .sets
        .keys()
        .filter(|name| !intent.sets.contains_key(*name))
    {
        // Before the chains: a map may lead to one that goes.
        late.push(Op::DeleteSet(name.clone()));
        if SetId::parse(name).is_none() {
            drift.unexpected += 1;
            drift.note(|| format!("unexpected set {name}"));
        }
    }
    for name in seen
        .chains
        .keys()
        .filter(|name| !intent.chains.contains_key(*name))
    {
        // Emptied first, so that chains and sets which only it refers to can go as well.
        early.push(Op::FlushChain(name.clone()));
        late.push(Op::DeleteChain(name.clone()));
        if ChainId::parse(name).is_none() && parse_record_chain(name).is_none() {
            drift.unexpected += 1;
            drift.note(|| format!("unexpected chain {name}"));
        }
    }
    for (name, (chain, _)) in &intent.chains {
        if !seen.chains.contains_key(name) {
            drift.missing += 1;
            drift.note(|| format!("missing chain {name}"));
            early.push(Op::AddChain(chain.clone()));
        }
    }
    for (name, (_, rules)) in intent.chains {
        let old: &[_] = seen.chains.get(&name).map_or(&[], |(_, rules)| rules);
        if old == rules {
            continue;
        }
        if !old.is_empty() {
            early.push(Op::FlushChain(name.clone()));
        }
        if seen.chains.contains_key(&name) {
            drift.missing += rules.iter().filter(|r| !old.contains(r)).count();
            drift.unexpected += old.iter().filter(|r| !rules.contains(r)).count();
            drift.note(|| format!("rules of chain {name} differ"));
        }
        early.extend(rules.into_iter().map(Op::AddRule));
    }
}

/// Which slots the endpoints of each frontend have in the kernel.
pub(super) fn slot_hints(table: Option<&ObservedTable>) -> SlotHints {
    let mut hints = SlotHints::new();
    for ((_, key), value) in table.into_iter().flat_map(|t| &t.elements) {
        let (at, protocol, slot) = match *key {
            Key::VipSlot(ip, proto, port, slot) => (At::Vip(ip, port), proto, slot),
            Key::NodePortSlot(proto, port, slot) => (At::NodePort(port), proto, slot),
            Key::Ip(_)
            | Key::Hairpin(_)
            | Key::Vip(..)
            | Key::NodePort(..)
            | Key::Allow(..)
            | Key::Client(..) => continue,
        };
        if let Value::Endpoint(ip, port) = *value {
            let backend = Backend {
                ip,
                port,
                local: false,
            };
            hints
                .entry((at, protocol))
                .or_default()
                .push((slot, backend));
        }
    }
    hints
}
