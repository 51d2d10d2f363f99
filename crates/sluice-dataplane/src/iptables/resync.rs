//! Comparison with what is there: shared chains rule by rule, chains of services by name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::compile::{Place, compile, unused_port};
use super::fixed::{Anchor, PLACES, guard, jumps, rules};
use super::name::{Chain, Fixed, ServiceChain, Table};
use super::rule::Rule;
use super::table::{Intent, Knowledge};
use super::tx::{Line, Lines, Listing, Old, Part, Step, Unit, add, remove};
use crate::drift::Drift;

impl Intent {
    /// What turns the family as listed into the intended one, and how far it was off.
    pub(super) fn resync(&mut self, listing: &Listing) -> (Part, Drift) {
        self.doubt_flying();
        let mut drift = Drift::default();
        if damaged(listing) {
            self.known = Knowledge::Nothing;
        }
        let mut seen = Seen::new(listing);
        let mut part = Part {
            family: self.ground.family,
            before: Arc::clone(&self.ground),
            ground: Arc::clone(&self.ground),
            first: Vec::new(),
            units: Vec::new(),
            last: Vec::new(),
        };
        self.shared_chains(listing, &mut seen, &mut part.first, &mut drift);
        let wanted = self.units(&mut seen, &mut part.units, &mut drift);
        self.single_lines(&mut seen, &mut part.last, &mut drift);
        seen.rest(&mut part.last, &mut drift);
        stale(listing, &wanted, &mut part.last, &mut drift);
        self.anchors(listing, &mut part, &mut drift);
        self.known = Knowledge::Written;
        (part, drift)
    }

    /// Makes the shared chains and their own rules.
    fn shared_chains(
        &self,
        listing: &Listing,
        seen: &mut Seen<'_>,
        steps: &mut Vec<Step>,
        drift: &mut Drift,
    ) {
        let canaries = [Table::Filter, Table::Nat].map(|table| (table, Fixed::Canary));
        for place in PLACES.into_iter().chain(canaries) {
            let (table, chain) = (place.0, Chain::Fixed(place.1));
            if !listing.chains.contains_key(&(table, chain)) {
                drift.note(|| format!("missing chain {chain} of {table}"));
                drift.missing += 1;
                steps.push(Step {
                    table,
                    line: Line::Fresh(chain),
                });
            }
            let own = rules(place, &self.ground);
            let misplaced = seen.misplaced(place, &own, listing);
            for rule in own {
                if misplaced || !seen.take(place, &rule) {
                    drift.missing += 1;
                    drift.note(|| format!("missing or misplaced in {table}: {chain}{rule}"));
                    steps.push(Step {
                        table,
                        line: Line::Append(chain, rule),
                    });
                }
            }
        }
    }

    /// Units for all service ports that may need something. Gives back the chains of all.
    fn units(
        &mut self,
        seen: &mut Seen<'_>,
        units: &mut Vec<Unit>,
        drift: &mut Drift,
    ) -> HashSet<ServiceChain> {
        let mut wanted = HashSet::new();
        let unsure = std::mem::take(&mut self.unsure);
        for (key, route) in &self.routes {
            let compiled = compile(route, &self.ground);
            wanted.extend(compiled.blocks.iter().map(|(chain, _)| *chain));
            let all = compiled.lines.len();
            let missing: Vec<(Place, Rule)> = compiled
                .lines
                .into_iter()
                .filter(|(place, rule)| !seen.take(*place, rule))
                .collect();
            if self.known == Knowledge::Written && !unsure.contains(key) && missing.is_empty() {
                continue;
            }
            drift.missing += missing.len();
            for (place, rule) in &missing {
                drift.note(|| format!("missing in {}: {}{rule}", place.0, place.1));
            }
            let lines = if missing.len() == all {
                Lines::Absent
            } else {
                Lines::Missing(missing)
            };
            self.flying.push(key.clone());
            let (old, new) = (Old::Unsure(lines), Some(Arc::clone(route)));
            units.push(Unit {
                key: key.clone(),
                old,
                new,
            });
        }
        wanted
    }

    /// Lines that belong to no service port.
    fn single_lines(&self, seen: &mut Seen<'_>, steps: &mut Vec<Step>, drift: &mut Drift) {
        let unused = self
            .cluster_ips
            .present()
            .map(|ip| unused_port(*ip, &self.ground));
        for (place, rule) in unused.chain(self.health_lines()) {
            if !seen.take(place, &rule) {
                drift.missing += 1;
                drift.note(|| format!("missing in {}: {}{rule}", place.0, place.1));
                steps.push(add(place, rule));
            }
        }
    }

