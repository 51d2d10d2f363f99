//! One service with everything that belongs to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::fact::Family;
use crate::name::Name;
use crate::route::{HealthCheck, Route, RouteChange};

use super::routes::Maker;
use super::select::candidates;
use super::slices::Kept;
use super::spec::Spec;

/// A Service, its slices, its Endpoints object, and what was last handed out for it. Any of them
/// may come first and stay last.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// `None` also where the Service exists but is not served.
    pub(super) spec: Option<Spec>,
    /// Sorted by name.
    slices: Vec<Kept>,
    pub(super) endpoints: Option<Box<[Kept]>>,
    /// As last handed out, sorted by family, port name and protocol.
    pub(super) routes: Box<[Arc<Route>]>,
    health: Option<Health>,
}

/// A health check as last handed out, small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Health {
    port: u16,
    local_endpoints: u32,
}

impl From<Health> for HealthCheck {
    fn from(health: Health) -> Self {
        HealthCheck {
            port: health.port,
            local_endpoints: health.local_endpoints as usize,
        }
    }
}

impl Entry {
    /// Adds or replaces a slice and returns whether that makes a difference.
    pub(super) fn put_slice(&mut self, slice: Kept) -> bool {
        match self.slices.binary_search_by(|s| s.name.cmp(&slice.name)) {
            Ok(at) if self.slices[at] == slice => return false,
            Ok(at) => self.slices[at] = slice,
            Err(at) => {
                // Most services have one slice for ever.
                self.slices.reserve_exact(1);
                self.slices.insert(at, slice);
            }
        }
        true
    }

    /// Takes a slice out.
    pub(super) fn remove_slice(&mut self, name: &Name) {
        if let Ok(at) = self.slices.binary_search_by(|s| s.name.cmp(name)) {
            self.slices.remove(at);
        }
    }

    /// Whether nothing is known and nothing handed out.
    pub(super) fn is_empty(&self) -> bool {
        self.spec.is_none()
            && self.slices.is_empty()
            && self.endpoints.is_none()
            && self.routes.is_empty()
            && self.health.is_none()
    }

    /// Whether the node's own address matters.
    pub(super) fn has_ranges(&self) -> bool {
        self.spec.as_ref().is_some_and(Spec::has_ranges)
    }

    /// Whether the node's zone matters.
    pub(super) fn has_hints(&self) -> bool {
        self.sources().iter().any(|slice| slice.hints.is_some())
    }

    /// Where endpoints come from: an Endpoints object counts only while there is no slice.
    fn sources(&self) -> &[Kept] {
        match &self.endpoints {
            Some(parts) if self.slices.is_empty() => parts,
            Some(_) | None => &self.slices,
        }
    }

    /// The routes and health check that follow from what is known now.
    pub(super) fn serve(
        &self,
        maker: &Maker<'_>,
        notes: &mut Vec<String>,
    ) -> (Vec<Route>, Option<Health>) {
        let spec = maker.spec;
        let mut routes = Vec::with_capacity(spec.ports.len());
        let mut ready_here = BTreeSet::new();
        for family in Family::ALL {
            if spec.cluster_ip(family).is_none() {
                continue;
            }
            for (port, index) in spec.ports.iter().zip(0u16..) {
                let found = candidates(self.sources(), family, &port.name, port.protocol);
                if spec.health_port != 0 {
                    let here = found.iter().filter(|c| c.is_ready() && c.backend.local);
                    ready_here.extend(here.map(|c| c.backend.ip));
                }
                let (route, remarks) = maker.route(index, port, family, &found);
                routes.push(route);
                notes.extend(remarks);
            }
        }
        let health = (spec.health_port != 0).then(|| Health {
            port: spec.health_port,
            local_endpoints: u32::try_from(ready_here.len()).unwrap_or(u32::MAX),
        });
        (routes, health)
    }

    /// Takes new routes over and reports the difference. Both lists are in the same order, so one
    /// walk along them finds it.
    pub(super) fn hand_out(&mut self, new: Vec<Route>, changes: &mut Vec<RouteChange>) {
        let mut old = std::mem::take(&mut self.routes).into_iter().peekable();
        let mut kept = Vec::with_capacity(new.len());
        let mut report = |old, new| changes.push(RouteChange { old, new });
        for route in new {
            while let Some(gone) = old.next_if(|before| rank(before) < rank(&route)) {
                report(Some(gone), None);
            }
            match old.next_if(|before| rank(before) == rank(&route)) {
                Some(before) if *before == route => kept.push(before),
                before => {
                    let route = Arc::new(route);
                    report(before, Some(Arc::clone(&route)));
                    kept.push(route);
                }
            }
        }
        old.for_each(|gone| report(Some(gone), None));
        self.routes = kept.into();
    }

    /// Takes a new health check over and returns it if it differs.
    pub(super) fn hand_out_health(&mut self, new: Option<Health>) -> Option<Option<HealthCheck>> {
        let differs = self.health != new;
        self.health = new;
        differs.then(|| new.map(HealthCheck::from))
    }
}

fn rank(route: &Route) -> (Family, &Name, crate::fact::Protocol) {
    (route.family, &route.key.port, route.key.protocol)
}
