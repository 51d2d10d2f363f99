//! The engine: the one owner of all state, as a pure step function.
//!
//! [`Engine::step`] takes an input and the time and gives back effects; it reads no clock, does no
//! I/O and never waits. While the kernel is busy, facts only gather: the next transaction is their
//! net change. Whatever makes the kernel's state doubtful (a start, a failed commit, somebody
//! else's change) leads to the same path: read, compare, repair.

mod health;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sluice_dataplane::drift::Drift;
use sluice_dataplane::mode::{Compiler, Observed, Outcome, Tx};
use sluice_model::cluster::Cluster;
use sluice_model::fact::{Fact, Family};
use sluice_model::name::ObjectKey;
use sluice_model::route::{Changes, HealthCheck, Notice};

pub use health::{FamilyHealth, Health};

/// Milliseconds since an arbitrary start that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// This much later.
    pub fn after(self, pause: Duration) -> Moment {
        Moment(self.0.saturating_add(pause.as_millis() as u64))
    }
}

/// What happens to the engine.
#[derive(Debug)]
pub enum Input {
    /// News from a source.
    Facts(Vec<Fact>),
    /// Answer to [`Effect::Read`].
    Observed(Result<Box<Observed>, Failure>),
    /// Answer to [`Effect::Commit`].
    Committed(Result<Report, Failure>),
    /// Somebody else changed one of our tables.
    Foreign(Intruder),
    /// The time asked for by [`Effect::WakeAt`] has come.
    Tick,
}

/// What the engine wants done.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Read the kernel; answer with [`Input::Observed`].
    Read,
    /// Carry this out; answer with [`Input::Committed`].
    Commit(Tx),
    /// Step with [`Input::Tick`] at this time; replaces an earlier wish.
    WakeAt(Moment),
    /// Tell the operator.
    Say(Message),
    /// The kernel holds what the facts say: all of those handed in so far.
    Settled(Settled),
}

/// A commit that the kernel took, or a comparison that found nothing to do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// Kernel objects written; 0 where everything was in place already.
    pub operations: usize,
    /// Trigger times (Unix nanoseconds) of the slices whose change is now in effect.
    pub triggers: Vec<i64>,
    /// Health-check node ports to serve from now on.
    pub health: Vec<(ObjectKey, Option<HealthCheck>)>,
}

/// Something worth a log line.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The first full comparison after a start is through.
    Started {
        /// Kernel objects that had to be written; 0 means the previous run's rules were adopted.
        operations: usize,
        /// Routes served.
        routes: usize,
    },
    /// Reading or writing the kernel failed.
    Failed {
        /// What and why.
        failure: Failure,
        /// Next attempt in so many milliseconds.
        retry_ms: u64,
    },
    /// Part of a transaction was refused; the rest is in force.
    LeftOut {
        /// What and why.
        outcome: Outcome,
        /// Next attempt in so many milliseconds.
        retry_ms: u64,
    },
    /// The kernel differed from intent and is being repaired.
    Drifted {
        /// Family of the table.
        family: Family,
        /// How.
        drift: Drift,
        /// By whom, where that is known.
        by: Option<Intruder>,
    },
    /// The model has a remark on an object.
    Notice(Notice),
}

/// Somebody who changed one of our tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intruder {
    /// Process id.
    pub pid: u32,
    /// Process name.
    pub process: String,
}

/// A failed read or commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Operation, object, the kernel's words, and a remedy where one is known.
    pub text: String,
}

/// A commit in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Kernel objects written.
    pub operations: usize,
    /// What was left out; everything else is in force.
    pub outcome: Outcome,
}

/// When to act.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Least time between the end of one commit and the start of the next; zero means at once.
    pub min_sync_period: Duration,
    /// A change that has waited twice as long for its commit makes the proxy unhealthy.
    pub sync_period: Duration,
}

/// First pause after a failure; doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Pause between repairs while somebody keeps undoing them.
const REPAIR_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, PartialEq)]
enum Kernel {
    /// May hold anything: it must be read before it is written.
    Unknown,
    /// Holds what the compiler intends.
    InSync,
}

#[derive(Debug, PartialEq)]
enum Work {
    Idle,
    Reading,
    /// A read under way while somebody changed what it may have passed already.
    ReadingPast,
    Committing,
}

/// All state of the proxy but for what is in flight.
#[derive(Debug)]
pub struct Engine {
    cluster: Cluster,
    compiler: Compiler,
    pace: Pace,
    kernel: Kernel,
    work: Work,
    started: bool,
    intruder: Option<Intruder>,
    not_before: Moment,
    last_repair: Option<Moment>,
    retry: Duration,
    pending: Settled,
    health: Health,
}

impl Engine {
    /// An engine that knows nothing yet.
    pub fn new(cluster: Cluster, compiler: Compiler, pace: Pace) -> Engine {
        Engine {
            cluster,
            compiler,
            pace,
            kernel: Kernel::Unknown,
            work: Work::Idle,
            started: false,
            intruder: None,
            not_before: Moment::default(),
            last_repair: None,
            retry: RETRY_MIN,
            pending: Settled::default(),
            health: Health::new(pace.sync_period),
        }
    }

