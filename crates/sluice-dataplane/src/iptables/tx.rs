//! What is to be done, and what was found: the values that pass between the compiler and the
//! driver.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use sluice_model::fact::Family;
use sluice_model::route::{Backend, PoolChoice, PortKey, Route};

use super::compile::{Compiled, Place, compile};
use super::fixed::{Position, position};
use super::ground::Ground;
use super::name::{Chain, ServiceChain, Table};
use super::rule::Rule;

/// A change over both families. Each table of each family changes at once where it fits into one
/// call of the tool; a large one is cut between services, whose rules never refer to each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tx {
    /// A part per family that has something to do.
    pub parts: Vec<Part>,
}

impl Tx {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.parts.iter().all(Part::is_empty)
    }

    /// Number of service ports and single rules touched.
    pub fn len(&self) -> usize {
        self.parts
            .iter()
            .map(|p| p.first.len() + p.units.len() + p.last.len())
            .sum()
    }
}

/// The part of a change that concerns one family.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Family.
    pub family: Family,
    /// What old routes were compiled on.
    pub before: Arc<Ground>,
    /// What new routes are compiled on.
    pub ground: Arc<Ground>,
    /// Steps before all units.
    pub first: Vec<Step>,
    /// Changed service ports, independent of each other.
    pub units: Vec<Unit>,
    /// Steps after all units.
    pub last: Vec<Step>,
}

impl Part {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.units.is_empty() && self.last.is_empty()
    }

    /// The steps of one unit, in order. They are made when they are needed: of 10,000 services
    /// they would fill more memory than everything else.
    pub fn steps(&self, unit: &Unit) -> Vec<Step> {
        let compiled = |route: &Option<Arc<Route>>, ground: &Ground| {
            route
                .as_ref()
                .map_or_else(Compiled::default, |r| compile(r, ground))
        };
        // Compared in the same wording: comments alone are no reason to write.
        let before = Ground {
            detail: self.ground.detail,
            ..Ground::clone(&self.before)
        };
        let new = compiled(&unit.new, &self.ground);
        let mut steps = Vec::new();
        let gone = match &unit.old {
            Old::Known(old) => {
                let old = compiled(old, &before);
                let kept: HashMap<_, _> = old.blocks.iter().map(|(c, rules)| (c, rules)).collect();
                let changed = new
                    .blocks
                    .iter()
                    .filter(|(c, rules)| kept.get(c) != Some(&rules));
                changed.for_each(|(chain, rules)| block(*chain, rules, &mut steps));
                patch(&old.lines, &new.lines, &mut steps);
                gone(&old, &new)
            }
            Old::Unsure(lines) => {
                new.blocks
                    .iter()
                    .for_each(|(chain, rules)| block(*chain, rules, &mut steps));
                let lines = match lines {
                    Lines::Absent => &new.lines,
                    Lines::Missing(missing) => missing,
                };
                steps.extend(lines.iter().map(|(place, rule)| add(*place, rule.clone())));
                Vec::new()
            }
        };
        remove(gone, &mut steps);
        steps
    }
}

/// Chains that the old side has and the new one has not.
fn gone(old: &Compiled, new: &Compiled) -> Vec<ServiceChain> {
    let kept: HashSet<&ServiceChain> = new.blocks.iter().map(|(chain, _)| chain).collect();
    old.blocks
        .iter()
        .map(|(chain, _)| *chain)
        .filter(|chain| !kept.contains(chain))
        .collect()
}

/// Deletes chains, those that jump before those that are jumped to.
pub(super) fn remove(mut chains: Vec<ServiceChain>, steps: &mut Vec<Step>) {
    chains.sort_unstable_by_key(|chain| (std::cmp::Reverse(chain.role()), *chain));
    chains.dedup();
    for chain in chains {
        let chain = Chain::Service(chain);
        let lines = [Line::Fresh(chain), Line::Remove(chain)];
        steps.extend(lines.map(|line| Step {
            table: Table::Nat,
            line,
        }));
    }
}

fn block(chain: ServiceChain, rules: &[Rule], steps: &mut Vec<Step>) {
    let chain = Chain::Service(chain);
    steps.push(Step {
        table: Table::Nat,
        line: Line::Fresh(chain),
    });
    let rules = rules.iter().map(|rule| Line::Append(chain, rule.clone()));
    steps.extend(rules.map(|line| Step {
        table: Table::Nat,
        line,
    }));
}

/// Lines are few per service port; the new ones come before the old ones go.
pub(super) fn patch(old: &[(Place, Rule)], new: &[(Place, Rule)], steps: &mut Vec<Step>) {
    let only = |a: &[(Place, Rule)], b: &[(Place, Rule)]| -> Vec<(Place, Rule)> {
        a.iter().filter(|line| !b.contains(line)).cloned().collect()
    };
    let come = only(new, old);
    steps.extend(come.into_iter().map(|(place, rule)| add(place, rule)));
    steps.extend(only(old, new).into_iter().map(|(place, rule)| {
        let line = Line::Delete(Chain::Fixed(place.1), rule);
        Step {
            table: place.0,
            line,
        }
    }));
}

