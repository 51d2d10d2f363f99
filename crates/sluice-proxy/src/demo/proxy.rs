//! The daemon, fed by hand.

use std::time::Duration;

use sluice_dataplane::mode::Dataplane;
use sluice_model::fact::Fact;
use sluice_model::settings::Settings;

use crate::daemon::{DaemonHandle, DaemonOptions};
use crate::sandbox::{Place, World};

/// How long a change may take to reach the kernel before the demonstration gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The proxy on the sandbox's node.
#[derive(Debug)]
pub(super) struct Proxy {
    daemon: DaemonHandle,
}

impl Proxy {
    pub(super) fn start(
        world: &World,
        mode: Dataplane,
        settings: Settings,
    ) -> anyhow::Result<Proxy> {
        let netns = world.netns_fd(Place::Node)?.try_clone_to_owned()?;
        let daemon = DaemonHandle::start(DaemonOptions::fed_by_hand(mode, settings, netns))?;
        Ok(Proxy { daemon })
    }

    /// Hands facts over and waits until they are in the kernel.
    pub(super) fn feed(&mut self, facts: Vec<Fact>) -> anyhow::Result<()> {
        self.daemon.feed(facts)?;
        let progress = self.daemon.wait_idle(PATIENCE)?;
        anyhow::ensure!(
            progress.failures == 0,
            "{} commits failed, see the messages above",
            progress.failures
        );
        Ok(())
    }

    pub(super) fn stop(self) -> anyhow::Result<()> {
        self.daemon.stop()
    }
}
