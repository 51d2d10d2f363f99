//! Intent as elements, and the difference between two states of it.
//!
//! An image is what kernel containers should hold. It is never kept as a whole: the elements of a
//! route are a function of the route, so the old side of a change is compiled again from the old
//! route, and a full sync uses what was read from the kernel as the old side. Elements that
//! several owners share (an address in a set, a chain) are counted by [`Shared`].

use std::collections::HashMap;
use std::hash::Hash;

/// Operations that turn one set of elements into another.
#[derive(Debug, PartialEq)]
pub struct Difference<K, V> {
    /// In the old side only, or there with another value.
    pub remove: Vec<(K, V)>,
    /// In the new side only, or there with another value.
    pub add: Vec<(K, V)>,
}

/// Compares by key and value. Keys must be unique within each side; where they are not, the first
/// counts. A changed value is a removal and an addition: kernel maps refuse to overwrite.
pub fn difference<K: Ord, V: PartialEq>(
    mut old: Vec<(K, V)>,
    mut new: Vec<(K, V)>,
) -> Difference<K, V> {
    old.sort_by(|a, b| a.0.cmp(&b.0));
    new.sort_by(|a, b| a.0.cmp(&b.0));
    old.dedup_by(|b, a| a.0 == b.0);
    new.dedup_by(|b, a| a.0 == b.0);
    let mut result = Difference {
        remove: Vec::new(),
        add: Vec::new(),
    };
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (Some(a), Some(b)) => a.0.cmp(&b.0),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return result,
        };
        let gone = if order.is_le() { old.next() } else { None };
        let come = if order.is_ge() { new.next() } else { None };
        if let (Some(a), Some(b)) = (&gone, &come)
            && a.1 == b.1
        {
            continue;
        }
        result.remove.extend(gone);
        result.add.extend(come);
    }
}

/// How many owners need each thing, and which of them appeared or went since the last look.
#[derive(Debug)]
pub struct Shared<K> {
    owners: HashMap<K, u32>,
    before: HashMap<K, Presence>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Presence {
    There,
    Absent,
}

impl<K> Default for Shared<K> {
    fn default() -> Self {
        Shared {
            owners: HashMap::new(),
            before: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Shared<K> {
    /// One more owner.
    pub fn take(&mut self, key: K) {
        let count = self.owners.entry(key.clone()).or_insert(0);
        let before = if *count == 0 {
            Presence::Absent
        } else {
            Presence::There
        };
        self.before.entry(key).or_insert(before);
        *count += 1;
    }

    /// One owner less.
    pub fn release(&mut self, key: K) {
        let Some(count) = self.owners.get_mut(&key) else {
            return;
        };
        self.before.entry(key.clone()).or_insert(Presence::There);
        *count -= 1;
        if *count == 0 {
            self.owners.remove(&key);
        }
    }

    /// What went and what came since the last call: (gone, come).
    pub fn settle(&mut self) -> (Vec<K>, Vec<K>) {
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        for (key, before) in self.before.drain() {
            match (before, self.owners.contains_key(&key)) {
                (Presence::There, false) => gone.push(key),
                (Presence::Absent, true) => come.push(key),
                (Presence::There, true) | (Presence::Absent, false) => {}
            }
        }
        (gone, come)
    }

    /// How many things have an owner.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether nothing has an owner.
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Everything that has an owner.
    pub fn present(&self) -> impl Iterator<Item = &K> {
        self.owners.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_names_only_what_differs() {
        let d = difference(
            vec![(3, 'c'), (1, 'a'), (2, 'b')],
            vec![(2, 'x'), (3, 'c'), (4, 'd')],
        );
        assert_eq!(d.remove, [(1, 'a'), (2, 'b')]);
        assert_eq!(d.add, [(2, 'x'), (4, 'd')]);
    }

    #[test]
    fn a_shared_thing_that_changes_hands_is_left_alone() {
        let mut shared = Shared::default();
        shared.take("ip");
        assert_eq!(shared.settle(), (vec![], vec!["ip"]));
        shared.release("ip");
        shared.take("ip");
        assert_eq!(shared.settle(), (vec![], vec![]));
        shared.take("ip");
        shared.release("ip");
        shared.release("ip");
        assert_eq!(shared.settle(), (vec!["ip"], vec![]));
        shared.take("other");
        shared.release("other");
        assert_eq!(shared.settle(), (vec![], vec![]));
    }
}
