//! Whether the proxy keeps up: what /healthz and /livez answer from.

use std::time::Duration;

use sluice_model::fact::Family;

use super::Moment;

/// How long a change may wait, and how long one has been waiting.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    patience: Duration,
    queued: Option<Moment>,
    updated: Option<Moment>,
}

/// A family's part of the answer. One commit serves both families, so they differ in name only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FamilyHealth {
    /// The family.
    pub family: Family,
    /// Last time everything was in the kernel.
    pub updated: Moment,
    /// No change has waited too long.
    pub healthy: bool,
}

impl Health {
    /// A change may wait twice the sync period (kube-proxy's rule).
    pub fn new(sync_period: Duration) -> Health {
        Health {
            patience: sync_period * 2,
            queued: None,
            updated: None,
        }
    }

    /// A change arrived; the oldest one waiting counts.
    pub fn queued(&mut self, now: Moment) {
        self.queued.get_or_insert(now);
    }

    /// Everything is in the kernel.
    pub fn updated(&mut self, now: Moment) {
        self.queued = None;
        self.updated = Some(now);
    }

    /// Healthy also before the first change: there is nothing to be late with.
    pub fn is_healthy(&self, now: Moment) -> bool {
        self.queued
            .is_none_or(|since| now < since.after(self.patience))
    }

    /// Last time everything was in the kernel.
    pub fn last_updated(&self) -> Option<Moment> {
        self.updated
    }

    /// The families' parts; empty before the first commit.
    pub fn families(&self, now: Moment) -> Vec<FamilyHealth> {
        let healthy = self.is_healthy(now);
        let part = |updated| {
            Family::ALL.map(|family| FamilyHealth {
                family,
                updated,
                healthy,
            })
        };
        self.updated.map(part).into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_waits_too_long_is_unhealthy_until_it_is_in() {
        let mut health = Health::new(Duration::from_secs(5));
        assert!(health.is_healthy(Moment(1_000_000)));
        health.queued(Moment(1_000));
        health.queued(Moment(9_000));
        assert!(health.is_healthy(Moment(10_999)));
        assert!(!health.is_healthy(Moment(11_000)));
        health.updated(Moment(12_000));
        assert!(health.is_healthy(Moment(50_000)));
        assert_eq!(health.families(Moment(50_000)).len(), 2);
    }
}
