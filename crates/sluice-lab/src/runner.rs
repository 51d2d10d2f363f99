//! Plays a scenario on a backend and collects what was not as expected.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use sluice_model::fact::Fact;
use sluice_model::name::Names;

use crate::backend::{Attempt, Backend, Seen, Session};
use crate::compare::{as_expected, tries};
use crate::scenario::{Filed, Object, Probe, Scenario, Variant};
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
    /// Probes that the backend cannot try, with the reason.
    pub untried: Vec<String>,
}

impl Verdict {
    /// Whether everything that was tried was as expected.
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
            Failure::Broken(why) => f.write_str(why),
            Failure::Probe {
                what,
                expected,
                seen,
            } => {
                write!(f, "{what}\n    expected: {expected}\n    seen:     {seen}")
            }
        }
    }
}

/// Plays every variant of a scenario. A failed probe does not stop the rest; what cannot be
/// played ends the variant.
pub fn run(scenario: &Scenario, backend: &mut dyn Backend) -> Vec<Verdict> {
    let play = |variant: &Variant| {
        let mut verdict = Verdict {
            scenario: scenario.name.clone(),
            variant: *variant,
            backend: backend.name().to_owned(),
            failures: Vec::new(),
            untried: Vec::new(),
        };
        let scenario = family::variant(scenario, *variant);
        let played = backend.begin(&scenario).context("cannot build the world");
        let played = played.and_then(|session| {
            let (scenario, verdict) = (&scenario, &mut verdict);
            Play {
                scenario,
                session,
                verdict,
                names: Names::default(),
            }
            .through()
        });
        if let Err(error) = played {
            verdict.failures.push(Failure::Broken(format!("{error:#}")));
        }
        verdict
    };
    scenario.families.iter().map(play).collect()
}

/// Plays scenarios on `jobs` threads, each with a backend of its own from `open`, and tells `each`
/// verdict as it falls. The result is in the order of the scenarios.
pub fn run_all(
    scenarios: &[Filed],
    jobs: usize,
    open: &(dyn Fn() -> Result<Box<dyn Backend>> + Sync),
    each: &(dyn Fn(&Verdict) + Sync),
) -> Result<Vec<Verdict>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Vec<Verdict>)>> {
        let mut backend = open()?;
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(filed) = scenarios.get(index) else {
                return Ok(done);
            };
            let verdicts = run(&filed.scenario, &mut *backend);
            verdicts.iter().for_each(each);
            done.push((index, verdicts));
        }
    };
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for thread in threads {
            let done = thread
                .join()
                .map_err(|_| anyhow!("a thread that played died"))?;
            all.extend(done?);
        }
        Ok::<_, anyhow::Error>(all)
    })?;
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().flat_map(|(_, verdicts)| verdicts).collect())
}

struct Play<'a> {
    scenario: &'a Scenario,
    session: Box<dyn Session>,
    verdict: &'a mut Verdict,
    names: Names,
}

impl Play<'_> {
    fn through(mut self) -> Result<()> {
        let scenario = self.scenario;
        let node = world::node_facts(&scenario.node);
        self.stage("at the start", node, (&scenario.objects, &scenario.probes))?;
        for step in &scenario.steps {
            let when = format!("after {:?}", step.about);
            let gone = step.delete.iter().map(|object| objects::gone(object));
            let gone = gone.collect::<Result<_>>().with_context(|| when.clone())?;
            self.stage(&when, gone, (&step.apply, &step.probes))?;
        }
        Ok(())
    }

    fn stage(
        &mut self,
        when: &str,
        mut facts: Vec<Fact>,
        (objects, probes): (&[Object], &[Probe]),
    ) -> Result<()> {
        let stated = objects::facts(objects, &mut self.names);
        facts.extend(stated.with_context(|| when.to_owned())?);
        self.session.apply(facts).with_context(|| when.to_owned())?;
        for probe in probes {
            let to = format!(
                "{} to {} {}",
                probe.from,
                probe.to,
                probe.protocol.protocol()
            );
            let what = format!("{when}, {to}");
            self.probe(probe, &what).with_context(|| what.clone())?;
        }
        Ok(())
    }

    fn probe(&mut self, probe: &Probe, what: &str) -> Result<()> {
        let (tries, aim) = tries(&probe.expect);
        let attempt = Attempt {
            client: world::client(&self.scenario.node, probe.from, probe.to.ip())?,
            to: probe.to,
            protocol: probe.protocol.protocol(),
            tries,
            aim,
        };
        let seen = self.session.attempt(&attempt)?;
        let node = self.session.node_addresses();
        if let Seen::Untried(why) = &seen {
            self.verdict.untried.push(format!("{what}: {why}"));
        } else if !as_expected(&probe.expect, &seen, attempt.client.ip, &node) {
            self.verdict.failures.push(Failure::Probe {
                what: what.to_owned(),
                expected: probe.expect.to_string(),
                seen: seen.to_string(),
            });
        }
        Ok(())
    }
}
