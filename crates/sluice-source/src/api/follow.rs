//! List and watch of one resource, as a state machine without I/O.
//!
//! Whoever drives it asks [`Follower::next`] what to do, does it, and reports what comes back.
//! Time is an argument, facts go to a list that the caller owns. The order of things:
//!
//! ```text
//!            refused, or cut twice                      lower version: the server went back
//!  StreamList ------------> Pages          .------------------------------------.
//!      |  ^                   |            |                                    |
//!      |  '---- expired ----. |            v                                    |
//!      '--- complete ------> Watch --- lost, ended early ---> wait ---> Probe --'
//!                             | ^                                         |
//!                             | '------ its time is over, silent ---------'--- as before
//! ```
//!
//! A list is bracketed by `Begin` and `Synced`; if it breaks off, no `Synced` follows and nothing
//! counts as gone. The probe after a lost connection is one small request. It is there because a
//! watch from a version that the server does not have yet (etcd restored from an older state)
//! stays silent for ever.

use std::time::Duration;

use sluice_model::fact::Fact;

use super::decode::{Event, ListState, Page, Status, Version};
use super::pace::{Backoff, Moment, Random};
use super::resource::{Resource, escape};

/// Objects per page of a list.
const PAGE: u32 = 500;
/// How long a watch is asked to last: this, and up to as much again by chance.
const WATCH: Duration = Duration::from_secs(300);
/// How much later than asked for a watch may end.
const MARGIN: Duration = Duration::from_secs(30);
/// How much earlier than asked for a watch may end without suspicion.
const EARLY: Duration = Duration::from_secs(5);
/// Servers that send bookmarks do so every minute; this is long enough to miss two.
const QUIET: Duration = Duration::from_secs(180);
/// How long an answer may take to start.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a list may pause.
const PAUSE: Duration = Duration::from_secs(30);
/// How long a refused streaming list is not tried again.
const REFUSAL_HOLDS: Duration = Duration::from_secs(3600);
/// How often in a row a resource must not be found before it counts as not served: a server that
/// starts may answer so for a moment.
const ABSENT_AFTER: u32 = 3;

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    /// A watch that starts with the whole list, seconds.
    StreamList { seconds: u64 },
    /// A page of a list, from the start or where the last one ended.
    Pages { rest: Option<String> },
    /// One object, for the sake of the list's version.
    Probe,
    /// A watch, seconds.
    Watch { from: Version, seconds: u64 },
}

/// Whether a body is a sequence of frames or one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Frames,
    List,
}

impl Call {
    pub(crate) fn body(&self) -> Body {
        match self {
            Call::StreamList { .. } | Call::Watch { .. } => Body::Frames,
            Call::Pages { .. } | Call::Probe => Body::List,
        }
    }

    fn query(&self) -> String {
        match self {
            Call::StreamList { seconds } => format!(
                "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=true&timeoutSeconds={seconds}"
            ),
            Call::Pages { rest: None } => format!("limit={PAGE}"),
            Call::Pages { rest: Some(rest) } => format!("limit={PAGE}&continue={}", escape(rest)),
            Call::Probe => "limit=1".into(),
            Call::Watch { from, seconds } => format!(
                "watch=true&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds={seconds}",
                escape(&from.to_string())
            ),
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Todo {
    /// Nothing before this moment.
    Wait(Moment),
    /// Make this request.
    Call(Call),
    /// Give up: the server does not serve this resource.
    Absent,
}

/// Whether to go on reading an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Go,
    Stop,
}

/// How an answer broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// No connection, or no answer on it.
    Connect,
    /// Cut, reset, or not to be understood.
    Broken,
    /// The deadline passed.
    Silent,
}

#[derive(Clone, Debug, PartialEq)]
enum State {
    /// `call` is due at `at`.
    Resting { at: Moment, call: Call },
    /// A request is under way.
    Active(Active),
    /// The resource is not served.
    Absent,
}

#[derive(Clone, Debug, PartialEq)]
struct Active {
    call: Call,
    since: Moment,
    /// When something was last read; `None` before the answer starts.
    heard: Option<Moment>,
    /// The server sends bookmarks.
    bookmarks: bool,
}

/// Which selectors are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    Full,
    /// Servers before 1.31 know no field selector for clusterIP.
    WithoutFields,
}

/// One resource and how far it has been followed.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    resource: Resource,
    state: State,
    backoff: Backoff,
    random: Random,
    selection: Selection,
    /// Streaming lists are not tried before this moment.
    stream_from: Moment,
    /// Streaming lists that broke off in a row.
    stream_cuts: u32,
    /// Times in a row that the resource was not found.
    missed: u32,
    /// A list was complete at least once.
    listed: bool,
    /// As far as the watch has come.
    version: Version,
}

impl Follower {
    /// A follower that starts at once.
    pub(crate) fn new(resource: Resource, seed: u64) -> Follower {
        let mut follower = Follower {
            resource,
            state: State::Absent,
            backoff: Backoff::new(),
            random: Random::new(seed),
            selection: Selection::Full,
            stream_from: Moment::ZERO,
            stream_cuts: 0,
            missed: 0,
            listed: false,
            version: Version::Number(0),
        };
        follower.list(Moment::ZERO);
        follower
    }

