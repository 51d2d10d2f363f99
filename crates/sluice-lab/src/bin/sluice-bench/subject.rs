//! The proxy under measurement: the daemon's own engine and driver, fed by hand.

use std::os::fd::OwnedFd;
use std::time::Duration;

use sluice_dataplane::mode::Dataplane;
use sluice_model::fact::Fact;
use sluice_model::settings::Settings;
use sluice_proxy::daemon::{DaemonHandle, DaemonOptions, Progress};

use crate::figures::timed;

/// No change takes as long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A proxy in a network namespace.
#[derive(Debug)]
pub(crate) struct Subject {
    daemon: DaemonHandle,
}

impl Subject {
    pub(crate) fn start(netns: OwnedFd, settings: Settings) -> anyhow::Result<Subject> {
        let options = DaemonOptions::fed_by_hand(Dataplane::Nftables, settings, netns);
        let daemon = DaemonHandle::start(options)?;
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
