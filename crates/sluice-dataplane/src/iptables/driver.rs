//! Finds the host's `iptables`, lists what is there, and carries transactions out.

use std::fs;

use sluice_model::fact::Family;
use sluice_netlink::nft;

use super::cleanup;
use super::deliver::deliver;
use super::fixed::jumps;
use super::list::{list, listed_chains};
use super::name::{Chain, Fixed, Table};
use super::rule::PortChoice;
use super::tool::{Backend, Tool, ToolError};
use super::tx::{LeftOut, Observed, Outcome, Tx};

/// Why rules were not written or listed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Neither family can be served.
    #[error("no usable iptables: {0}")]
    Unusable(ToolError),
    /// Listing failed.
    #[error("listing the rules of {family}: {source}")]
    List {
        /// Family.
        family: Family,
        /// The tool's reason.
        source: ToolError,
    },
    /// Listing chains by netlink failed.
    #[error("listing the chains of {family}: {source}")]
    Chains {
        /// Family.
        family: Family,
        /// The kernel's reason.
        source: sluice_netlink::Error,
    },
    /// A call failed for a reason that no service port is to blame for. Calls before it are in
    /// force.
    #[error("writing the rules of {family}{}: {source}", at(.line))]
    Write {
        /// Family.
        family: Family,
        /// The line at fault, where one is known.
        line: Option<String>,
        /// The tool's reason.
        source: ToolError,
        /// Service ports that were refused before that.
        left_out: Vec<LeftOut>,
    },
}

fn at(line: &Option<String>) -> String {
    line.as_ref()
        .map_or_else(String::new, |line| format!(", `{line}`"))
}

/// Which programs to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Those that the host uses.
    Host,
    /// Those with this interface.
    Fixed(Backend),
}

/// Whether rules are still as they were written, as far as a quick look tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing is missing.
    Intact,
    /// Something is: compare and repair. It is named.
    Damaged(String),
}

/// The rules of one network namespace.
#[derive(Debug)]
pub struct Driver {
    tools: [Option<Tool>; 2],
    /// For listing chains where they are nf_tables'.
    socket: Option<nft::Socket>,
    /// nf_tables' generation after the last look or commit.
    generation: Option<u32>,
    /// Looks so far.
    looks: u32,
    /// Service ports of the largest commit: about as many as there are.
    units: usize,
}

/// Service ports above which a legacy `nat` table takes too long to list at each look.
const SLOW_TO_LIST: usize = 500;
/// Looks after which such a table is listed all the same.
const SLOW_LOOK_EVERY: u32 = 30;