/// The step that puts a line where it belongs.
pub(super) fn add(place: Place, rule: Rule) -> Step {
    let chain = Chain::Fixed(place.1);
    let line = match position(place, &rule) {
        Position::Front => Line::Insert(chain, rule),
        Position::Back => Line::Append(chain, rule),
    };
    Step {
        table: place.0,
        line,
    }
}

/// A service port that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Whose rules these are.
    pub key: PortKey,
    /// What the kernel has of it.
    pub old: Old,
    /// What it should have.
    pub new: Option<Arc<Route>>,
}

impl Unit {
    /// About as many chains as its steps name: those it writes, jumps to, and deletes.
    pub fn weight(&self) -> usize {
        let pools = |route: &Route| route.cluster.len() + route.local.len();
        let new = self.new.as_ref().map_or(0, |route| pools(route) + 4);
        match &self.old {
            Old::Known(None) => new,
            Old::Known(Some(old)) => {
                new + self
                    .new
                    .as_ref()
                    .map_or(pools(old) + 4, |new| gone_from(old, new))
            }
            Old::Unsure(_) => new,
        }
    }
}

/// How many endpoints of the old side's pools the new side has not.
fn gone_from(old: &Route, new: &Route) -> usize {
    [PoolChoice::Cluster, PoolChoice::Local]
        .into_iter()
        .map(|choice| {
            let kept = new.pool(choice);
            let is_kept = |b: &Backend| {
                kept.binary_search_by_key(&(b.ip, b.port), |k| (k.ip, k.port))
                    .is_ok()
            };
            old.pool(choice).iter().filter(|b| !is_kept(b)).count()
        })
        .sum()
}

/// What the kernel has of a service port.
#[derive(Clone, Debug, PartialEq)]
pub enum Old {
    /// Exactly the rules of this route.
    Known(Option<Arc<Route>>),
    /// Its chains may be anything. Those that should not be there at all are deleted by the last
    /// steps of the part, when no listed rule leads there any more.
    Unsure(Lines),
}

/// Lines of a service port to be added to shared chains.
#[derive(Clone, Debug, PartialEq)]
pub enum Lines {
    /// All of them: there are none yet.
    Absent,
    /// Just these.
    Missing(Vec<(Place, Rule)>),
}

/// One line of the tool's input, with the table that it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Table.
    pub table: Table,
    /// What to do.
    pub line: Line,
}

/// One line of the tool's input.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// Create the chain, or empty it.
    Fresh(Chain),
    /// Put a rule last.
    Append(Chain, Rule),
    /// Put a rule first.
    Insert(Chain, Rule),
    /// Delete a rule.
    Delete(Chain, Rule),
    /// Delete a rule that this program did not write, by its text as listed after `-A`.
    DeleteListed(String),
    /// Delete an empty chain that nothing jumps to.
    Remove(Chain),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Fresh(chain) => write!(f, ":{chain} - [0:0]"),
            Line::Append(chain, rule) => write!(f, "-A {chain}{rule}"),
            Line::Insert(chain, rule) => write!(f, "-I {chain}{rule}"),
            Line::Delete(chain, rule) => write!(f, "-D {chain}{rule}"),
            Line::DeleteListed(text) => write!(f, "-D {text}"),
            Line::Remove(chain) => write!(f, "-X {chain}"),
        }
    }
}

/// What the kernel holds, per family ([`Family::ALL`]'s order); `None` where the node cannot do
/// that family.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The families.
    pub families: [Option<Listing>; 2],
}

/// One family as listed. Chains of services are listed by name only: reading all their rules takes
/// minutes where there are many.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// Rules of the kernel's own chains and of the shared ones, each as listed after `-A`, which
    /// starts with the chain's name. A chain that does not exist is absent.
    pub chains: BTreeMap<(Table, Chain), Vec<String>>,
    /// Chains of services in `nat`.
    pub services: Vec<ServiceChain>,
}

/// What became of a transaction that was carried out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Service ports that were left out since one of their rules was refused. Everything else is
    /// in force.
    pub left_out: Vec<LeftOut>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, left) in self.left_out.iter().enumerate() {
            let comma = if index > 0 { "; " } else { "" };
            write!(f, "{comma}{left}")?;
        }
        Ok(())
    }
}

/// A service port whose rules the kernel or the tool refused.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// Family.
    pub family: Family,
    /// Whose rules.
    pub key: PortKey,
    /// The line that was refused, where that is known.
    pub line: Option<String>,
    /// The tool's words.
    pub reason: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftOut {
            family,
            key,
            line,
            reason,
        } = self;
        write!(
            f,
            "service port {key}/{} ({family}) is left out: ",
            key.protocol
        )?;
        match line {
            Some(line) => write!(f, "`{line}` was refused: {reason}"),
            None => write!(f, "its rules were refused: {reason}"),
        }
    }
}
