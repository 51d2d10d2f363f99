//! The running proxy: a reactor thread around the engine, and a kernel thread.
//!
//! The reactor waits for news (manifests, a feed, addresses of the machine, other people's changes
//! to our tables, answers of the kernel thread, time), steps the engine, and does what it says.

pub mod api;
mod clock;
mod dataplane;
mod http;
mod kernel;
mod reactor;
mod report;
mod watched;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use sluice_dataplane::mode::Dataplane;
use sluice_model::fact::Fact;
use sluice_model::settings::Settings;
use sluice_source::api::ApiOptions;
use tokio::sync::{mpsc as feed, oneshot, watch};

use crate::engine::Pace;

/// What a running proxy needs to know.
#[derive(Debug)]
pub struct DaemonOptions {
    /// How services are carried out.
    pub mode: Dataplane,
    /// Policy.
    pub settings: Settings,
    /// One-bit packet mark that asks for masquerade.
    pub mark: u32,
    /// When to act.
    pub pace: Pace,
    /// A file or folder of manifests to serve.
    pub manifests: Option<PathBuf>,
    /// An API server to follow.
    pub api: Option<ApiOptions>,
    /// Where /healthz and /livez answer.
    pub healthz: Option<SocketAddr>,
    /// Network namespace to work in; `None` is the current one.
    pub netns: Option<OwnedFd>,
}

impl DaemonOptions {
    /// A proxy that is fed by hand ([`DaemonHandle::feed`]) in a network namespace, at its own
    /// pace and with kube-proxy's default masquerade mark.
    pub fn fed_by_hand(mode: Dataplane, settings: Settings, netns: OwnedFd) -> DaemonOptions {
        DaemonOptions {
            mode,
            settings,
            mark: DEFAULT_MARK,
            pace: Pace {
                min_sync_period: Duration::ZERO,
                sync_period: Duration::from_secs(30),
            },
            manifests: None,
            api: None,
            healthz: None,
            netns: Some(netns),
        }
    }
}

/// The mark of masqueradeBit 14, kube-proxy's default.
pub const DEFAULT_MARK: u32 = 1 << 14;

/// How far the proxy has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Fed batches that are in the kernel.
    pub settled: u64,
    /// Kernel objects written since the start.
    pub operations: u64,
    /// Commits that failed since the start.
    pub failures: u64,
    /// Repairs of what others changed, since the start.
    pub repairs: u64,
    /// Routes served after the first full comparison.
    pub routes: usize,
}

/// A proxy in threads of its own. Dropping it stops them and leaves the rules in place.
#[derive(Debug)]
pub struct DaemonHandle {
    feed: feed::UnboundedSender<Vec<Fact>>,
    fed: u64,
    progress: watch::Receiver<Progress>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl DaemonHandle {
    /// Starts a proxy; returns once its sockets are open.
    pub fn start(options: DaemonOptions) -> anyhow::Result<DaemonHandle> {
        let (feed, facts) = feed::unbounded_channel();
        let (report, progress) = watch::channel(Progress::default());
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("reactor".into())
            .spawn(move || {
                let inlets = reactor::Inlets {
                    facts: Some(facts),
                    stop: reactor::Stop::Asked(stopped),
                };
                reactor::run(options, inlets, report, move || {
                    // Nobody waits any more only if the starter is gone.
                    ready.send(()).unwrap_or_default();
                })
            })?;
        let mut handle = DaemonHandle {
            feed,
            fed: 0,
            progress,
            stop: Some(stop),
            thread: Some(thread),
        };
        if is_ready.recv().is_err() {
            return Err(handle
                .join()
                .err()
                .unwrap_or_else(|| anyhow::anyhow!("proxy ended early")));
        }
        Ok(handle)
    }

    /// Hands facts over; they count as one batch.
    pub fn feed(&mut self, facts: Vec<Fact>) -> anyhow::Result<()> {
        self.fed += 1;
        self.feed
            .send(facts)
            .map_err(|_| anyhow::anyhow!("the proxy has ended"))
    }

    /// Waits until everything fed so far is in the kernel.
    pub fn wait_idle(&self, timeout: Duration) -> anyhow::Result<Progress> {
        let mut progress = self.progress.clone();
        let fed = self.fed;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        runtime.block_on(async {
            let settled = tokio::time::timeout(timeout, progress.wait_for(|p| p.settled >= fed));
            let reached = settled.await.with_context(|| {
                format!(
                    "facts are not in the kernel after {} ms",
                    timeout.as_millis()
                )
            })?;
            Ok(*reached.context("the proxy has ended")?)
        })
    }

    /// How far it is now.
    pub fn progress(&self) -> Progress {
        *self.progress.borrow()
    }

    /// Stops the threads and waits for them; the rules stay.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.join()
    }

    fn join(&mut self) -> anyhow::Result<()> {
        self.stop.take();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(anyhow::anyhow!("the proxy's thread panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for DaemonHandle {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::error!("stopping the proxy: {error:#}");
        }
    }
}

/// Runs a proxy on this thread until SIGTERM or SIGINT; the rules stay.
pub fn run(options: DaemonOptions) -> anyhow::Result<()> {
    let (report, _progress) = watch::channel(Progress::default());
    let inlets = reactor::Inlets {
        facts: None,
        stop: reactor::Stop::Signals,
    };
    reactor::run(options, inlets, report, || {})
}
