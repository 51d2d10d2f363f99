//! Complete lists: which kinds have had one, and what the open ones have contained so far.

use std::collections::HashSet;

use crate::fact::{Fact, Kind};
use crate::name::{Name, ObjectKey};

/// The state of the lists of every kind.
#[derive(Debug, Default)]
pub(super) struct Relists {
    open: [Option<Seen>; KINDS],
    listed: [bool; KINDS],
}

/// How many variants [`Kind`] has.
const KINDS: usize = 5;

/// What a list has contained.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Keys of objects in namespaces.
    pub(super) objects: HashSet<ObjectKey>,
    /// Names of the others.
    pub(super) names: HashSet<Name>,
}

impl Relists {
    /// Keeps account of a fact.
    pub(super) fn note(&mut self, fact: &Fact) {
        let (kind, object, name, exists) = match fact {
            Fact::Service(key, fact) => (Kind::Services, Some(key), None, fact.is_some()),
            Fact::Slice(key, fact) => (Kind::Slices, Some(key), None, fact.is_some()),
            Fact::Endpoints(key, fact) => (Kind::Endpoints, Some(key), None, fact.is_some()),
            Fact::Node(name, fact) => (Kind::Nodes, None, Some(name), fact.is_some()),
            Fact::Cidrs(name, fact) => (Kind::Cidrs, None, Some(name), fact.is_some()),
            Fact::Begin(kind) => {
                self.open[*kind as usize] = Some(Seen::default());
                return;
            }
            Fact::LocalAddresses(_) | Fact::Synced(_) => return,
        };
        if let Some(seen) = self.open[kind as usize].as_mut().filter(|_| exists) {
            seen.objects.extend(object.cloned());
            seen.names.extend(name.cloned());
        }
    }

    /// Ends a list and returns what it contained; `None` if none was open, so that nothing is
    /// taken as gone.
    pub(super) fn finish(&mut self, kind: Kind) -> Option<Seen> {
        self.listed[kind as usize] = true;
        self.open[kind as usize].take()
    }

    /// Whether a kind has been listed completely.
    pub(super) fn has_listed(&self, kind: Kind) -> bool {
        self.listed[kind as usize]
    }
}
