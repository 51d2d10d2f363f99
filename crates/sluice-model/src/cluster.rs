//! The state of the cluster as far as this node's proxy needs it, and the changes that follow.
//!
//! Facts only leave marks: a Service and its slices share an [`Entry`], and [`Cluster::apply`]
//! notes the key of each entry that may have to be served differently. [`Cluster::changes`] makes
//! the routes of those entries anew and reports the ones that differ, so it costs what changed.

mod claims;
mod entry;
mod node;
mod notices;
mod relist;
mod routes;
mod select;
mod slices;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::fact::{Fact, Family, Kind, Node, Service, Slice};
use crate::name::{Name, ObjectKey};
use crate::route::{Changes, NodeView, Pool, Route};
use crate::settings::Settings;

use claims::Claims;
use entry::Entry;
use node::{Outlook, Surroundings};
use notices::{Board, Subject};
use relist::Relists;
use routes::Maker;
use slices::Kept;
use spec::Spec;

/// All facts, the routes last handed out, and what is dirty between the two.
#[derive(Debug)]
pub struct Cluster {
    settings: Settings,
    relists: Relists,
    entries: HashMap<Arc<ObjectKey>, Box<Entry>>,
    /// The service of every slice that counts, by the slice's own key.
    slices: HashMap<ObjectKey, Arc<ObjectKey>>,
    claims: Claims,
    dirty: BTreeSet<Arc<ObjectKey>>,
    surroundings: Surroundings,
    /// As routes were last made with it.
    outlook: Outlook,
    /// As last handed out.
    views: [NodeView; 2],
    node_state: NodeState,
    board: Board,
    /// Trigger times not handed out yet, by slice.
    triggers: BTreeMap<ObjectKey, Vec<i64>>,
    empty: Pool,
}

/// How current [`Cluster::views`] and [`Cluster::outlook`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    /// No view was ever handed out.
    Unannounced,
    /// Something they are made from was touched.
    Stale,
    /// They are as handed out.
    Current,
}

impl Cluster {
    /// An empty cluster seen from the configured node.
    pub fn new(settings: Settings) -> Cluster {
        let surroundings = Surroundings::default();
        Cluster {
            outlook: surroundings.outlook(&settings),
            views: Family::ALL.map(|family| surroundings.view(&settings, family)),
            settings,
            relists: Relists::default(),
            entries: HashMap::new(),
            slices: HashMap::new(),
            claims: Claims::new(),
            dirty: BTreeSet::new(),
            surroundings,
            node_state: NodeState::Unannounced,
            board: Board::default(),
            triggers: BTreeMap::new(),
            empty: Pool::default(),
        }
    }

    /// Takes a fact in. Cheap: work is done by [`Cluster::changes`].
    ///
    /// This node's Node stays in force when it is deleted, with a notice: its machine still has
    /// the same addresses, and a kubelet that registers again must not interrupt connections.
    pub fn apply(&mut self, fact: Fact) {
        self.relists.note(&fact);
        match fact {
            Fact::Service(key, service) => self.set_service(&key, service.as_deref()),
            Fact::Slice(key, slice) => self.set_slice(key, slice),
            Fact::Endpoints(key, parts) => self.set_endpoints(&key, parts),
            Fact::Node(name, node) => self.set_node(&name, node),
            Fact::Cidrs(name, Some(nets)) => {
                self.surroundings.cidrs.insert(name, nets);
                self.touch_node();
            }
            Fact::Cidrs(name, None) => {
                self.surroundings.cidrs.remove(&name);
                self.touch_node();
            }
            Fact::LocalAddresses(addresses) => {
                self.surroundings.local_addresses = addresses;
                self.touch_node();
            }
            Fact::Begin(_) => {}
            Fact::Synced(kind) => self.finish_list(kind),
        }
    }

    /// Whether Services and slices have both been listed completely at least once.
    pub fn is_synced(&self) -> bool {
        self.relists.has_listed(Kind::Services) && self.relists.has_listed(Kind::Slices)
    }

    /// Whether [`Cluster::changes`] may have something to say.
    pub fn is_dirty(&self) -> bool {
        self.is_synced()
            && (!self.dirty.is_empty()
                || self.node_state != NodeState::Current
                || !self.triggers.is_empty()
                || self.board.has_news())
    }

