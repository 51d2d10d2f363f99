//! nftables mode on a sandbox's node.

use anyhow::{Result, bail};
use sluice_dataplane::nftables::Compiler;
use sluice_dataplane::nftables::driver::Driver;
use sluice_model::route::Changes;
use sluice_proxy::sandbox::{Place, World};

use super::Mode;

pub(super) struct Nftables {
    compiler: Compiler,
    driver: Driver,
    started: bool,
}

impl Nftables {
    /// Opens the kernel's tables in the node's namespace.
    pub(super) fn on(sandbox: &World, masquerade_bit: u8) -> Result<Nftables> {
        let driver = sandbox.run_in(Place::Node, Driver::open)??;
        let Some(mark) = 1_u32.checked_shl(masquerade_bit.into()) else {
            bail!("config: masqueradeBit {masquerade_bit} is not within 0..=31");
        };
        Ok(Nftables {
            compiler: Compiler::new(mark),
            driver,
            started: false,
        })
    }
}

impl Mode for Nftables {
    fn commit(&mut self, changes: &Changes) -> Result<()> {
        let tx = if self.started {
            self.compiler.update(changes)
        } else {
            let observed = self.driver.read()?;
            self.compiler.adopt(changes, &observed);
            self.compiler.resync(&observed).0
        };
        self.started = true;
        Ok(self.driver.commit(&tx)?)
    }

    fn verify(&mut self) -> Result<()> {
        let observed = self.driver.read()?;
        // Chains that nothing leads to any more may stay until the next full comparison.
        let (_, drifts) = self.compiler.resync(&observed);
        match drifts.iter().find(|drift| !drift.is_none()) {
            Some(drift) => bail!("the kernel holds something else than intended: {drift:?}"),
            None => Ok(()),
        }
    }
}
