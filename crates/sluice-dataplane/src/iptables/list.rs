//! Lists what is there: shared chains with their rules, services' chains by name.

use std::collections::BTreeMap;

use sluice_model::fact::Family;
use sluice_netlink::{Errno, nft};

use super::driver::DriverError;
use super::fixed::PLACES;
use super::name::{Chain, Fixed, Hook, ServiceChain, Table};
use super::tool::{Backend, Tool, ToolError};
use super::tx::Listing;

type Chains = BTreeMap<(Table, Chain), Vec<String>>;

/// Lists one family.
pub(super) fn list(tool: &Tool, socket: Option<&mut nft::Socket>) -> Result<Listing, DriverError> {
    match (tool.backend(), socket) {
        (Backend::Nft, Some(socket)) => list_nft(tool, socket),
        (Backend::Nft, None) | (Backend::Legacy, _) => list_whole(tool),
    }
}

/// Rules by the tool, only of chains that matter, since it takes minutes to list the whole of a
/// large table; names of services' chains by netlink. The kernel lists the chains of all tables of
/// a family at once, so this is done once, for `nat`.
fn list_nft(tool: &Tool, socket: &mut nft::Socket) -> Result<Listing, DriverError> {
    let family = tool.family();
    let mut listing = Listing::default();
    let names = chain_names(socket, family, Table::Nat)
        .map_err(|source| DriverError::Chains { family, source })?;
    listing.services = names
        .iter()
        .filter_map(|name| ServiceChain::parse(name))
        .collect();
    for table in Table::ALL {
        let chains: Vec<Chain> = interesting(table).collect();
        let chains = listed_chains(tool, table, &chains)
            .map_err(|source| DriverError::List { family, source })?;
        listing.chains.extend(chains);
    }
    Ok(listing)
}

fn chain_names(
    socket: &mut nft::Socket,
    family: Family,
    table: Table,
) -> Result<Vec<String>, sluice_netlink::Error> {
    let family = match family {
        Family::V4 => nft::Family::Ipv4,
        Family::V6 => nft::Family::Ipv6,
    };
    let table = nft::TableId {
        family,
        name: table.name(),
    };
    match socket.chains(table) {
        Ok(chains) => Ok(chains.into_iter().map(|info| info.chain.name).collect()),
        Err(error) if error.errno() == Some(Errno::NOENT) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Everything in three calls: the legacy kernel interface hands out tables only as a whole.
fn list_whole(tool: &Tool) -> Result<Listing, DriverError> {
    let family = tool.family();
    let mut listing = Listing::default();
    for table in Table::ALL {
        let chains: BTreeMap<String, Chain> = interesting(table)
            .map(|chain| (chain.to_string(), chain))
            .collect();
        let take = |line: &str| match Listed::parse(line) {
            Some(Listed::Chain(name)) => {
                if let Some(chain) = chains.get(name) {
                    listing.chains.entry((table, *chain)).or_default();
                }
                listing.services.extend(ServiceChain::parse(name));
            }
            Some(Listed::Rule(name, text)) => {
                if let Some(chain) = chains.get(name) {
                    let lines = listing.chains.entry((table, *chain)).or_default();
                    lines.push(text.to_owned());
                }
            }
            None => {}
        };
        tool.list(table, None, take)
            .map_err(|source| DriverError::List { family, source })?;
    }
    Ok(listing)
}

/// These chains of a table with their rules; those that do not exist are absent.
pub(super) fn listed_chains(
    tool: &Tool,
    table: Table,
    chains: &[Chain],
) -> Result<Chains, ToolError> {
    let mut found = Chains::new();
    for chain in chains {
        if found.contains_key(&(table, *chain)) {
            continue;
        }
        let mut lines = Vec::new();
        let take = |line: &str| {
            if let Some(Listed::Rule(_, text)) = Listed::parse(line) {
                lines.push(text.to_owned());
            }
        };
        match tool.list(table, Some(&chain.to_string()), take) {
            Ok(()) => {
                found.insert((table, *chain), lines);
            }
            // That is how the tool says that there is no such chain.
            Err(ToolError::Refused { .. }) => {}
            Err(
                error @ (ToolError::Start { .. }
                | ToolError::Locked { .. }
                | ToolError::Ended { .. }),
            ) => {
                return Err(error);
            }
        }
    }
    Ok(found)
}

/// Chains of a table that have anything to do with us, those of services aside.
fn interesting(table: Table) -> impl Iterator<Item = Chain> {
    let hooks: &[Hook] = match table {
        Table::Filter => &[Hook::Input, Hook::Forward, Hook::Output],
        Table::Nat => &[Hook::Prerouting, Hook::Output, Hook::Postrouting],
        Table::Mangle => &[],
    };
    let fixed = PLACES
        .into_iter()
        .filter(move |place| place.0 == table)
        .map(|place| place.1);
    let firewall = (table == Table::Filter).then_some(Fixed::Firewall);
    let canary = (table != Table::Mangle).then_some(Fixed::Canary);
    let fixed = fixed.chain(firewall).chain(canary).map(Chain::Fixed);
    hooks.iter().copied().map(Chain::Hook).chain(fixed)
}

/// A line of the tool's listing.
enum Listed<'a> {
    /// A chain exists.
    Chain(&'a str),
    /// A rule: its chain, and the text after `-A`.
    Rule(&'a str, &'a str),
}

impl Listed<'_> {
    fn parse(line: &str) -> Option<Listed<'_>> {
        let (verb, text) = line.split_once(' ')?;
        let name = text.split(' ').next()?;
        match verb {
            "-N" | "-P" => Some(Listed::Chain(name)),
            "-A" => Some(Listed::Rule(name, text)),
            _ => None,
        }
    }
}