    /// What to do now.
    pub(crate) fn next(&mut self, now: Moment) -> Todo {
        match &self.state {
            State::Resting { at, .. } if now < *at => Todo::Wait(*at),
            State::Resting { call, .. } => {
                let call = call.clone();
                self.state = State::Active(Active {
                    call: call.clone(),
                    since: now,
                    heard: None,
                    bookmarks: false,
                });
                Todo::Call(call)
            }
            // A request that was given up without a report starts over.
            State::Active(_) => {
                self.lost(now, Loss::Broken);
                Todo::Wait(self.due())
            }
            State::Absent => Todo::Absent,
        }
    }

    /// Path and query of a request.
    pub(crate) fn target(&self, call: &Call, node: &str) -> String {
        let selector = self.resource.selector(node);
        let selector = match self.selection {
            Selection::Full => selector.as_str(),
            Selection::WithoutFields => selector.split('&').next().unwrap_or_default(),
        };
        let and = if selector.is_empty() { "" } else { "&" };
        let (path, query) = (self.resource.path(), call.query());
        format!("{path}?{query}{and}{selector}")
    }

    /// When to give up on the answer that is being read.
    pub(crate) fn deadline(&self) -> Moment {
        let State::Active(active) = &self.state else {
            return Moment::MAX;
        };
        let Some(heard) = active.heard else {
            return active.since + ANSWER;
        };
        match &active.call {
            Call::StreamList { .. } | Call::Pages { .. } | Call::Probe => heard + PAUSE,
            Call::Watch { seconds, .. } => {
                let end = active.since + Duration::from_secs(*seconds) + MARGIN;
                match active.bookmarks {
                    true => end.min(heard + QUIET),
                    false => end,
                }
            }
        }
    }

    /// When the next request is due; `Moment::MAX` where none is.
    pub(crate) fn due(&self) -> Moment {
        match &self.state {
            State::Resting { at, .. } => *at,
            State::Active(_) | State::Absent => Moment::MAX,
        }
    }

    /// Whether a watch runs, so that facts are current.
    pub(crate) fn is_watching(&self) -> bool {
        let State::Active(active) = &self.state else {
            return false;
        };
        matches!(active.call, Call::Watch { .. }) && active.heard.is_some()
    }

    /// The request goes out, perhaps later than [`Follower::next`] asked for it.
    pub(crate) fn begun(&mut self, now: Moment) {
        if let State::Active(active) = &mut self.state {
            active.since = now;
        }
    }

    /// The server answers with success.
    pub(crate) fn accepted(&mut self, now: Moment, facts: &mut Vec<Fact>) {
        self.heard(now);
        self.missed = 0;
        if let State::Active(active) = &self.state
            && let Call::StreamList { .. } | Call::Pages { rest: None } = active.call
        {
            facts.push(Fact::Begin(self.resource.facts()));
        }
    }

    /// Bytes came.
    pub(crate) fn heard(&mut self, now: Moment) {
        if let State::Active(active) = &mut self.state {
            active.heard = Some(now);
        }
    }

    /// A frame came.
    pub(crate) fn event(&mut self, now: Moment, event: Event, facts: &mut Vec<Fact>) -> Flow {
        let State::Active(active) = &mut self.state else {
            return Flow::Stop;
        };
        if let Call::StreamList { seconds } = active.call {
            return self.listed_event(now, seconds, event, facts);
        }
        let (version, fact) = match event {
            Event::Change { fact, version } => (version, Some(fact)),
            Event::Bookmark { version, .. } => {
                active.bookmarks = true;
                (version, None)
            }
            Event::Error(status) => return self.watch_error(now, &status),
        };
        if version.is_before(&self.version) {
            // Out of order: it cannot be told what else was lost on the way.
            self.fail(now, Duration::ZERO, Self::list);
            return Flow::Stop;
        }
        self.version = version;
        self.backoff.reset();
        facts.extend(fact);
        Flow::Go
    }

    /// A frame of a streamed list that is not complete yet.
    fn listed_event(
        &mut self,
        now: Moment,
        seconds: u64,
        event: Event,
        facts: &mut Vec<Fact>,
    ) -> Flow {
        match event {
            Event::Change { fact, .. } => facts.push(fact),
            Event::Bookmark { version, list } => {
                if list == ListState::Complete {
                    self.complete(version, facts);
                    if let State::Active(active) = &mut self.state {
                        let from = self.version.clone();
                        active.call = Call::Watch { from, seconds };
                        active.bookmarks = true;
                    }
                }
            }
            Event::Error(status) => {
                self.refused(now, &status);
                return Flow::Stop;
            }
        }
        Flow::Go
    }

    fn complete(&mut self, version: Version, facts: &mut Vec<Fact>) {
        facts.push(Fact::Synced(self.resource.facts()));
        self.version = version;
        self.listed = true;
        self.stream_cuts = 0;
    }