    /// How the proxy is doing.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// The facts and routes.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Whether everything handed in so far is in the kernel.
    pub fn is_settled(&self) -> bool {
        self.work == Work::Idle && self.kernel == Kernel::InSync && !self.cluster.is_dirty()
    }

    /// Takes an input in and says what is to be done.
    pub fn step(&mut self, now: Moment, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Facts(facts) => {
                for fact in facts {
                    self.cluster.apply(fact);
                }
                if self.cluster.is_dirty() {
                    self.health.queued(now);
                }
            }
            Input::Tick => {}
            Input::Foreign(intruder) => self.distrust(now, intruder),
            Input::Observed(Ok(observed)) => self.observed(now, &observed, &mut effects),
            Input::Observed(Err(failure)) | Input::Committed(Err(failure)) => {
                self.failed(now, failure, &mut effects);
            }
            Input::Committed(Ok(report)) => self.committed(now, &report, &mut effects),
        }
        if self.work == Work::Idle {
            self.advance(now, &mut effects);
        }
        effects
    }

    fn advance(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        let wanted = self.kernel == Kernel::Unknown || self.cluster.is_dirty();
        if !self.cluster.is_synced() || !wanted {
            return;
        }
        if now < self.not_before {
            effects.push(Effect::WakeAt(self.not_before));
            return;
        }
        match self.kernel {
            Kernel::Unknown => {
                self.work = Work::Reading;
                effects.push(Effect::Read);
            }
            Kernel::InSync => {
                let mut changes = self.cluster.changes();
                let tx = self.compiler.update(&changes);
                self.note(&mut changes, effects);
                self.commit(now, tx, effects);
            }
        }
    }

    fn observed(&mut self, now: Moment, observed: &Observed, effects: &mut Vec<Effect>) {
        let mut changes = self.cluster.changes();
        let (tx, drifts) = self.compiler.resync(&changes, observed);
        self.note(&mut changes, effects);
        if self.started {
            for (family, drift) in Family::ALL.into_iter().zip(drifts) {
                if !drift.is_none() {
                    let by = self.intruder.clone();
                    effects.push(Effect::Say(Message::Drifted { family, drift, by }));
                    self.last_repair = Some(now);
                }
            }
        }
        // What was read past is still acted on, so that a restless neighbour cannot starve us.
        if self.work != Work::ReadingPast {
            self.intruder = None;
            self.kernel = Kernel::InSync;
        }
        self.commit(now, tx, effects);
    }

    fn commit(&mut self, now: Moment, tx: Tx, effects: &mut Vec<Effect>) {
        if tx.is_empty() {
            self.settle(now, effects);
        } else {
            self.work = Work::Committing;
            effects.push(Effect::Commit(tx));
        }
    }

    /// The part of changes that is not the compiler's.
    fn note(&mut self, changes: &mut Changes, effects: &mut Vec<Effect>) {
        self.pending.triggers.append(&mut changes.triggers);
        self.pending.health.append(&mut changes.health);
        let notices = changes.notices.drain(..).map(Message::Notice);
        effects.extend(notices.map(Effect::Say));
    }

    fn settle(&mut self, now: Moment, effects: &mut Vec<Effect>) {
        self.work = Work::Idle;
        self.retry = RETRY_MIN;
        let pace = now.after(self.pace.min_sync_period);
        self.not_before = self.not_before.max(pace);
        self.health.updated(now);
        let settled = std::mem::take(&mut self.pending);
        if !self.started {
            self.started = true;
            let routes = self.cluster.routes().count();
            let operations = settled.operations;
            effects.push(Effect::Say(Message::Started { operations, routes }));
        }
        effects.push(Effect::Settled(settled));
        if self.cluster.is_dirty() {
            self.health.queued(now);
        }
    }

    fn committed(&mut self, now: Moment, report: &Report, effects: &mut Vec<Effect>) {
        self.pending.operations += report.operations;
        self.compiler.settle(&report.outcome);
        let pause = self.retry;
        self.settle(now, effects);
        if self.compiler.in_doubt() {
            self.kernel = Kernel::Unknown;
            self.not_before = self.not_before.max(now.after(pause));
            self.retry = (pause * 2).min(RETRY_MAX);
            let outcome = report.outcome.clone();
            let retry_ms = pause.as_millis() as u64;
            effects.push(Effect::Say(Message::LeftOut { outcome, retry_ms }));
        }
    }

    fn failed(&mut self, now: Moment, failure: Failure, effects: &mut Vec<Effect>) {
        self.work = Work::Idle;
        self.kernel = Kernel::Unknown;
        self.health.queued(now);
        self.not_before = now.after(self.retry);
        let retry_ms = self.retry.as_millis() as u64;
        effects.push(Effect::Say(Message::Failed { failure, retry_ms }));
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }

    fn distrust(&mut self, now: Moment, intruder: Intruder) {
        self.kernel = Kernel::Unknown;
        self.intruder = Some(intruder);
        if self.work == Work::Reading {
            self.work = Work::ReadingPast;
        }
        let pause = self.last_repair.map(|last| last.after(REPAIR_PAUSE));
        self.not_before = self.not_before.max(pause.unwrap_or(now));
    }
}
