//! Who says what: the facts of every file, and which of them count.

use std::collections::{BTreeMap, BTreeSet};

use sluice_model::fact::{Fact, Kind};
use sluice_model::name::{Name, ObjectKey};

use crate::yaml::Place;

/// What a fact is about. The order is that in which facts may safely appear: endpoints before the
/// services that use them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Node(Name),
    Cidrs(Name),
    Slice(ObjectKey),
    Endpoints(ObjectKey),
    Service(ObjectKey),
}

impl Key {
    /// Of facts that are about an object.
    pub(super) fn of(fact: &Fact) -> Option<Key> {
        match fact {
            Fact::Service(key, _) => Some(Key::Service(key.clone())),
            Fact::Slice(key, _) => Some(Key::Slice(key.clone())),
            Fact::Endpoints(key, _) => Some(Key::Endpoints(key.clone())),
            Fact::Node(name, _) => Some(Key::Node(name.clone())),
            Fact::Cidrs(name, _) => Some(Key::Cidrs(name.clone())),
            Fact::LocalAddresses(_) | Fact::Begin(_) | Fact::Synced(_) => None,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Key::Node(_) => Kind::Nodes,
            Key::Cidrs(_) => Kind::Cidrs,
            Key::Slice(_) => Kind::Slices,
            Key::Endpoints(_) => Kind::Endpoints,
            Key::Service(_) => Kind::Services,
        }
    }

    fn gone(&self) -> Fact {
        match self {
            Key::Node(name) => Fact::Node(name.clone(), None),
            Key::Cidrs(name) => Fact::Cidrs(name.clone(), None),
            Key::Slice(key) => Fact::Slice(key.clone(), None),
            Key::Endpoints(key) => Fact::Endpoints(key.clone(), None),
            Key::Service(key) => Fact::Service(key.clone(), None),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Node(name) => write!(f, "Node {name}"),
            Key::Cidrs(name) => write!(f, "ServiceCIDR {name}"),
            Key::Slice(key) => write!(f, "EndpointSlice {key}"),
            Key::Endpoints(key) => write!(f, "Endpoints {key}"),
            Key::Service(key) => write!(f, "Service {key}"),
        }
    }
}

/// A fact and where its object starts in the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    pub(super) place: Place,
    pub(super) fact: Fact,
}

/// An object that two files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clash {
    pub(super) key: Key,
    /// The file just read, and the object's place in it.
    pub(super) file: Name,
    pub(super) place: Place,
    /// The file whose word counts: the last by name.
    pub(super) winner: Name,
    /// Another file that holds it.
    pub(super) other: Name,
}

/// The facts of all files.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    files: BTreeMap<Name, BTreeSet<Key>>,
    holders: BTreeMap<Key, BTreeMap<Name, Fact>>,
}

impl Ledger {
    /// Takes over what the changed files say now (a file that is gone says nothing) and returns
    /// the net change: what appears first, what goes last and in the opposite order.
    pub(super) fn replace(&mut self, changed: Vec<(Name, Vec<Placed>)>) -> (Vec<Fact>, Vec<Clash>) {
        let mut before: BTreeMap<Key, Option<Fact>> = BTreeMap::new();
        let mut spoken: Vec<(Key, Name, Place)> = Vec::new();
        for (file, _) in &changed {
            for key in self.files.remove(file).unwrap_or_default() {
                let counts = self.counts(&key).cloned();
                before.entry(key.clone()).or_insert(counts);
                if let Some(holders) = self.holders.get_mut(&key) {
                    holders.remove(file);
                }
            }
        }
        for (file, facts) in changed {
            let mut keys = BTreeSet::new();
            for Placed { place, fact } in facts {
                let Some(key) = Key::of(&fact) else { continue };
                let counts = self.counts(&key).cloned();
                before.entry(key.clone()).or_insert(counts);
                let holders = self.holders.entry(key.clone()).or_default();
                holders.insert(file.clone(), fact);
                spoken.push((key.clone(), file.clone(), place));
                keys.insert(key);
            }
            if !keys.is_empty() {
                self.files.insert(file, keys);
            }
        }
        let clashes = spoken.into_iter().filter_map(|said| self.clash(said));
        let clashes = clashes.collect();
        (self.net_change(before), clashes)
    }

    fn net_change(&mut self, before: BTreeMap<Key, Option<Fact>>) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut gone = Vec::new();
        for (key, old) in before {
            let new = self.counts(&key);
            if new == old.as_ref() {
                continue;
            }
            match new {
                Some(fact) => facts.push(fact.clone()),
                None => gone.push(key.gone()),
            }
        }
        self.holders.retain(|_, holders| !holders.is_empty());
        facts.extend(gone.into_iter().rev());
        facts
    }

    fn clash(&self, (key, file, place): (Key, Name, Place)) -> Option<Clash> {
        let holders = self.holders.get(&key)?;
        let other = holders
            .keys()
            .rev()
            .find(|&holder| *holder != file)?
            .clone();
        let (winner, _) = holders.last_key_value()?;
        Some(Clash {
            winner: winner.clone(),
            key,
            file,
            place,
            other,
        })
    }

    /// The fact that counts: that of the last file by name.
    fn counts(&self, key: &Key) -> Option<&Fact> {
        let (_, fact) = self.holders.get(key)?.last_key_value()?;
        Some(fact)
    }

    /// Whether a file holds any facts.
    pub(super) fn holds(&self, file: &str) -> bool {
        self.files.contains_key(file)
    }
}
