//! Rules in memory: what a kernel would hold. For `plan`, and for tests that apply transactions
//! without a kernel.

use std::collections::BTreeMap;
use std::fmt;

use super::compile::{Place, compile, unused_port};
use super::fixed::{PLACES, Position, guard, jumps, position, rules};
use super::name::{Chain, Fixed, Table};
use super::rule::Rule;
use super::table::Intent;
use super::tx::{Line, Listing, Part, Step};

/// Chains with their rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ruleset {
    /// By table and chain; a chain may be empty.
    pub chains: BTreeMap<(Table, Chain), Vec<Rule>>,
}

/// Why a line cannot be carried out, as the kernel would refuse it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {table}: `{line}`: {why}")]
pub struct Refused {
    /// Table.
    pub table: Table,
    /// The line.
    pub line: String,
    /// What is wrong.
    pub why: &'static str,
}

impl Ruleset {
    /// Carries a whole part out.
    pub fn apply(&mut self, part: &Part) -> Result<(), Refused> {
        let units = part.units.iter().flat_map(|unit| part.steps(unit));
        let all = part
            .first
            .iter()
            .cloned()
            .chain(units)
            .chain(part.last.iter().cloned());
        for step in all {
            self.step(&step)?;
        }
        Ok(())
    }

    /// Carries one step out.
    pub fn step(&mut self, step: &Step) -> Result<(), Refused> {
        let table = step.table;
        let refused = |why| Refused {
            table,
            line: step.line.to_string(),
            why,
        };
        let absent = "no such chain";
        match &step.line {
            Line::Fresh(chain) => {
                self.chains.insert((table, *chain), Vec::new());
            }
            Line::Append(chain, rule) => self
                .rules(table, *chain)
                .ok_or_else(|| refused(absent))?
                .push(rule.clone()),
            Line::Insert(chain, rule) => {
                self.rules(table, *chain)
                    .ok_or_else(|| refused(absent))?
                    .insert(0, rule.clone());
            }
            Line::Delete(chain, rule) => {
                let rules = self.rules(table, *chain).ok_or_else(|| refused(absent))?;
                let at = rules.iter().position(|r| r == rule);
                rules.remove(at.ok_or_else(|| refused("no such rule"))?);
            }
            Line::DeleteListed(text) => {
                let found = self
                    .chains
                    .iter_mut()
                    .find_map(|((in_table, chain), rules)| {
                        let at = rules.iter().position(|r| format!("{chain}{r}") == *text)?;
                        (*in_table == table).then_some((rules, at))
                    });
                let (rules, at) = found.ok_or_else(|| refused("no such rule"))?;
                rules.remove(at);
            }
            Line::Remove(chain) => {
                let rules = self
                    .chains
                    .remove(&(table, *chain))
                    .ok_or_else(|| refused(absent))?;
                if !rules.is_empty() {
                    return Err(refused("not empty"));
                }
            }
        }
        Ok(())
    }

    fn rules(&mut self, table: Table, chain: Chain) -> Option<&mut Vec<Rule>> {
        match chain {
            Chain::Hook(_) => Some(self.chains.entry((table, chain)).or_default()),
            Chain::Fixed(_) | Chain::Service(_) => self.chains.get_mut(&(table, chain)),
        }
    }

    /// As a driver would list it.
    pub fn listing(&self) -> Listing {
        let mut listing = Listing::default();
        for ((table, chain), rules) in &self.chains {
            match chain {
                Chain::Service(chain) => listing.services.push(*chain),
                Chain::Hook(_) | Chain::Fixed(_) => {
                    let lines = rules.iter().map(|rule| format!("{chain}{rule}")).collect();
                    listing.chains.insert((*table, *chain), lines);
                }
            }
        }
        listing
    }
}

impl fmt::Display for Ruleset {
    /// As `iptables-save` prints it, without counters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for table in Table::ALL {
            let chains = self.chains.iter().filter(|((t, _), _)| *t == table);
            writeln!(f, "*{table}")?;
            for ((_, chain), rules) in chains {
                rules
                    .iter()
                    .try_for_each(|rule| writeln!(f, "-A {chain}{rule}"))?;
            }
        }
        Ok(())
    }
}

/// Everything that a family should hold, as a fresh load would leave it.
pub(super) fn intended(intent: &Intent) -> Ruleset {
    let mut ruleset = Ruleset::default();
    let mut routes: Vec<_> = intent.routes.iter().collect();
    routes.sort_by(|a, b| a.0.cmp(b.0));
    let mut lines: Vec<(Place, Rule)> = Vec::new();
    for (_, route) in routes {
        let compiled = compile(route, &intent.ground);
        let blocks = compiled.blocks.into_iter();
        ruleset
            .chains
            .extend(blocks.map(|(c, rules)| ((Table::Nat, Chain::Service(c)), rules)));
        lines.extend(compiled.lines);
    }
    let mut ips: Vec<_> = intent.cluster_ips.present().collect();
    ips.sort();
    lines.extend(ips.into_iter().map(|ip| unused_port(*ip, &intent.ground)));
    lines.extend(intent.health_lines());
    let canaries = [Table::Filter, Table::Nat].map(|table| (table, Fixed::Canary));
    for place in PLACES.into_iter().chain(canaries) {
        let of = |wanted: Position| {
            let lines = lines
                .iter()
                .filter(move |(p, rule)| *p == place && position(*p, rule) == wanted);
            lines.map(|(_, rule)| rule.clone())
        };
        let own = rules(place, &intent.ground);
        let all = of(Position::Front)
            .chain(own)
            .chain(of(Position::Back))
            .collect();
        ruleset.chains.insert((place.0, Chain::Fixed(place.1)), all);
    }
    let firewall = (Table::Filter, Chain::Fixed(Fixed::Firewall));
    ruleset.chains.insert(
        firewall,
        guard(&intent.ground).into_iter().map(|a| a.rule).collect(),
    );
    for anchor in jumps() {
        ruleset
            .chains
            .entry((anchor.table, anchor.chain))
            .or_default()
            .insert(0, anchor.rule);
    }
    ruleset
}
