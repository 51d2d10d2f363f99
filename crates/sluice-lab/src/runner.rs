//! Plays a scenario on a backend and compares.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result};
use sluice_model::name::Names;

use crate::backend::{Aim, Answers, Attempt, Backend, Seen, Session};
use crate::scenario::{Expect, Probe, Scenario, Served, Source, Spread, Variant};
use crate::{family, objects, world};

/// How one variant of a scenario went on one backend.
#[derive(Debug)]
pub struct Verdict {
    /// Scenario.
    pub scenario: String,
    /// Variant.
    pub variant: Variant,
    /// Backend.
    pub backend: String,
    /// Probes that came out otherwise than expected; empty means it passed.
    pub failures: Vec<Failure>,
}

impl Verdict {
    /// Whether everything was as expected.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// One thing that was not as expected.
#[derive(Debug)]
pub enum Failure {
    /// A probe.
    Probe {
        /// When and what: the step, who connects whereto.
        what: String,
        /// What the scenario expects.
        expected: String,
        /// What was seen.
        seen: String,
    },
    /// The scenario could not be played on.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Probe {
                what,
                expected,
                seen,
            } => {
                write!(f, "{what}\n    expected: {expected}\n    seen:     {seen}")
            }
            Failure::Broken(why) => f.write_str(why),
        }
    }
}

/// Plays every variant of a scenario. A failed probe does not stop the rest; what cannot be
/// played ends the variant.
pub fn run(scenario: &Scenario, backend: &mut dyn Backend) -> Vec<Verdict> {
    let play = |variant: &Variant| {
        let mut failures = Vec::new();
        let played = self::play(&family::variant(scenario, *variant), backend, &mut failures);
        if let Err(error) = played {
            failures.push(Failure::Broken(format!("{error:#}")));
        }
        Verdict {
            scenario: scenario.name.clone(),
            variant: *variant,
            backend: backend.name().to_owned(),
            failures,
        }
    };
    scenario.families.iter().map(play).collect()
}

fn play(scenario: &Scenario, backend: &mut dyn Backend, failures: &mut Vec<Failure>) -> Result<()> {
    let mut names = Names::default();
    let mut session = backend.begin(scenario).context("cannot build the world")?;
    let mut facts = world::node_facts(&scenario.node);
    facts.extend(objects::facts(&scenario.objects, &mut names)?);
    session.apply(facts).context("at the start")?;
    probes(
        scenario,
        "at the start",
        &scenario.probes,
        (&mut *session, failures),
    )?;
    for step in &scenario.steps {
        let when = || format!("after {:?}", step.about);
        let gone = step.delete.iter().map(|object| objects::gone(object));
        let mut facts: Vec<_> = gone.collect::<Result<_>>().with_context(when)?;
        facts.extend(objects::facts(&step.apply, &mut names).with_context(when)?);
        session.apply(facts).with_context(when)?;
        probes(scenario, &when(), &step.probes, (&mut *session, failures))?;
    }
    Ok(())
}

fn probes(
    scenario: &Scenario,
    when: &str,
    probes: &[Probe],
    (session, failures): (&mut dyn Session, &mut Vec<Failure>),
) -> Result<()> {
    for probe in probes {
        let (from, to, protocol) = (probe.from, probe.to, probe.protocol.protocol());
        let what = format!("{when}, {from} to {to} {protocol}");
        let client = world::client(&scenario.node, from, to.ip())?;
        let (tries, aim) = tries(&probe.expect);
        let attempt = Attempt {
            client,
            to,
            protocol,
            tries,
            aim,
        };
        let seen = session.attempt(&attempt).with_context(|| what.clone())?;
        let node = session.node_addresses();
        if !as_expected(&probe.expect, &seen, attempt.client.ip, &node) {
            let expected = probe.expect.to_string();
            failures.push(Failure::Probe {
                what,
                expected,
                seen: seen.to_string(),
            });
        }
    }
    Ok(())
}

/// How many tries an expectation needs. With 20 for each of n endpoints, one that is picked
/// fairly stays unseen once in e^20 series.
fn tries(expect: &Expect) -> (u32, Aim) {
    match expect {
        Expect::Refused | Expect::Dropped | Expect::Untouched => (1, Aim::Reach),
        Expect::Served(served) => {
            let endpoints = u32::try_from(served.endpoints.len()).unwrap_or(u32::MAX);
            let every = if endpoints == 1 {
                2
            } else {
                endpoints.saturating_mul(20)
            };
            let aim = if served.sticky {
                Aim::Stick
            } else {
                Aim::Reach
            };
            match served.spread {
                Some(_) => (every.max(60), aim),
                None => (every, aim),
            }
        }
    }
}

fn as_expected(expect: &Expect, seen: &Seen, client: IpAddr, node: &[IpAddr]) -> bool {
    match (expect, seen) {
        (Expect::Refused, Seen::Refused)
        | (Expect::Dropped, Seen::Dropped)
        | (Expect::Untouched, Seen::Untouched) => true,
        (Expect::Served(served), Seen::Served(answers)) => {
            let total: u32 = answers.values().map(|a| a.count).sum();
            let least = match served.spread {
                Some(_) => total / u32::try_from(served.endpoints.len()).unwrap_or(1) / 3,
                None => 1,
            };
            let all = || served.endpoints.iter().all(|e| answers.contains_key(e));
            let reached = if served.sticky {
                answers.len() == 1
            } else {
                all()
            };
            let fits = |(at, answers): (&SocketAddr, &Answers)| {
                served.endpoints.contains(at)
                    && answers.count >= least
                    && answers
                        .peers
                        .iter()
                        .all(|p| peer(served, at, (*p, client), node))
            };
            reached && answers.iter().all(fits)
        }
        (Expect::Refused | Expect::Dropped | Expect::Untouched | Expect::Served(_), _) => false,
    }
}

fn peer(
    served: &Served,
    at: &SocketAddr,
    (seen, client): (IpAddr, IpAddr),
    node: &[IpAddr],
) -> bool {
    match served.except.get(at).copied().unwrap_or(served.source) {
        Source::Kept => seen == client,
        Source::Node => node.contains(&seen),
        Source::Address(address) => seen == address,
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Kept => f.write_str("the client"),
            Source::Node => f.write_str("the node"),
            Source::Address(ip) => write!(f, "{ip}"),
        }
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = match self {
            Expect::Refused => return f.write_str("refused"),
            Expect::Dropped => return f.write_str("dropped"),
            Expect::Untouched => return f.write_str("untouched"),
            Expect::Served(served) => served,
        };
        let how = match (served.sticky, served.spread) {
            (true, _) => "one of ",
            (false, Some(Spread::Even)) => "evenly ",
            (false, None) => "",
        };
        f.write_str(how)?;
        for (index, at) in served.endpoints.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let source = served.except.get(at).unwrap_or(&served.source);
            write!(f, "{comma}{at} from {source}")?;
        }
        Ok(())
    }
}
