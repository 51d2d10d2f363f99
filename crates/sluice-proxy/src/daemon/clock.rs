//! Time: the engine counts by a clock that never goes back; people read the other one.

use std::time::{Duration, Instant, SystemTime};

use crate::engine::Moment;

/// Translates the monotonic clock, which the engine counts by, to wall time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where the daemon reads the clock"
)]
impl Clock {
    pub(super) fn start() -> Clock {
        Clock {
            start: Instant::now(),
        }
    }

    pub(super) fn now(self) -> (Moment, SystemTime) {
        (
            Moment(self.start.elapsed().as_millis() as u64),
            SystemTime::now(),
        )
    }

    pub(super) fn moment(self) -> Moment {
        self.now().0
    }

    /// The wall time of a past moment, by today's clock.
    pub(super) fn wall(self, moment: Moment) -> SystemTime {
        let (now, wall) = self.now();
        wall - Duration::from_millis(now.0.saturating_sub(moment.0))
    }
}
