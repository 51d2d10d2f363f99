//! A mode at work on a sandbox's node.

use std::fmt;

use anyhow::{Context, Result, bail};
use sluice_dataplane::iptables::driver::Choice;
use sluice_dataplane::iptables::ground::LocalhostNodePorts;
use sluice_dataplane::iptables::tool::Backend as Tools;
use sluice_dataplane::mode::{Compiler, Dataplane, Driver};
use sluice_model::route::Changes;
use sluice_proxy::sandbox::{Place, World};

/// The modes that scenarios can be played in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModeName {
    /// nftables.
    Nftables,
    /// iptables, tools of the nf_tables backend.
    IptablesNft,
    /// iptables, tools of the legacy backend.
    IptablesLegacy,
}

impl ModeName {
    /// All of them.
    pub const ALL: [ModeName; 3] = [
        ModeName::Nftables,
        ModeName::IptablesNft,
        ModeName::IptablesLegacy,
    ];

    /// Its name on the command line and in tables.
    pub fn word(self) -> &'static str {
        match self {
            ModeName::Nftables => "nftables",
            ModeName::IptablesNft => "iptables-nft",
            ModeName::IptablesLegacy => "iptables-legacy",
        }
    }

    fn dataplane(self) -> Dataplane {
        let iptables =
            |tools| Dataplane::Iptables(Choice::Fixed(tools), LocalhostNodePorts::Closed);
        match self {
            ModeName::Nftables => Dataplane::Nftables,
            ModeName::IptablesNft => iptables(Tools::Nft),
            ModeName::IptablesLegacy => iptables(Tools::Legacy),
        }
    }
}

impl fmt::Display for ModeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Compiler and driver of a mode, on the node of one sandbox.
pub(super) struct OnNode {
    compiler: Compiler,
    /// Absent only while it is at work.
    driver: Option<Driver>,
    started: bool,
}

impl OnNode {
    /// Opens the mode in the node's namespace.
    pub(super) fn open(name: ModeName, sandbox: &World, masquerade_bit: u8) -> Result<OnNode> {
        let Some(mark) = 1_u32.checked_shl(masquerade_bit.into()) else {
            bail!("config: masqueradeBit {masquerade_bit} is not within 0..=31");
        };
        let (compiler, driver) =
            sandbox.run_in(Place::Node, move || name.dataplane().open(mark))??;
        Ok(OnNode {
            compiler,
            driver: Some(driver),
            started: false,
        })
    }

    /// Brings changes into force, all at once.
    pub(super) fn commit(&mut self, sandbox: &World, changes: &Changes) -> Result<()> {
        let tx = if self.started {
            self.compiler.update(changes)
        } else {
            let observed = self.on_node(sandbox, Driver::read)??;
            self.compiler.resync(changes, &observed).0
        };
        self.started = true;
        let outcome = self.on_node(sandbox, move |driver| driver.commit(&tx))??;
        self.compiler.settle(&outcome);
        if !outcome.left_out.is_empty() {
            bail!("{outcome}");
        }
        Ok(())
    }

    /// Reads the kernel back and complains of every difference from what was intended.
    pub(super) fn verify(&mut self, sandbox: &World) -> Result<()> {
        let observed = self.on_node(sandbox, Driver::read)??;
        // Chains that nothing leads to any more may stay until the next full comparison.
        let (_, drifts) = self.compiler.resync(&Changes::default(), &observed);
        match drifts.iter().find(|drift| !drift.is_none()) {
            Some(drift) => bail!("the kernel holds something else than intended: {drift:?}"),
            None => Ok(()),
        }
    }

    /// Runs a job of the driver's on the node's own thread: what it starts works in the namespace
    /// of that thread.
    fn on_node<T: Send + 'static>(
        &mut self,
        sandbox: &World,
        job: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Result<T> {
        let mut driver = self
            .driver
            .take()
            .context("the driver was lost with an earlier job")?;
        let (driver, result) = sandbox.run_in(Place::Node, move || {
            let result = job(&mut driver);
            (driver, result)
        })?;
        self.driver = Some(driver);
        Ok(result)
    }
}
