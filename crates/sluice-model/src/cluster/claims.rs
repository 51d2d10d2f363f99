//! Who holds which address and port. Several services may want the same one: the oldest has it,
//! whatever the order in which they became known, and when it leaves, the next oldest does.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::fact::{Family, Protocol};
use crate::name::ObjectKey;
use crate::route::At;

/// What can be held by one service port only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) at: At,
    pub(super) protocol: Protocol,
    pub(super) family: Family,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            At::Vip(ip, port) => {
                let socket = std::net::SocketAddr::new(ip, port);
                write!(f, "{socket}/{}", self.protocol)
            }
            At::NodePort(port) => write!(f, "node port {port}/{} ({})", self.protocol, self.family),
        }
    }
}

/// A service port's wish for a place. The order of the fields is the order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) place: Place,
    /// The Service's creation, `i64::MAX` where unknown.
    pub(super) created: i64,
    pub(super) service: Arc<ObjectKey>,
    /// Index into the service's ports, which are sorted by name.
    pub(super) port: u16,
}

/// All claims.
#[derive(Debug)]
pub(super) struct Claims {
    sorted: BTreeSet<Claim>,
    /// A key before every other one, to find the start of a place.
    first: Arc<ObjectKey>,
}

impl Claims {
    pub(super) fn new() -> Claims {
        Claims {
            sorted: BTreeSet::new(),
            first: Arc::new(ObjectKey::new("", "")),
        }
    }

    /// All who want a place, the holder first.
    pub(super) fn at(&self, place: Place) -> impl Iterator<Item = &Claim> {
        let start = Claim {
            place,
            created: i64::MIN,
            service: Arc::clone(&self.first),
            port: 0,
        };
        self.sorted
            .range(start..)
            .take_while(move |claim| claim.place == place)
    }

    /// Whether nobody wants anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Who has a place.
    pub(super) fn holder(&self, place: Place) -> Option<&Claim> {
        self.at(place).next()
    }

    /// Replaces a service's claims; both lists are sorted. `moved` is told every service that must look again because a
    /// place it wants has another holder than before.
    pub(super) fn replace(
        &mut self,
        old: &[Claim],
        new: Vec<Claim>,
        mut moved: impl FnMut(&Arc<ObjectKey>),
    ) {
        for claim in old.iter().filter(|claim| new.binary_search(claim).is_err()) {
            let held = self.holder(claim.place) == Some(claim);
            self.sorted.remove(claim);
            if held {
                self.at(claim.place).for_each(|c| moved(&c.service));
            }
        }
        for claim in new
            .into_iter()
            .filter(|claim| old.binary_search(claim).is_err())
        {
            let place = claim.place;
            self.sorted.insert(claim.clone());
            if self.holder(place) == Some(&claim) {
                self.at(place).for_each(|c| moved(&c.service));
            }
        }
    }
}
