//! Loads, small changes, restart and removal, timed from facts to kernel.

use std::os::fd::OwnedFd;

use sluice_proxy::sandbox::Namespace;

use crate::figures::{Changes, Spread};
use crate::fleet::{Fleet, Size};
use crate::subject::Subject;

/// Small changes made before those that count: caches, and the one chain that a size needs.
const WARM_UP: u32 = 50;

/// Consecutive changes hit services far apart; prime, so that they meet all of them.
const STRIDE: u32 = 7919;

/// The service that change number `turn` is about.
pub(crate) fn pick(turn: u32, size: Size) -> u32 {
    (u64::from(turn) * u64::from(STRIDE) % u64::from(size.services)) as u32
}

/// Only the first load, of a fresh process.
pub(crate) fn load(size: Size) -> anyhow::Result<f64> {
    let namespace = Namespace::create("node")?;
    let mut fleet = Fleet::new(size);
    let mut subject = Subject::start(netns(&namespace)?, Fleet::settings())?;
    let took = subject.carry_out(fleet.listing())?;
    subject.stop()?;
    Ok(took)
}

/// One life of a cluster: load, swaps, growing and shrinking, a restart, removal.
pub(crate) fn life(size: Size, repetitions: u32) -> anyhow::Result<Changes> {
    let namespace = Namespace::create("node")?;
    let mut fleet = Fleet::new(size);
    let mut subject = Subject::start(netns(&namespace)?, Fleet::settings())?;
    let load = subject.carry_out(fleet.listing())?;
    let objects = subject.settle()?.operations;
    let swap = swaps(&mut subject, &mut fleet, repetitions)?;
    let (grow, shrink) = scaling(&mut subject, &mut fleet, repetitions)?;
    subject.stop()?;

    let mut subject = Subject::start(netns(&namespace)?, Fleet::settings())?;
    let restart = subject.carry_out(fleet.listing())?;
    let removal = subject.carry_out(fleet.removal())?;
    subject.stop()?;
    Ok(Changes {
        objects,
        load: Spread::of(vec![load]),
        swap: Spread::of(swap),
        grow: Spread::of(grow),
        shrink: Spread::of(shrink),
        restart: Spread::of(vec![restart]),
        removal: Spread::of(vec![removal]),
    })
}

/// One endpoint replaced, and the service left as it was first.
pub(crate) fn swaps(
    subject: &mut Subject,
    fleet: &mut Fleet,
    repetitions: u32,
) -> anyhow::Result<Vec<f64>> {
    let size = fleet.size;
    let mut samples = Vec::new();
    for turn in 0..WARM_UP + repetitions {
        let number = pick(turn, size);
        let facts = vec![fleet.slice(number, turn + 1, size.endpoints)];
        let took = subject.carry_out(facts)?;
        if turn >= WARM_UP {
            samples.push(took);
        }
    }
    for turn in 0..WARM_UP + repetitions {
        subject.feed(vec![fleet.slice(pick(turn, size), 0, size.endpoints)])?;
    }
    subject.settle()?;
    Ok(samples)
}

fn scaling(
    subject: &mut Subject,
    fleet: &mut Fleet,
    repetitions: u32,
) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let size = fleet.size;
    let (mut grow, mut shrink) = (Vec::new(), Vec::new());
    for turn in 0..WARM_UP + repetitions {
        let number = pick(turn, size);
        for (samples, count) in [
            (&mut grow, size.endpoints + 1),
            (&mut shrink, size.endpoints),
        ] {
            let took = subject.carry_out(vec![fleet.slice(number, 0, count)])?;
            if turn >= WARM_UP {
                samples.push(took);
            }
        }
    }
    Ok((grow, shrink))
}

fn netns(namespace: &Namespace) -> anyhow::Result<OwnedFd> {
    Ok(namespace.fd().try_clone_to_owned()?)
}