    /// What changed since the last call. Costs what changed. Empty before [`Cluster::is_synced`].
    ///
    /// Routes come in the order of their services. Trigger times include those of the first list;
    /// whoever measures latency leaves out what happened before it started.
    pub fn changes(&mut self) -> Changes {
        let mut changes = Changes::default();
        if !self.is_synced() {
            return changes;
        }
        self.refresh_node(&mut changes);
        for key in std::mem::take(&mut self.dirty) {
            self.refresh(&key, &mut changes);
        }
        let triggers = std::mem::take(&mut self.triggers);
        changes.triggers = triggers.into_values().flatten().collect();
        changes.notices = self.board.tell();
        changes
    }

    /// Whether this node's Node object exists and is not about to be removed: load balancers
    /// should send traffic here.
    pub fn node_eligible(&self) -> bool {
        let node = self.surroundings.node.as_deref();
        self.surroundings.registered && node.is_some_and(|node| !node.leaving)
    }

    /// Every route as last handed out.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.entries.values().flat_map(|entry| entry.routes.iter())
    }

    /// The node's view of a family as last handed out.
    pub fn node_view(&self, family: Family) -> &NodeView {
        &self.views[family as usize]
    }

    fn set_service(&mut self, key: &ObjectKey, service: Option<&Service>) {
        let (spec, notes) = match service {
            Some(service) => Spec::check(service, self.settings.external_ips),
            None => (None, Vec::new()),
        };
        self.board.set(Subject::Service(key.clone()), notes);
        let known = self.entries.get(key);
        if known.and_then(|entry| entry.spec.as_ref()) == spec.as_ref() {
            return;
        }
        let key = self.key_of(key);
        let entry = self.entries.entry(Arc::clone(&key)).or_default();
        let claims_of = |spec: &Option<Spec>| spec.as_ref().map_or(vec![], |s| s.claims(&key));
        let (old, new) = (claims_of(&entry.spec), claims_of(&spec));
        entry.spec = spec;
        let dirty = &mut self.dirty;
        self.claims.replace(&old, new, |service| {
            dirty.insert(Arc::clone(service));
        });
        self.dirty.insert(key);
    }

    fn set_slice(&mut self, key: ObjectKey, slice: Option<Box<Slice>>) {
        let service = slice.as_deref().and_then(|slice| slice.service.clone());
        let triggered = slice.as_deref().and_then(|slice| slice.triggered);
        let (kept, notes) = match slice {
            Some(slice) => Kept::check(key.name.clone(), *slice, &self.settings.node_name),
            None => (None, Vec::new()),
        };
        self.board.set(Subject::Slice(key.clone()), notes);
        let owner = service.filter(|_| kept.is_some()).map(|service| {
            self.key_of(&ObjectKey {
                namespace: key.namespace.clone(),
                name: service,
            })
        });
        let before = self.slices.get(&key).map(Arc::clone);
        if let Some(old) = before.filter(|old| Some(old) != owner.as_ref()) {
            self.drop_slice(&key, old);
        }
        let (Some(owner), Some(kept)) = (owner, kept) else {
            return;
        };
        let entry = self.entries.entry(Arc::clone(&owner)).or_default();
        if entry.put_slice(kept) {
            self.dirty.insert(Arc::clone(&owner));
            if let Some(time) = triggered {
                self.triggers.entry(key.clone()).or_default().push(time);
            }
        }
        self.slices.entry(key).or_insert(owner);
    }

    /// Takes a slice away from its service.
    fn drop_slice(&mut self, key: &ObjectKey, owner: Arc<ObjectKey>) {
        self.slices.remove(key);
        self.triggers.remove(key);
        if let Some(entry) = self.entries.get_mut(&owner) {
            entry.remove_slice(&key.name);
            self.dirty.insert(owner);
        }
    }

    fn set_endpoints(&mut self, key: &ObjectKey, parts: Option<Vec<Slice>>) {
        let mut notes = Vec::new();
        let parts = parts.map(|parts| {
            let check = |mut part: Slice| {
                part.service = Some(key.name.clone());
                let (kept, remarks) = Kept::check("".into(), part, &self.settings.node_name);
                notes.extend(remarks);
                kept
            };
            parts.into_iter().filter_map(check).collect::<Box<[Kept]>>()
        });
        self.board.set(Subject::Endpoints(key.clone()), notes);
        let known = self.entries.get(key);
        if known.and_then(|entry| entry.endpoints.as_ref()) == parts.as_ref() {
            return;
        }
        let key = self.key_of(key);
        self.entries.entry(Arc::clone(&key)).or_default().endpoints = parts;
        self.dirty.insert(key);
    }

    fn set_node(&mut self, name: &Name, node: Option<Box<Node>>) {
        if *name != self.settings.node_name {
            return;
        }
        let notes = match &node {
            Some(node) => node.problems.iter().map(ToString::to_string).collect(),
            None if self.surroundings.node.is_some() => vec![
                "this node's Node object was deleted; its last addresses, pod ranges and zone \
                 stay in force until it is registered again"
                    .to_owned(),
            ],
            None => Vec::new(),
        };
        self.board.set(Subject::Node(name.clone()), notes);
        self.surroundings.registered = node.is_some();
        if node.is_some() {
            self.surroundings.node = node;
            self.touch_node();
        }
    }

    /// Ends a list: what it did not contain is gone.
    fn finish_list(&mut self, kind: Kind) {
        let Some(seen) = self.relists.finish(kind) else {
            return;
        };
        let unseen = |holds: fn(&Entry) -> bool| -> Vec<ObjectKey> {
            let entries = self.entries.iter().filter(|(_, entry)| holds(entry));
            let keys = entries.map(|(key, _)| &**key);
            keys.filter(|key| !seen.objects.contains(*key))
                .cloned()
                .collect()
        };
        match kind {
            Kind::Services => {
                for key in unseen(|entry| entry.spec.is_some()) {
                    self.set_service(&key, None);
                }
            }
            Kind::Slices => {
                let mut gone: Vec<ObjectKey> = self.slices.keys().cloned().collect();
                gone.retain(|key| !seen.objects.contains(key));
                for key in gone {
                    self.set_slice(key, None);
                }
            }
            Kind::Endpoints => {
                for key in unseen(|entry| entry.endpoints.is_some()) {
                    self.set_endpoints(&key, None);
                }
            }
            Kind::Nodes => {
                let name = self.settings.node_name.clone();
                if !seen.names.contains(&name) {
                    self.set_node(&name, None);
                }
            }
            Kind::Cidrs => {
                let cidrs = &mut self.surroundings.cidrs;
                cidrs.retain(|name, _| seen.names.contains(name));
                self.touch_node();
            }
        }
        self.board
            .keep_listed(kind, |key| seen.objects.contains(key));
    }

    /// The shared copy of a key.
    fn key_of(&self, key: &ObjectKey) -> Arc<ObjectKey> {
        match self.entries.get_key_value(key) {
            Some((known, _)) => Arc::clone(known),
            None => Arc::new(key.clone()),
        }
    }

    fn touch_node(&mut self) {
        if self.node_state == NodeState::Current {
            self.node_state = NodeState::Stale;
        }
    }

    /// Brings the node views up to date and marks the services to which the difference matters.
    fn refresh_node(&mut self, changes: &mut Changes) {
        let first = match self.node_state {
            NodeState::Current => return,
            NodeState::Stale => false,
            NodeState::Unannounced => true,
        };
        for family in Family::ALL {
            let view = self.surroundings.view(&self.settings, family);
            let handed_out = &mut self.views[family as usize];
            if first || *handed_out != view {
                handed_out.clone_from(&view);
                changes.node[family as usize] = Some(view);
            }
        }
        let outlook = self.surroundings.outlook(&self.settings);
        let old = std::mem::replace(&mut self.outlook, outlook);
        let everyone = old.knows_pods != self.outlook.knows_pods;
        let moved = old.node_ip != self.outlook.node_ip;
        let rehinted = old.standpoint != self.outlook.standpoint;
        if everyone || moved || rehinted {
            let affected = self.entries.iter().filter(|(_, entry)| {
                everyone || (moved && entry.has_ranges()) || (rehinted && entry.has_hints())
            });
            self.dirty.extend(affected.map(|(key, _)| Arc::clone(key)));
        }
        self.node_state = NodeState::Current;
    }

    /// Brings one service up to date.
    fn refresh(&mut self, key: &Arc<ObjectKey>, changes: &mut Changes) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let mut notes = Vec::new();
        let (routes, health) = match &entry.spec {
            None => Default::default(),
            Some(spec) => {
                let maker = Maker {
                    key,
                    spec,
                    settings: &self.settings,
                    outlook: &self.outlook,
                    claims: &self.claims,
                    empty: &self.empty,
                };
                entry.serve(&maker, &mut notes)
            }
        };
        self.board
            .set(Subject::Claims(ObjectKey::clone(key)), notes);
        entry.hand_out(routes, &mut changes.routes);
        if let Some(health) = entry.hand_out_health(health) {
            changes.health.push((ObjectKey::clone(key), health));
        }
        if entry.is_empty() {
            self.entries.remove(key);
        }
    }
}
