//! What a scenario runs against.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use sluice_model::fact::{Fact, Protocol};

use crate::scenario::Scenario;
use crate::world::Client;

/// Something that can play scenarios: the oracle, or one mode on a real kernel.
pub trait Backend {
    /// Its name in tables, as `oracle` or `nftables`.
    fn name(&self) -> &str;

    /// Builds the world of a scenario, before any object. The scenario is already of one variant.
    fn begin(&mut self, scenario: &Scenario) -> Result<Box<dyn Session>>;
}

/// A scenario being played.
pub trait Session {
    /// Brings facts into force, all at once.
    fn apply(&mut self, facts: Vec<Fact>) -> Result<()>;

    /// Connects, and tells what came of it.
    fn attempt(&mut self, attempt: &Attempt) -> Result<Seen>;

    /// The addresses that an endpoint may see after masquerading.
    fn node_addresses(&self) -> Vec<IpAddr>;
}

/// A connection to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// Who connects.
    pub client: Client,
    /// Whereto.
    pub to: SocketAddr,
    /// Transport protocol.
    pub protocol: Protocol,
    /// How often at least, with a new connection each time.
    pub tries: u32,
    /// What the tries are to find out.
    pub aim: Aim,
}

/// What a series of tries is made to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Which endpoints can be reached.
    Reach,
    /// Whether one client stays with one endpoint.
    Stick,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// ICMP port unreachable.
    Refused,
    /// No answer.
    Dropped,
    /// The packet went on as it was.
    Untouched,
    /// These endpoints answered.
    Served(BTreeMap<SocketAddr, Answers>),
    /// Something else, in words.
    Other(String),
    /// This backend cannot try that, and why.
    Untried(String),
    /// Tries ended differently; each outcome with its count.
    Mixed(BTreeMap<String, u32>),
}

/// The answers of one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// How many; where a backend computes instead of trying, its share of the tries.
    pub count: u32,
    /// What it saw as its peer's address.
    pub peers: BTreeSet<IpAddr>,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Refused => f.write_str("refused"),
            Seen::Dropped => f.write_str("dropped"),
            Seen::Untouched => f.write_str("untouched"),
            Seen::Served(answers) => {
                for (index, (at, answers)) in answers.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    let peers: Vec<_> = answers.peers.iter().map(IpAddr::to_string).collect();
                    write!(f, "{comma}{at} x{} from {}", answers.count, peers.join("|"))?;
                }
                Ok(())
            }
            Seen::Other(what) => f.write_str(what),
            Seen::Untried(why) => write!(f, "not tried: {why}"),
            Seen::Mixed(outcomes) => {
                let list: Vec<_> = outcomes.iter().map(|(o, n)| format!("{o} x{n}")).collect();
                write!(f, "sometimes each of: {}", list.join("; "))
            }
        }
    }
}
