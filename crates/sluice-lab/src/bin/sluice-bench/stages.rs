//! Where the time goes: the engine's stages one by one, without its threads.

use sluice_dataplane::nftables::Compiler;
use sluice_dataplane::nftables::driver::Driver;
use sluice_model::cluster::Cluster;
use sluice_model::fact::Fact;
use sluice_proxy::daemon::DEFAULT_MARK;
use sluice_proxy::sandbox::Namespace;

use crate::changes::pick;
use crate::figures::{Shares, median, timed};
use crate::fleet::{Fleet, Size};

struct Stages {
    cluster: Cluster,
    compiler: Compiler,
    driver: Driver,
}

/// Shares of the first load and of a swap.
pub(crate) fn measure(size: Size, repetitions: u32) -> anyhow::Result<[Shares; 2]> {
    let namespace = Namespace::create("node")?;
    namespace.run(move || {
        let mut stages = Stages {
            cluster: Cluster::new(Fleet::settings()),
            compiler: Compiler::new(DEFAULT_MARK),
            driver: Driver::open()?,
        };
        let mut fleet = Fleet::new(size);
        let load = stages.load(fleet.listing())?;
        let swap = (0..repetitions)
            .map(|turn| stages.change(fleet.slice(pick(turn, size), turn + 1, size.endpoints)))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let middle = |of: fn(&Shares) -> f64| median(swap.iter().map(of).collect());
        let swap = Shares {
            model: middle(|s| s.model),
            compile: middle(|s| s.compile),
            commit: middle(|s| s.commit),
        };
        Ok([load, swap])
    })?
}

impl Stages {
    fn load(&mut self, facts: Vec<Fact>) -> anyhow::Result<Shares> {
        let (changes, model) = timed(|| {
            facts.into_iter().for_each(|fact| self.cluster.apply(fact));
            Ok(self.cluster.changes())
        })?;
        let observed = self.driver.read()?;
        let (tx, compile) = timed(|| {
            self.compiler.adopt(&changes, &observed);
            Ok(self.compiler.resync(&observed).0)
        })?;
        let ((), commit) = timed(|| Ok(self.driver.commit(&tx)?))?;
        Ok(Shares {
            model,
            compile,
            commit,
        })
    }

    fn change(&mut self, fact: Fact) -> anyhow::Result<Shares> {
        let (changes, model) = timed(|| {
            self.cluster.apply(fact);
            Ok(self.cluster.changes())
        })?;
        let (tx, compile) = timed(|| Ok(self.compiler.update(&changes)))?;
        let ((), commit) = timed(|| Ok(self.driver.commit(&tx)?))?;
        Ok(Shares {
            model,
            compile,
            commit,
        })
    }
}
