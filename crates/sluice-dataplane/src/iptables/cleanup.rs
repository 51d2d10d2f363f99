//! Removes what this mode writes.

use sluice_model::fact::Family;
use sluice_netlink::nft;

use super::deliver::{chunks, restore_steps};
use super::driver::{DriverError, in_use};
use super::fixed::{PLACES, jumps};
use super::list::list;
use super::name::{Chain, Fixed, Table};
use super::tool::{Backend, Tool};
use super::tx::{Line, Listing, Step, remove};

/// Removes the rules of both backends and families. Gives back how many jumps and chains went.
pub(super) fn remove_rules() -> (usize, Vec<DriverError>) {
    let mut removed = 0;
    let mut errors = Vec::new();
    for (suffix, backend) in [("-nft", Backend::Nft), ("-legacy", Backend::Legacy)] {
        for family in Family::ALL
            .into_iter()
            .filter(|family| in_use(*family, backend))
        {
            // Programs that are not there have written nothing.
            let Ok(tool) = Tool::find(family, suffix) else {
                continue;
            };
            match remove_family(&tool, backend) {
                Ok((count, problems)) => {
                    removed += count;
                    errors.extend(problems);
                }
                Err(error) => errors.push(error),
            }
        }
    }
    (removed, errors)
}

fn remove_family(tool: &Tool, backend: Backend) -> Result<(usize, Vec<DriverError>), DriverError> {
    let family = tool.family();
    let mut socket = match backend {
        Backend::Nft => {
            Some(nft::Socket::open().map_err(|source| DriverError::Chains { family, source })?)
        }
        Backend::Legacy => None,
    };
    let steps = removal(&list(tool, socket.as_mut())?);
    let mut errors = Vec::new();
    for table in Table::ALL {
        let of_table: Vec<Step> = steps.iter().filter(|s| s.table == table).cloned().collect();
        for steps in chunks(backend, &of_table) {
            if let Err(source) = restore_steps(tool, steps) {
                let left_out = Vec::new();
                errors.push(DriverError::Write {
                    family,
                    line: None,
                    source,
                    left_out,
                });
            }
        }
    }
    let gone = |step: &&Step| match step.line {
        Line::Delete(..) | Line::DeleteListed(_) | Line::Remove(_) => true,
        Line::Fresh(_) | Line::Append(..) | Line::Insert(..) => false,
    };
    Ok((steps.iter().filter(gone).count(), errors))
}

/// The steps that take away what is listed of ours: jumps, then rules, then chains. The chain that
/// the kubelet uses as well stays, with the jumps to it.
pub fn removal(listing: &Listing) -> Vec<Step> {
    let mut steps = Vec::new();
    for anchor in jumps() {
        let text = format!("{}{}", anchor.chain, anchor.rule);
        let kept = anchor.rule.target == Some(super::rule::Target::Jump(Fixed::Firewall));
        let lines = listing.chains.get(&(anchor.table, anchor.chain));
        let there = lines
            .into_iter()
            .flatten()
            .filter(|line| !kept && **line == text);
        steps.extend(there.map(|line| Step {
            table: anchor.table,
            line: Line::DeleteListed(line.clone()),
        }));
    }
    let canaries = [Table::Filter, Table::Nat].map(|table| (table, Fixed::Canary));
    let fixed = PLACES.into_iter().chain(canaries);
    let fixed: Vec<_> = fixed
        .map(|(table, chain)| (table, Chain::Fixed(chain)))
        .filter(|place| listing.chains.contains_key(place))
        .collect();
    steps.extend(fixed.iter().map(|(table, chain)| Step {
        table: *table,
        line: Line::Fresh(*chain),
    }));
    remove(listing.services.clone(), &mut steps);
    steps.extend(fixed.iter().map(|(table, chain)| Step {
        table: *table,
        line: Line::Remove(*chain),
    }));
    steps
}
