//! The proxy under measurement: the daemon's own engine and driver, fed by hand.

use std::os::fd::OwnedFd;
use std::time::Duration;

use sluice_model::fact::Fact;
use sluice_model::settings::Settings;
use sluice_proxy::daemon::{DaemonHandle, DaemonOptions, Dataplane, Progress};
use sluice_proxy::engine::Pace;

use crate::figures::timed;

/// No change takes as long.
const PATIENCE: Duration = Duration::from_secs(120);

/// kube-proxy's default masqueradeBit is 14.
pub(crate) const MARK: u32 = 1 << 14;

/// A proxy in a network namespace.
#[derive(Debug)]
pub(crate) struct Subject {
    daemon: DaemonHandle,
}

impl Subject {
    pub(crate) fn start(netns: OwnedFd, settings: Settings) -> anyhow::Result<Subject> {
        let daemon = DaemonHandle::start(DaemonOptions {
            mode: Dataplane::Nftables,
            settings,
            mark: MARK,
            pace: Pace {
                min_sync_period: Duration::ZERO,
                sync_period: Duration::from_secs(30),
            },
            manifests: None,
            api: None,
            healthz: None,
            netns: Some(netns),
        })?;
        Ok(Subject { daemon })
    }

    /// Hands facts over without waiting.
    pub(crate) fn feed(&mut self, facts: Vec<Fact>) -> anyhow::Result<()> {
        self.daemon.feed(facts)
    }

    /// Waits until all facts are in the kernel.
    pub(crate) fn settle(&self) -> anyhow::Result<Progress> {
        let progress = self.daemon.wait_idle(PATIENCE)?;
        anyhow::ensure!(
            progress.failures == 0,
            "{} commits failed: run `kube-proxy demo` to see why",
            progress.failures
        );
        Ok(progress)
    }

    /// Milliseconds from handing facts over until they are in the kernel.
    pub(crate) fn carry_out(&mut self, facts: Vec<Fact>) -> anyhow::Result<f64> {
        let ((), took) = timed(|| {
            self.feed(facts)?;
            self.settle().map(drop)
        })?;
        Ok(took)
    }

    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.daemon.stop()
    }
}
