//! When to ask again: jittered exponential back-off and a limit on requests.

use std::time::Duration;

/// Time since the source started.
pub(crate) type Moment = Duration;

/// The first wait after a failure.
pub(crate) const FIRST: Duration = Duration::from_millis(800);
/// The longest wait, jitter included.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// Pseudo-random numbers (SplitMix64): enough to keep many nodes from asking at once.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly from 0 up to, not including, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Waits that double from failure to failure. The base goes from [`FIRST`] to half of
/// [`LONGEST`], and up to as much again is added by chance.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    base: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { base: FIRST }
    }

    /// The wait after one more failure.
    pub(crate) fn fail(&mut self, random: &mut Random) -> Duration {
        let wait = self.base.mul_f64(1.0 + random.fraction());
        self.base = (self.base * 2).min(LONGEST / 2);
        wait
    }

    /// After a success the next failure counts as the first.
    pub(crate) fn reset(&mut self) {
        self.base = FIRST;
    }
}

/// How many requests may be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests per second in the long run; zero or less means no limit.
    pub qps: f64,
    /// Requests that may be made at once.
    pub burst: u32,
}

impl Default for Rate {
    /// kube-proxy's defaults.
    fn default() -> Self {
        Rate {
            qps: 5.0,
            burst: 10,
        }
    }
}

/// A token bucket: each request reserves a token and may have to wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    /// Tokens at `at`; below zero where they are promised already.
    tokens: f64,
    at: Moment,
}

impl Bucket {
    pub(crate) fn new(rate: Rate) -> Bucket {
        Bucket {
            rate,
            tokens: f64::from(rate.burst.max(1)),
            at: Moment::ZERO,
        }
    }

    /// Takes a token; returns how long to wait before it counts.
    pub(crate) fn take(&mut self, now: Moment) -> Duration {
        if self.rate.qps <= 0.0 {
            return Duration::ZERO;
        }
        let grown = now.saturating_sub(self.at).as_secs_f64() * self.rate.qps;
        self.tokens = (self.tokens + grown).min(f64::from(self.rate.burst.max(1))) - 1.0;
        self.at = now;
        let missing = (-self.tokens).max(0.0) / self.rate.qps;
        Duration::try_from_secs_f64(missing).unwrap_or(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(number: f64) -> Duration {
        Duration::from_secs_f64(number)
    }

    #[test]
    fn waits_double_within_their_bounds_and_start_over() {
        let mut backoff = Backoff::new();
        let mut random = Random::new(1);
        for base in [0.8, 1.6, 3.2, 6.4, 12.8, 15.0, 15.0] {
            let wait = backoff.fail(&mut random);
            assert!(wait >= seconds(base) && wait <= seconds(2.0 * base));
            assert!(wait >= FIRST && wait <= LONGEST);
        }
        backoff.reset();
        assert!(backoff.fail(&mut random) <= seconds(1.6));
    }

    #[test]
    fn two_nodes_do_not_wait_alike() {
        let wait = |seed| Backoff::new().fail(&mut Random::new(seed));
        assert_ne!(wait(1), wait(2));
    }

    #[test]
    fn a_burst_is_free_and_the_rest_comes_at_the_rate() {
        let mut bucket = Bucket::new(Rate { qps: 5.0, burst: 2 });
        let start = seconds(100.0);
        let waits: Vec<u128> = (0..4).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 200, 400]);
        assert_eq!(bucket.take(seconds(200.0)), Duration::ZERO);
    }

    #[test]
    fn no_rate_is_no_limit() {
        let mut bucket = Bucket::new(Rate {
            qps: -1.0,
            burst: 0,
        });
        assert!((0..100).all(|_| bucket.take(Duration::ZERO) == Duration::ZERO));
    }
}
