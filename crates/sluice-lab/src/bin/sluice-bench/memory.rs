//! What the proxy weighs: facts arrive in small batches and are gone once taken in.

use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;
use sluice_model::fact::{Fact, Kind};
use sluice_proxy::sandbox::Namespace;

use crate::changes::swaps;
use crate::figures::Memory;
use crate::fleet::{Fleet, Size};
use crate::subject::Subject;

/// Services per batch, as a source hands them over while it reads.
const BATCH: u32 = 250;

/// Allocators give memory back with some delay.
const REST: Duration = Duration::from_millis(1500);

pub(crate) fn measure(size: Size, repetitions: u32) -> anyhow::Result<Memory> {
    let namespace = Namespace::create("node")?;
    let mut fleet = Fleet::new(size);
    let netns = namespace.fd().try_clone_to_owned()?;
    let mut subject = Subject::start(netns, Fleet::settings())?;
    let empty = status("VmRSS")?;
    subject.feed(vec![Fact::Begin(Kind::Services), Fact::Begin(Kind::Slices)])?;
    let mut number = 0;
    while number < size.services {
        let end = size.services.min(number + BATCH);
        subject.feed((number..end).flat_map(|n| fleet.pair(n)).collect())?;
        number = end;
    }
    subject.feed(Fleet::end_of_listing().to_vec())?;
    subject.settle()?;
    sleep(REST);
    let (loaded, peak) = (status("VmRSS")?, status("VmHWM")?);
    swaps(&mut subject, &mut fleet, repetitions)?;
    sleep(REST);
    let churned = status("VmRSS")?;
    subject.stop()?;
    Ok(Memory {
        empty,
        loaded,
        peak,
        churned,
    })
}

/// A figure of proc(5)'s status file, kB.
fn status(field: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
    number.with_context(|| format!("{field} in /proc/self/status"))
}
