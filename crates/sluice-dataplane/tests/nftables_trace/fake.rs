//! A kernel of values: applies transactions with nf_tables' own strictness.

use std::collections::{BTreeMap, BTreeSet};

use sluice_dataplane::nftables::element::{Key, SetId, Value};
use sluice_dataplane::nftables::tx::{Observed, ObservedTable, Op, Part, Tx};
use sluice_model::fact::Family;
use sluice_netlink::nft::{Expr, Verdict};

/// One family's table.
#[derive(Default)]
pub(crate) struct FakeTable {
    pub(crate) chains:
        BTreeMap<String, (sluice_netlink::nft::Chain, Vec<sluice_netlink::nft::Rule>)>,
    pub(crate) sets: BTreeMap<String, sluice_netlink::nft::Set>,
    pub(crate) elements: BTreeMap<(SetId, Key), Value>,
}

/// Both tables.
#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) tables: [Option<FakeTable>; 2],
}

impl Fake {
    pub(crate) fn apply(&mut self, tx: &Tx) {
        for part in &tx.parts {
            self.apply_part(part);
        }
    }

    fn apply_part(&mut self, part: &Part) {
        let slot = &mut self.tables[part.family as usize];
        for op in &part.ops {
            match op {
                Op::AddTable => *slot = Some(slot.take().unwrap_or_default()),
                Op::DeleteTable => drop(slot.take().expect("deletes a table that is not there")),
                _ => slot.as_mut().expect("no table").apply(op),
            }
        }
        if let Some(table) = slot {
            for chain in &part.sweep {
                table.delete_chain(&chain.to_string());
            }
            table.check_references(part.family);
        }
    }

    pub(crate) fn observe(&self) -> Observed {
        let observe = |table: &FakeTable| ObservedTable {
            program: sluice_dataplane::nftables::program::Program {
                chains: table.chains.clone(),
                sets: table.sets.clone(),
            },
            elements: table
                .elements
                .iter()
                .map(|(key, value)| (*key, *value))
                .collect(),
            ..ObservedTable::default()
        };
        Observed {
            tables: [0, 1].map(|i| self.tables[i].as_ref().map(observe)),
        }
    }
}

impl FakeTable {
    fn apply(&mut self, op: &Op) {
        match op {
            Op::AddTable | Op::DeleteTable => unreachable!("done by the caller"),
            Op::AddSet(set) => {
                assert!(
                    self.sets.insert(set.name.clone(), set.clone()).is_none(),
                    "{op}: exists"
                );
            }
            Op::DeleteSet(name) => {
                self.sets
                    .remove(name)
                    .unwrap_or_else(|| panic!("{op}: not there"));
                self.elements.retain(|(set, _), _| set.to_string() != *name);
            }
            Op::AddChain(chain) => {
                let new = (chain.clone(), Vec::new());
                assert!(
                    self.chains.insert(chain.name.clone(), new).is_none(),
                    "{op}: exists"
                );
            }
            Op::FlushChain(name) => {
                self.chains
                    .get_mut(name)
                    .unwrap_or_else(|| panic!("{op}: not there"))
                    .1
                    .clear();
            }
            Op::DeleteChain(name) => self.delete_chain(name),
            Op::AddRule(rule) => {
                let chain = self.chains.get_mut(&rule.chain);
                chain
                    .unwrap_or_else(|| panic!("{op}: no chain"))
                    .1
                    .push(rule.clone());
            }
            Op::Add(elements) => {
                for (key, value) in elements {
                    assert!(
                        self.sets.contains_key(&key.0.to_string()),
                        "no set {}",
                        key.0
                    );
                    let old = self.elements.insert(*key, *value);
                    assert_eq!(old, None, "{} {} exists", key.0, key.1);
                }
            }
            Op::Remove(elements) => {
                for (key, _) in elements {
                    assert!(
                        self.elements.remove(key).is_some(),
                        "{} {}: ENOENT",
                        key.0,
                        key.1
                    );
                }
            }
            Op::RemoveForeign(_) => panic!("nothing foreign here"),
            Op::Forget(_) => {}
        }
    }

    fn delete_chain(&mut self, name: &str) {
        assert!(
            !self.targets().contains(name),
            "chain {name} is still referred to"
        );
        assert!(self.chains.remove(name).is_some(), "chain {name}: ENOENT");
    }

    fn targets(&self) -> BTreeSet<String> {
        let of_rule = |expr: &Expr| match expr {
            Expr::Verdict(Verdict::Jump(to) | Verdict::Goto(to)) => Some(to.clone()),
            _ => None,
        };
        let rules = self.chains.values().flat_map(|(_, rules)| rules);
        let by_rules = rules.flat_map(|rule| rule.exprs.iter().filter_map(of_rule));
        by_rules
            .chain(self.elements.values().filter_map(|v| target(*v)))
            .collect()
    }

    /// What a kernel checks when it takes a rule or an element.
    fn check_references(&self, family: Family) {
        for name in self.targets() {
            assert!(
                self.chains.contains_key(&name),
                "{family}: chain {name} is not there"
            );
        }
        for rule in self.chains.values().flat_map(|(_, rules)| rules) {
            for expr in &rule.exprs {
                if let Expr::Lookup { set, .. } | Expr::Dynset { set, .. } = expr {
                    assert!(
                        self.sets.contains_key(set),
                        "{family}: set {set} is not there"
                    );
                }
            }
        }
    }
}

/// The chain that a verdict leads to.
pub(crate) fn target(value: Value) -> Option<String> {
    match value {
        Value::Goto(chain) => Some(chain.to_string()),
        Value::Record(seconds) => Some(format!("record-{seconds}")),
        Value::Reject => Some("reject-chain".to_owned()),
        Value::Member | Value::Drop | Value::Endpoint(..) | Value::Foreign => None,
    }
}