    /// Jumps into our chains come last of all: as long as nothing leads there, the kernel does not
    /// look through the rules at each step.
    fn anchors(&self, listing: &Listing, part: &mut Part, drift: &mut Drift) {
        let firewall = (Table::Filter, Chain::Fixed(Fixed::Firewall));
        if !listing.chains.contains_key(&firewall) {
            drift.missing += 1;
            drift.note(|| format!("missing chain {}", firewall.1));
            part.first.push(Step {
                table: firewall.0,
                line: Line::Fresh(firewall.1),
            });
        }
        let missing = |anchor: &Anchor| {
            let text = format!("{}{}", anchor.chain, anchor.rule);
            let lines = listing.chains.get(&(anchor.table, anchor.chain));
            !lines.is_some_and(|lines| lines.contains(&text))
        };
        let mut mend = |anchor: Anchor, line: fn(Chain, Rule) -> Line| {
            let Anchor { table, chain, rule } = anchor;
            drift.missing += 1;
            drift.note(|| format!("missing in {table}: {chain}{rule}"));
            let line = line(chain, rule);
            Step { table, line }
        };
        for anchor in guard(&self.ground).into_iter().filter(missing) {
            part.first.push(mend(anchor, Line::Append));
        }
        for anchor in jumps().into_iter().filter(missing) {
            part.last.push(mend(anchor, Line::Insert));
        }
    }
}

/// Whether somebody emptied `nat`: then chains of services cannot be trusted either. A flush takes
/// the rules and leaves chains, unless they are deleted as well; so a chain that is never empty is
/// as telling as the canary.
fn damaged(listing: &Listing) -> bool {
    let chain = |fixed| listing.chains.get(&(Table::Nat, Chain::Fixed(fixed)));
    chain(Fixed::Canary).is_none()
        || chain(Fixed::Services).is_none()
        || chain(Fixed::MarkMasq).is_none_or(Vec::is_empty)
}

/// Chains of services that nobody wants, referrers first.
fn stale(
    listing: &Listing,
    wanted: &HashSet<ServiceChain>,
    steps: &mut Vec<Step>,
    drift: &mut Drift,
) {
    let all = listing.services.iter();
    let stale: Vec<ServiceChain> = all.filter(|c| !wanted.contains(*c)).copied().collect();
    drift.unexpected += stale.len();
    stale
        .iter()
        .for_each(|chain| drift.note(|| format!("unexpected chain {chain}")));
    remove(stale, steps);
}

/// Rules listed in shared chains, as many of each as nobody has taken yet.
struct Seen<'a> {
    left: [HashMap<&'a str, usize>; 3],
}

impl<'a> Seen<'a> {
    fn new(listing: &'a Listing) -> Seen<'a> {
        let mut left: [HashMap<&str, usize>; 3] = Default::default();
        for place in PLACES {
            let lines = listing.chains.get(&(place.0, Chain::Fixed(place.1)));
            for line in lines.into_iter().flatten() {
                *left[place.0 as usize].entry(line.as_str()).or_insert(0) += 1;
            }
        }
        Seen { left }
    }

    fn take(&mut self, place: Place, rule: &Rule) -> bool {
        let text = format!("{}{rule}", place.1);
        match self.left[place.0 as usize].get_mut(text.as_str()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether a chain's own rules stand before lines of services that must come first.
    fn misplaced(&self, place: Place, own: &[Rule], listing: &Listing) -> bool {
        let sample = match place {
            (Table::Nat, Fixed::Services) | (Table::Filter, Fixed::ClusterIps) => own.first(),
            (Table::Filter | Table::Nat | Table::Mangle, _) => None,
        };
        let (Some(sample), Some(lines)) = (
            sample,
            listing.chains.get(&(place.0, Chain::Fixed(place.1))),
        ) else {
            return false;
        };
        let text = format!("{}{sample}", place.1);
        let first = lines.iter().position(|line| *line == text);
        first.is_some_and(|first| first + own.len() < lines.len())
    }

    /// Deletes rules that nobody took.
    fn rest(self, steps: &mut Vec<Step>, drift: &mut Drift) {
        for (table, left) in Table::ALL.into_iter().zip(self.left) {
            let mut rest: Vec<_> = left.into_iter().filter(|(_, count)| *count > 0).collect();
            rest.sort_unstable();
            for (text, count) in rest {
                drift.unexpected += count;
                drift.note(|| format!("unexpected in {table}: {text}"));
                let line = Line::DeleteListed(text.to_owned());
                steps.extend(std::iter::repeat_n(Step { table, line }, count));
            }
        }
    }
}
