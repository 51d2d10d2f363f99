//! The reactor: waits for whatever comes first, steps the engine, does what it says.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use sluice_dataplane::nftables::program::TABLE;
use sluice_model::cluster::Cluster;
use sluice_model::fact::Fact;
use sluice_netlink::nft;
use sluice_netlink::rt;
use sluice_source::api::{ApiSource, Update as ApiUpdate};
use sluice_source::manifest::{ManifestSource, Update};
use tokio::sync::{mpsc, oneshot, watch};

use super::api;
use super::clock::Clock;
use super::dataplane::{self, Opened};
use super::http::{self, Vitals};
use super::kernel::{Job, Kernel};
use super::watched::Watched;
use super::{DaemonOptions, Progress, report};
use crate::engine::{Effect, Engine, Input, Intruder, Message, Moment};

/// How often modes whose changes by others are not announced are looked after.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What ends the reactor.
pub(super) enum Stop {
    /// SIGTERM or SIGINT.
    Signals,
    /// The handle asked, or is gone.
    Asked(oneshot::Receiver<()>),
}

/// Ways into the reactor from the program around it.
pub(super) struct Inlets {
    pub(super) facts: Option<mpsc::UnboundedReceiver<Vec<Fact>>>,
    pub(super) stop: Stop,
}

/// Runs until stopped. `ready` is called once all sockets are open.
pub(super) fn run(
    options: DaemonOptions,
    inlets: Inlets,
    progress: watch::Sender<Progress>,
    ready: impl FnOnce(),
) -> anyhow::Result<()> {
    if let Some(netns) = &options.netns {
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(netns),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )
        .context("entering the network namespace")?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let api = options.api.clone();
        let mut reactor = Reactor::new(options, inlets.facts, progress)?;
        if let Some(api) = api {
            reactor.api = Some(
                ApiSource::start(api)
                    .await
                    .context("reaching the API server")?,
            );
        }
        ready();
        tokio::select! {
            ended = reactor.run() => ended,
            stopped = stop(inlets.stop) => stopped,
        }
    })
}

async fn stop(stop: Stop) -> anyhow::Result<()> {
    match stop {
        Stop::Asked(asked) => {
            // Dropping the sender is how a handle asks.
            drop(asked.await);
            Ok(())
        }
        Stop::Signals => {
            use tokio::signal::unix::{SignalKind, signal};
            let mut terminate = signal(SignalKind::terminate()).context("SIGTERM handler")?;
            let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT handler")?;
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!("{name}: ending; the rules stay in place");
            Ok(())
        }
    }
}

struct Reactor {
    engine: Engine,
    clock: Clock,
    kernel: Kernel,
    answers: mpsc::UnboundedReceiver<Input>,
    facts: Option<mpsc::UnboundedReceiver<Vec<Fact>>>,
    manifests: Option<Watched<ManifestSource>>,
    api: Option<ApiSource>,
    events: Option<(Watched<nft::Events>, u32)>,
    /// Beats where rules must be looked after.
    look: Option<tokio::time::Interval>,
    /// Somebody else's transaction touches our tables; its end names who it is.
    touched: bool,
    addresses: Watched<rt::Watch>,
    rt: rt::Socket,
    wake: Option<Moment>,
    fed: u64,
    progress: watch::Sender<Progress>,
    vitals: watch::Sender<Vitals>,
}

impl Reactor {
    fn new(
        options: DaemonOptions,
        facts: Option<mpsc::UnboundedReceiver<Vec<Fact>>>,
        progress: watch::Sender<Progress>,
    ) -> anyhow::Result<Reactor> {
        let clock = Clock::start();
        let Opened {
            compiler,
            driver,
            events,
        } = dataplane::open(options.mode, options.mark)?;
        let look = driver.must_look().then(look_beat);
        let (reply, answers) = mpsc::unbounded_channel();
        let kernel = Kernel::start(driver, reply)?;
        let engine = Engine::new(Cluster::new(options.settings), compiler, options.pace);
        let (vitals, watched) = watch::channel(Vitals {
            health: engine.health().clone(),
            node_eligible: false,
        });
        if let Some(address) = options.healthz {
            tokio::task::spawn_local(http::serve(address, clock, watched));
        }
        let mut reactor = Reactor {
            engine,
            clock,
            kernel,
            answers,
            facts,
            manifests: None,
            api: None,
            events,
            look,
            touched: false,
            addresses: Watched::new(rt::Watch::open(rt::Topic::Addresses)?)?,
            rt: rt::Socket::open()?,
            wake: None,
            fed: 0,
            progress,
            vitals,
        };
        reactor.read_addresses()?;
        if let Some(path) = &options.manifests {
            reactor.open_manifests(path)?;
        }
        Ok(reactor)
    }

    fn open_manifests(&mut self, path: &Path) -> anyhow::Result<()> {
        let mut source = ManifestSource::open(path)?;
        let news = source.initial();
        self.manifests = Some(Watched::new(source)?);
        self.take_manifests(news);
        Ok(())
    }

    fn read_manifests(&mut self) -> anyhow::Result<()> {
        if let Some(source) = &mut self.manifests {
            let news = source.inner.poll_changes()?;
            self.take_manifests(news);
        }
        Ok(())
    }

