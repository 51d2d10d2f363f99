//! The report, as a table and as JSON.

use std::fmt;

use serde::Serialize;

use crate::figures::{Changes, Latencies, Latency, Memory, Shares, Spread};
use crate::fleet::Size;
use crate::machine::Machine;

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) sizes: Vec<SizeReport>,
    pub(crate) latency: Option<LatencyReport>,
    pub(crate) targets: Vec<Target>,
}

/// One size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SizeReport {
    pub(crate) size: Size,
    pub(crate) changes: Changes,
    pub(crate) load_shares: Shares,
    pub(crate) swap_shares: Shares,
    pub(crate) memory: Memory,
}

/// Connections through a table of one size.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LatencyReport {
    pub(crate) size: Size,
    pub(crate) latencies: Latencies,
}

/// A figure and the most that it may be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) measured: f64,
    pub(crate) limit: f64,
    pub(crate) met: bool,
}

impl Report {
    /// Compares with the targets, as far as their sizes were measured.
    pub(crate) fn judge(&mut self) {
        let find = |text: &str| {
            let size = text.parse::<Size>().ok()?;
            self.sizes.iter().find(|report| report.size == size)
        };
        let mut targets = Vec::new();
        let mut target = |what: &str, measured: f64, limit: f64| {
            targets.push(Target {
                what: what.to_owned(),
                measured,
                limit,
                met: measured <= limit,
            });
        };
        if let Some(SizeReport {
            changes, memory, ..
        }) = find("10000x10")
        {
            target("10000 x 10: load, ms", changes.load.p50, 300.0);
            target("10000 x 10: swap p50, ms", changes.swap.p50, 0.5);
            if let Some(small) = find("1000x10") {
                let ratio = changes.swap.p50 / small.changes.swap.p50;
                target("10000 x 10: swap p50 against 1000 x 10", ratio, 1.5);
            }
            let scale = changes.grow.p50.max(changes.shrink.p50);
            target("10000 x 10: scale by one p50, ms", scale, 1.5);
            target("10000 x 10: removal, ms", changes.removal.p50, 1000.0);
            target("10000 x 10: resident, MB", megabytes(memory.loaded), 40.0);
        }
        if let Some(report) = &self.latency
            && "30000x10".parse().is_ok_and(|size| report.size == size)
        {
            let Latencies {
                from_pod,
                from_node,
            } = report.latencies;
            target(
                "30000 x 10: connect by VIP against direct, pod",
                from_pod.ratio,
                1.06,
            );
            target("30000 x 10: the same from the node", from_node.ratio, 1.06);
        }
        self.targets = targets;
    }
}

/// proc(5)'s kB are 1024 bytes.
fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine {
            kernel,
            cpu,
            cpus,
            commit,
            load_before,
            load_after,
        } = &self.machine;
        writeln!(f, "Linux {kernel}, {cpus} x {cpu}, commit {commit}")?;
        writeln!(
            f,
            "Load average {load_before:.1} before, {load_after:.1} after: with more than one \
             runnable task per CPU, others' work is in these figures."
        )?;
        for report in &self.sizes {
            write!(f, "\n{report}")?;
        }
        if let Some(report) = &self.latency {
            write!(f, "\n{report}")?;
        }
        if !self.targets.is_empty() {
            writeln!(f, "\n{:<52} {:>10} {:>8}", "targets", "measured", "limit")?;
        }
        for target in &self.targets {
            let verdict = if target.met { "met" } else { "MISSED" };
            let Target {
                what,
                measured,
                limit,
                met: _,
            } = target;
            writeln!(f, "{what:<52} {measured:>10.3} {limit:>8} {verdict}")?;
        }
        Ok(())
    }
}

impl fmt::Display for SizeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = &self.changes;
        heading(f, &format!("{} ({} objects)", self.size, changes.objects))?;
        row(f, "whole load", &changes.load)?;
        row(f, "swap one endpoint", &changes.swap)?;
        row(f, "scale a service up by one", &changes.grow)?;
        row(f, "scale a service down by one", &changes.shrink)?;
        row(f, "restart: compare everything", &changes.restart)?;
        row(f, "remove everything", &changes.removal)?;
        shares(f, "of a load", &self.load_shares)?;
        shares(f, "of a swap", &self.swap_shares)?;
        let Memory {
            empty,
            loaded,
            peak,
            churned,
        } = self.memory;
        writeln!(
            f,
            "resident: {:.1} MB loaded, {:.1} after swaps, {:.1} at most while loading, {:.1} empty",
            megabytes(loaded),
            megabytes(churned),
            megabytes(peak),
            megabytes(empty)
        )
    }
}

impl fmt::Display for LatencyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        heading(f, &format!("connect at {}", self.size))?;
        let Latencies {
            from_pod,
            from_node,
        } = &self.latencies;
        for (who, latency) in [("pod", from_pod), ("node", from_node)] {
            let Latency {
                direct,
                virtual_ip,
                ratio,
                ratio_range: [low, high],
            } = latency;
            row(f, &format!("{who} to endpoint"), direct)?;
            row(f, &format!("{who} to virtual IP"), virtual_ip)?;
            writeln!(f, "ratio {ratio:.3} (rounds from {low:.3} to {high:.3})")?;
        }
        Ok(())
    }
}

fn heading(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    writeln!(
        f,
        "{text:<40} {:>6} {:>9} {:>9} {:>9} {:>9}  (ms)",
        "n", "p50", "p90", "p99", "max"
    )
}

fn row(f: &mut fmt::Formatter<'_>, what: &str, spread: &Spread) -> fmt::Result {
    let Spread {
        count,
        p50,
        p90,
        p99,
        max,
    } = spread;
    writeln!(
        f,
        "{what:<40} {count:>6} {p50:>9.3} {p90:>9.3} {p99:>9.3} {max:>9.3}"
    )
}

fn shares(f: &mut fmt::Formatter<'_>, what: &str, shares: &Shares) -> fmt::Result {
    let Shares {
        model,
        compile,
        commit,
    } = shares;
    writeln!(
        f,
        "{what}: model {model:.3}, compile {compile:.3}, encode and kernel {commit:.3}"
    )
}