    fn watch_error(&mut self, now: Moment, status: &Status) -> Flow {
        match is_expired(status) {
            true => self.fail(now, retry_after(status), Self::list),
            false => self.fail(now, retry_after(status), Self::probe),
        }
        Flow::Stop
    }

    /// A page of a list, or the answer to a probe, came whole. `facts` holds what was in it.
    pub(crate) fn page(&mut self, now: Moment, page: Page, facts: &mut Vec<Fact>) {
        let State::Active(active) = &self.state else {
            return;
        };
        match (&active.call, page.rest) {
            (Call::Probe, _) if page.version.is_before(&self.version) => self.list(now),
            (Call::Probe, _) => self.watch(now),
            (Call::Pages { .. }, Some(rest)) => {
                let call = Call::Pages { rest: Some(rest) };
                self.rest(now, call);
            }
            (Call::Pages { .. } | Call::StreamList { .. } | Call::Watch { .. }, _) => {
                self.complete(page.version, facts);
                self.watch(now);
            }
        }
    }

    /// The answer ended where an end is possible.
    pub(crate) fn ended(&mut self, now: Moment) {
        let State::Active(active) = &self.state else {
            return;
        };
        if let Call::Watch { seconds, .. } = active.call
            && now + EARLY >= active.since + Duration::from_secs(seconds)
        {
            self.backoff.reset();
            self.watch(now);
            return;
        }
        self.lost(now, Loss::Broken);
    }

    /// The answer broke off, or there was none.
    pub(crate) fn lost(&mut self, now: Moment, loss: Loss) {
        let State::Active(active) = &self.state else {
            return;
        };
        let answered = active.heard.is_some();
        match (&active.call, loss) {
            // A watch that fell silent may have been for hours: what it missed is asked for now.
            (Call::Watch { .. }, Loss::Silent) if answered => self.probe(now),
            (Call::Watch { .. } | Call::Probe, _) => self.fail(now, Duration::ZERO, Self::probe),
            (Call::StreamList { .. }, Loss::Connect) | (Call::Pages { .. }, _) => {
                self.fail(now, Duration::ZERO, Self::list);
            }
            (Call::StreamList { .. }, Loss::Broken | Loss::Silent) => {
                self.stream_cuts += 1;
                self.fail(now, Duration::ZERO, Self::list);
            }
        }
    }

    /// The server answers with an error.
    pub(crate) fn refused(&mut self, now: Moment, status: &Status) {
        let State::Active(active) = &self.state else {
            return;
        };
        let call = active.call.clone();
        if status.code == 404 && !self.listed {
            self.missed += 1;
            if self.missed >= ABSENT_AFTER {
                self.state = State::Absent;
                return;
            }
        }
        if status.code == 400 && self.drops_fields() {
            self.rest(now, call);
            return;
        }
        match call {
            // 400, 405, 422: "sendInitialEvents is forbidden", in words that differ by version.
            Call::StreamList { .. } if matches!(status.code, 400 | 405 | 422 | 501) => {
                self.stream_from = now + REFUSAL_HOLDS;
                self.list(now);
            }
            Call::Watch { .. } | Call::Probe if is_expired(status) => {
                self.fail(now, retry_after(status), Self::list);
            }
            Call::Watch { .. } | Call::Probe => self.fail(now, retry_after(status), Self::probe),
            Call::StreamList { .. } | Call::Pages { .. } => {
                self.fail(now, retry_after(status), Self::list);
            }
        }
    }

    fn drops_fields(&mut self) -> bool {
        let drops = self.resource == Resource::Services && self.selection == Selection::Full;
        if drops {
            self.selection = Selection::WithoutFields;
        }
        drops
    }

    /// Goes on with `next` after the back-off, or later where the server asks for that.
    fn fail(&mut self, now: Moment, at_least: Duration, next: fn(&mut Self, Moment)) {
        let wait = self.backoff.fail(&mut self.random).max(at_least);
        next(self, now + wait);
    }

    fn rest(&mut self, at: Moment, call: Call) {
        self.state = State::Resting { at, call };
    }

    fn list(&mut self, at: Moment) {
        if at < self.stream_from || self.stream_cuts >= 2 {
            // Only this list: the next one is streamed again.
            self.stream_cuts = 0;
            self.rest(at, Call::Pages { rest: None });
        } else {
            let seconds = self.lifetime();
            self.rest(at, Call::StreamList { seconds });
        }
    }

    fn watch(&mut self, at: Moment) {
        let (from, seconds) = (self.version.clone(), self.lifetime());
        self.rest(at, Call::Watch { from, seconds });
    }

    fn probe(&mut self, at: Moment) {
        self.rest(at, Call::Probe);
    }

    fn lifetime(&mut self) -> u64 {
        WATCH.mul_f64(1.0 + self.random.fraction()).as_secs()
    }
}

/// The version asked for is gone from the server's memory.
fn is_expired(status: &Status) -> bool {
    status.code == 410 || matches!(&*status.reason, "Expired" | "Gone")
}

/// No server is obeyed for longer than five minutes.
fn retry_after(status: &Status) -> Duration {
    Duration::from_secs(u64::from(status.retry_after.unwrap_or(0).min(300)))
}

#[cfg(test)]
mod tests;
