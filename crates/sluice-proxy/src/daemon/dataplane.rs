//! Opening a mode for the daemon, with the way it learns of other people's changes.

use anyhow::Context as _;
use sluice_dataplane::mode::{Compiler, Dataplane, Driver};
use sluice_netlink::nft::Events;

use super::watched::Watched;

/// A mode at work.
pub(super) struct Opened {
    pub(super) compiler: Compiler,
    pub(super) driver: Driver,
    /// Change notifications, and the netlink port of our own changes, where the kernel tells.
    pub(super) events: Option<(Watched<Events>, u32)>,
}

/// Opens the mode in the network namespace of this thread. `mark` asks for masquerade.
pub(super) fn open(mode: Dataplane, mark: u32) -> anyhow::Result<Opened> {
    let (compiler, mut driver) = mode.open(mark)?;
    let events = match &mut driver {
        Driver::Nftables(driver) => {
            let events = driver.listen().context("listening to nf_tables")?;
            Some((Watched::new(events)?, driver.port()))
        }
        Driver::Iptables(driver) => {
            tracing::info!("Using the iptables of backend {:?}", driver.backend());
            None
        }
    };
    Ok(Opened {
        compiler,
        driver,
        events,
    })
}
