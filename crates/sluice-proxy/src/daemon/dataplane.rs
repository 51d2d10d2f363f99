//! Opening a mode: its compiler, its driver, and how it learns of other people's changes.

use anyhow::Context as _;
use sluice_dataplane::iptables::ground::{LocalhostNodePorts, Options};
use sluice_dataplane::mode::{Compiler, Driver};
use sluice_dataplane::{iptables, nftables};
use sluice_netlink::nft::Events;

use super::watched::Watched;

/// The modes that work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dataplane {
    /// nftables, over netlink.
    Nftables,
    /// iptables, with the host's tools or those of a given backend.
    Iptables(iptables::driver::Choice, LocalhostNodePorts),
}

/// A mode at work.
pub(super) struct Opened {
    pub(super) compiler: Compiler,
    pub(super) driver: Driver,
    /// Change notifications, and the netlink port of our own changes, where the kernel tells.
    pub(super) events: Option<(Watched<Events>, u32)>,
}

impl Dataplane {
    /// Opens the mode in the network namespace of this thread. `mark` asks for masquerade.
    pub(super) fn open(self, mark: u32) -> anyhow::Result<Opened> {
        match self {
            Dataplane::Nftables => {
                let events = Events::open().context("listening to nf_tables")?;
                let driver = nftables::driver::Driver::open()?
                    .quieting(events.share().context("sharing the event socket")?);
                let port = driver.port();
                Ok(Opened {
                    compiler: Compiler::Nftables(Box::new(nftables::Compiler::new(mark))),
                    driver: Driver::Nftables(Box::new(driver)),
                    events: Some((Watched::new(events)?, port)),
                })
            }
            Dataplane::Iptables(choice, localhost) => {
                let driver = iptables::driver::Driver::open(choice)?;
                let source_ports = driver.source_ports();
                let options = Options {
                    localhost,
                    source_ports,
                    ..Options::with_mark(mark)
                };
                tracing::info!("Using the iptables of backend {:?}", driver.backend());
                Ok(Opened {
                    compiler: Compiler::Iptables(Box::new(iptables::Compiler::new(&options))),
                    driver: Driver::Iptables(Box::new(driver)),
                    events: None,
                })
            }
        }
    }
}