impl Driver {
    /// Finds the programs, in the network namespace of this thread. A family that the node cannot
    /// do is left alone; [`Driver::families`] says which remain.
    pub fn open(choice: Choice) -> Result<Driver, DriverError> {
        let suffix = match choice {
            Choice::Fixed(Backend::Nft) => "-nft",
            Choice::Fixed(Backend::Legacy) => "-legacy",
            Choice::Host => host_suffix(),
        };
        let mut tools = [None, None];
        let mut problem = None;
        for (slot, family) in tools.iter_mut().zip(Family::ALL) {
            let usable = |tool: &Tool| tool.list(Table::Nat, Some("POSTROUTING"), |_| {});
            let found = Tool::find(family, suffix);
            match found.and_then(|tool| usable(&tool).map(|()| tool)) {
                Ok(tool) => *slot = Some(tool),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if let ([None, None], Some(problem)) = (&tools, problem) {
            return Err(DriverError::Unusable(problem));
        }
        let nft = tools
            .iter()
            .flatten()
            .any(|tool| tool.backend() == Backend::Nft);
        let socket = if nft {
            let family = Family::V4;
            Some(nft::Socket::open().map_err(|source| DriverError::Chains { family, source })?)
        } else {
            None
        };
        Ok(Driver {
            tools,
            socket,
            generation: None,
            looks: 0,
            units: 0,
        })
    }

    /// Families that are served.
    pub fn families(&self) -> impl Iterator<Item = Family> {
        self.tools.iter().flatten().map(Tool::family)
    }

    /// The kernel interface in use.
    pub fn backend(&self) -> Backend {
        self.tools
            .iter()
            .flatten()
            .next()
            .map_or(Backend::Nft, Tool::backend)
    }

    /// How masquerade can choose source ports with these programs.
    pub fn source_ports(&self) -> PortChoice {
        self.tools
            .iter()
            .flatten()
            .next()
            .map_or(PortChoice::Random, Tool::source_ports)
    }

    /// Lists shared chains and the names of services' chains.
    pub fn read(&mut self) -> Result<Observed, DriverError> {
        let mut observed = Observed::default();
        for (slot, tool) in observed.families.iter_mut().zip(&self.tools) {
            if let Some(tool) = tool {
                *slot = Some(list(tool, self.socket.as_mut())?);
            }
        }
        Ok(observed)
    }

    /// Carries a transaction out. Service ports with a rule that is refused are left out, all
    /// others are in force.
    pub fn commit(&mut self, tx: &Tx) -> Result<Outcome, DriverError> {
        let mut left_out = Vec::new();
        for part in &tx.parts {
            let Some(tool) = &self.tools[part.family as usize] else {
                continue;
            };
            self.units = self.units.max(part.units.len());
            if let Err(failure) = deliver(tool, part, &mut left_out) {
                let (family, line, source) = (part.family, failure.line, failure.source);
                return Err(DriverError::Write {
                    family,
                    line,
                    source,
                    left_out,
                });
            }
        }
        self.generation = self.current_generation();
        Ok(Outcome { left_out })
    }

    /// A look at what a flush or an accident takes away: canaries and jumps. With nf_tables it
    /// costs one message while nobody changes anything.
    pub fn look(&mut self) -> Result<Look, DriverError> {
        let generation = self.current_generation();
        if generation.is_some() && generation == self.generation {
            return Ok(Look::Intact);
        }
        self.looks = self.looks.wrapping_add(1);
        let slow = self.units > SLOW_TO_LIST && !self.looks.is_multiple_of(SLOW_LOOK_EVERY);
        for tool in self.tools.iter().flatten() {
            for table in Table::ALL {
                if tool.backend() == Backend::Legacy && table == Table::Nat && slow {
                    continue;
                }
                if let Some(damage) = damage(tool, table)? {
                    return Ok(Look::Damaged(damage));
                }
            }
        }
        self.generation = generation;
        Ok(Look::Intact)
    }

    /// Removes everything that this mode writes, of either backend, and nothing else. What cannot
    /// be removed is reported, the rest goes on.
    pub fn remove_rules() -> (usize, Vec<DriverError>) {
        cleanup::remove_rules()
    }

    fn current_generation(&mut self) -> Option<u32> {
        self.socket.as_mut()?.generation().ok()
    }
}

/// What is missing in a table, in words.
fn damage(tool: &Tool, table: Table) -> Result<Option<String>, DriverError> {
    let family = tool.family();
    let canary = Chain::Fixed(Fixed::Canary);
    let anchors: Vec<_> = jumps().into_iter().filter(|a| a.table == table).collect();
    let mut wanted = vec![canary];
    wanted.extend(anchors.iter().map(|anchor| anchor.chain));
    if table == Table::Nat {
        wanted.push(Chain::Fixed(Fixed::MarkMasq));
    }
    let chains = listed_chains(tool, table, &wanted)
        .map_err(|source| DriverError::List { family, source })?;
    if !chains.contains_key(&(table, canary)) {
        return Ok(Some(format!(
            "chain {canary} of {table} ({family}) is gone"
        )));
    }
    for anchor in anchors {
        let text = format!("{}{}", anchor.chain, anchor.rule);
        if !chains
            .get(&(table, anchor.chain))
            .is_some_and(|lines| lines.contains(&text))
        {
            return Ok(Some(format!("rule `{text}` of {table} ({family}) is gone")));
        }
    }
    let mark = chains.get(&(table, Chain::Fixed(Fixed::MarkMasq)));
    let emptied = table == Table::Nat && mark.is_none_or(Vec::is_empty);
    Ok(emptied.then(|| format!("table {table} ({family}) was flushed")))
}

/// Chains by which the kubelet tells which programs the host uses.
const HINTS: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// The suffix of the programs with which the kubelet, or whoever else is there already, writes.
fn host_suffix() -> &'static str {
    for (suffix, backend) in [("-nft", Backend::Nft), ("-legacy", Backend::Legacy)] {
        for family in Family::ALL {
            if !in_use(family, backend) {
                continue;
            }
            let Ok(tool) = Tool::find(family, suffix) else {
                continue;
            };
            if HINTS
                .iter()
                .any(|hint| tool.list(Table::Mangle, Some(hint), |_| {}).is_ok())
            {
                return suffix;
            }
        }
    }
    ""
}

/// Whether a backend may hold rules. Listing legacy tables would create them.
pub(super) fn in_use(family: Family, backend: Backend) -> bool {
    match backend {
        Backend::Nft => true,
        Backend::Legacy => {
            let path = match family {
                Family::V4 => "/proc/thread-self/net/ip_tables_names",
                Family::V6 => "/proc/thread-self/net/ip6_tables_names",
            };
            fs::read_to_string(path).is_ok_and(|names| !names.trim().is_empty())
        }
    }
}