    fn take_manifests(&mut self, news: Update) {
        for problem in &news.problems {
            tracing::warn!("{problem}");
        }
        if !news.facts.is_empty() {
            self.step(Input::Facts(news.facts));
        }
    }

    fn read_addresses(&mut self) -> anyhow::Result<()> {
        let list = self
            .rt
            .addresses()
            .context("listing this machine's addresses")?;
        let mut ips: Vec<_> = list.into_iter().map(|address| address.ip).collect();
        ips.sort_unstable();
        ips.dedup();
        self.step(Input::Facts(vec![Fact::LocalAddresses(ips)]));
        Ok(())
    }

    async fn run(&mut self) -> anyhow::Result<()> {
        loop {
            let wake = self.wake;
            let clock = self.clock;
            let facts = async {
                match &mut self.facts {
                    Some(facts) => facts.recv().await,
                    None => std::future::pending().await,
                }
            };
            let manifests = async {
                match &self.manifests {
                    Some(source) => source.ready().await,
                    None => std::future::pending().await,
                }
            };
            let api = async {
                match &mut self.api {
                    Some(source) => source.next().await,
                    None => std::future::pending().await,
                }
            };
            let events = async {
                match &self.events {
                    Some((events, _)) => events.ready().await,
                    None => std::future::pending().await,
                }
            };
            let look = async {
                match &mut self.look {
                    Some(beat) => drop(beat.tick().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(answer) = self.answers.recv() => self.step(answer),
                Some(batch) = facts => {
                    self.fed += 1;
                    self.step(Input::Facts(batch));
                }
                ready = manifests => {
                    ready?;
                    self.read_manifests()?;
                }
                Some(update) = api => match update {
                    ApiUpdate::Facts(facts) => self.step(Input::Facts(facts)),
                    ApiUpdate::Notice(notice) => api::say(&notice),
                },
                ready = events => {
                    ready?;
                    self.read_events()?;
                }
                () = look => {
                    if self.engine.is_settled() {
                        self.kernel.submit(Job::Look);
                    }
                }
                ready = self.addresses.ready() => {
                    ready?;
                    if self.addresses.inner.changed()? {
                        self.read_addresses()?;
                    }
                }
                () = sleep_until(clock, wake) => {
                    self.wake = None;
                    self.step(Input::Tick);
                }
            }
        }
    }

    /// Other people's changes to our tables. Their messages name the socket; the name of the
    /// process follows with the generation that ends their transaction.
    fn read_events(&mut self) -> anyhow::Result<()> {
        let Some((source, own_port)) = &mut self.events else {
            return Ok(());
        };
        let own_port = *own_port;
        for event in source.inner.read()? {
            match event {
                nft::Event::Object { table, portid, .. } => {
                    // Port 0 is the kernel itself: an affinity entry that a packet made.
                    if table == TABLE && portid != 0 && portid != own_port {
                        self.touched = true;
                    }
                }
                nft::Event::Generation {
                    thread, process, ..
                } => {
                    if std::mem::take(&mut self.touched) {
                        let pid = thread;
                        self.step(Input::Foreign(Intruder { pid, process }));
                    }
                }
                nft::Event::Overflow => {
                    let process = "a burst of changes that could not be followed".to_owned();
                    self.step(Input::Foreign(Intruder { pid: 0, process }));
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, input: Input) {
        let effects = self.engine.step(self.clock.moment(), input);
        for effect in effects {
            match effect {
                Effect::Read => self.kernel.submit(Job::Read),
                Effect::Commit(tx) => self.kernel.submit(Job::Commit(tx)),
                Effect::WakeAt(moment) => self.wake = Some(moment),
                Effect::Say(message) => {
                    self.count(&message);
                    if matches!(message, Message::Started { .. }) {
                        self.kernel.submit(Job::RemoveOthers);
                    }
                    report::say(&message);
                }
                Effect::Settled(settled) => {
                    tracing::debug!(operations = settled.operations, "The kernel is up to date");
                    self.progress
                        .send_modify(|p| p.operations += settled.operations as u64);
                }
            }
        }
        self.publish();
    }

    fn count(&mut self, message: &Message) {
        self.progress.send_modify(|p| match message {
            Message::Failed { .. } | Message::LeftOut { .. } => p.failures += 1,
            Message::Drifted { .. } => p.repairs += 1,
            Message::Started { routes, .. } => p.routes = *routes,
            Message::Notice(_) => {}
        });
    }

    fn publish(&mut self) {
        if self.engine.is_settled() && self.engine.cluster().is_synced() {
            let fed = self.fed;
            self.progress
                .send_if_modified(|p| std::mem::replace(&mut p.settled, fed) != fed);
        }
        let vitals = Vitals {
            health: self.engine.health().clone(),
            node_eligible: self.engine.cluster().node_eligible(),
        };
        self.vitals.send_if_modified(|old| {
            let changed = *old != vitals;
            *old = vitals;
            changed
        });
    }
}

/// A beat of its own rather than a pause after other news, which could go on without end.
fn look_beat() -> tokio::time::Interval {
    let mut beat = tokio::time::interval(LOOK_EVERY);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    beat
}

async fn sleep_until(clock: Clock, wake: Option<Moment>) {
    match wake {
        Some(moment) => {
            let left = moment.0.saturating_sub(clock.moment().0);
            tokio::time::sleep(Duration::from_millis(left)).await;
        }
        None => std::future::pending().await,
    }
}
