//! Remarks to the operator: each is told once, and again only after it had ceased to hold.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::fact::Kind;
use crate::name::{Name, ObjectKey};
use crate::route::Notice;

/// What a set of remarks is about. One object may have several sets, renewed at different times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// What a Service says.
    Service(ObjectKey),
    /// Addresses and node ports that a Service wants and does not get.
    Claims(ObjectKey),
    /// What an EndpointSlice says.
    Slice(ObjectKey),
    /// What an Endpoints object says.
    Endpoints(ObjectKey),
    /// What this node's Node says.
    Node(Name),
}

impl Subject {
    /// The key and the kind in whose lists the object occurs.
    fn listed(&self) -> Option<(Kind, &ObjectKey)> {
        match self {
            Subject::Service(key) => Some((Kind::Services, key)),
            Subject::Slice(key) => Some((Kind::Slices, key)),
            Subject::Endpoints(key) => Some((Kind::Endpoints, key)),
            Subject::Claims(_) | Subject::Node(_) => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Service(key) | Subject::Claims(key) => write!(f, "Service {key}"),
            Subject::Slice(key) => write!(f, "EndpointSlice {key}"),
            Subject::Endpoints(key) => write!(f, "Endpoints {key}"),
            Subject::Node(name) => write!(f, "Node {name}"),
        }
    }
}

/// The remarks that hold now, and which of them have not been told yet.
#[derive(Debug, Default)]
pub(super) struct Board {
    standing: BTreeMap<Subject, Vec<String>>,
    untold: BTreeSet<(Subject, String)>,
}

impl Board {
    /// Replaces what is said about a subject.
    pub(super) fn set(&mut self, subject: Subject, texts: Vec<String>) {
        if texts.is_empty() {
            if !self.standing.is_empty() {
                self.standing.remove(&subject);
            }
            return;
        }
        let before = self.standing.insert(subject.clone(), texts);
        let before = before.unwrap_or_default();
        for text in self.standing.get(&subject).into_iter().flatten() {
            if !before.contains(text) {
                self.untold.insert((subject.clone(), text.clone()));
            }
        }
    }

    /// Forgets what is said about objects of a kind that a complete list did not contain.
    pub(super) fn keep_listed(&mut self, kind: Kind, seen: impl Fn(&ObjectKey) -> bool) {
        self.standing.retain(|subject, _| {
            subject
                .listed()
                .is_none_or(|(of, key)| of != kind || seen(key))
        });
    }

    /// Whether nothing is said about anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.standing.is_empty() && self.untold.is_empty()
    }

    /// Whether [`Board::tell`] may have something to say.
    pub(super) fn has_news(&self) -> bool {
        !self.untold.is_empty()
    }

    /// What is new since the last call and still holds, by object.
    pub(super) fn tell(&mut self) -> Vec<Notice> {
        let untold = std::mem::take(&mut self.untold);
        let holds = |subject: &Subject, text: &String| {
            self.standing
                .get(subject)
                .is_some_and(|texts| texts.contains(text))
        };
        untold
            .into_iter()
            .filter(|(subject, text)| holds(subject, text))
            .map(|(subject, text)| Notice {
                object: subject.to_string(),
                text,
            })
            .collect()
    }
}
