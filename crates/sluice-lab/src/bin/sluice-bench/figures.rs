//! What is measured, as it stands in the report.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The time now.
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds.
pub(crate) fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Runs `job` and says how many milliseconds it took.
pub(crate) fn timed<T>(job: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
    let start = now();
    let value = job()?;
    Ok((value, milliseconds(start.elapsed())))
}

/// A distribution, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of samples in any order; zeros where there are none.
    pub(crate) fn of(mut samples: Vec<f64>) -> Spread {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (samples.len() as f64 * share) as usize;
            samples
                .get(index.min(samples.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0.0)
        };
        Spread {
            count: samples.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// The middle of samples.
pub(crate) fn median(samples: Vec<f64>) -> f64 {
    Spread::of(samples).p50
}

/// Changes of one cluster, from the hand-over of facts to the kernel's word that they are in force.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Changes {
    /// Kernel objects that the first load writes.
    pub(crate) objects: u64,
    /// The whole first load; one sample per fresh process.
    pub(crate) load: Spread,
    /// One endpoint of one service replaced.
    pub(crate) swap: Spread,
    /// One endpoint added to one service.
    pub(crate) grow: Spread,
    /// One endpoint taken from one service.
    pub(crate) shrink: Spread,
    /// A new proxy finds the previous one's rules: until it has compared all of them.
    pub(crate) restart: Spread,
    /// Everything deleted.
    pub(crate) removal: Spread,
}

/// Where the time of a change goes, medians in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Shares {
    /// Facts to routes.
    pub(crate) model: f64,
    /// Routes to a transaction.
    pub(crate) compile: f64,
    /// Encoding, and the kernel's work.
    pub(crate) commit: f64,
}

/// Memory of a process that only holds the proxy, kB as proc(5) has them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// Resident before the first fact.
    pub(crate) empty: u64,
    /// Resident once the load is in the kernel.
    pub(crate) loaded: u64,
    /// The most that was resident at any time of the load.
    pub(crate) peak: u64,
    /// Resident after many swaps.
    pub(crate) churned: u64,
}

/// Connecting through a virtual address against connecting to the endpoint itself.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// To the endpoint, milliseconds.
    pub(crate) direct: Spread,
    /// Through the virtual address, milliseconds.
    pub(crate) virtual_ip: Spread,
    /// Quotient of the medians: the middle of several rounds.
    pub(crate) ratio: f64,
    /// The smallest and the largest round.
    pub(crate) ratio_range: [f64; 2],
}

/// [`Latency`] for two kinds of client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// A pod of the node.
    pub(crate) from_pod: Latency,
    /// A process of the node itself, whose connections are masqueraded too.
    pub(crate) from_node: Latency,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_names_samples_that_occurred() {
        let spread = Spread::of((1..=100).rev().map(f64::from).collect());
        let expected = Spread {
            count: 100,
            p50: 51.0,
            p90: 91.0,
            p99: 100.0,
            max: 100.0,
        };
        assert_eq!(spread, expected);
    }

    #[test]
    fn one_sample_is_every_percentile() {
        assert_eq!(Spread::of(vec![2.5]).p99, 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
