//! What a reader of the source knows: facts put together, lists taken at their word.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_model::fact::{Fact, Kind};
use sluice_model::name::Names;
use sluice_source::api::decode::{Event, event};
use sluice_source::api::{Access, ApiOptions, ApiSource, Encoding, Notice, Rate, Resource, Update};

use crate::objects::{Object, event_json};
use crate::server::Server;

/// Kind, namespace and name.
pub(crate) type Key = (Kind, String, String);

/// A source and all that it has said.
pub(crate) struct Mirror {
    source: ApiSource,
    pub(crate) facts: BTreeMap<Key, Fact>,
    pub(crate) synced: BTreeSet<Kind>,
    open: BTreeMap<Kind, BTreeSet<Key>>,
    /// How many objects each complete list held.
    pub(crate) lists: Vec<(Kind, usize)>,
    pub(crate) notices: Vec<Notice>,
    /// Objects that every complete list must hold.
    pub(crate) stable: BTreeSet<Key>,
}

/// Options to follow a server; node-a is the Node.
pub(crate) fn options(access: Access, seed: u64) -> ApiOptions {
    ApiOptions {
        access,
        node: "node-a".into(),
        encoding: Encoding::Protobuf,
        rate: Rate::default(),
        user_agent: "kube-proxy/test".into(),
        seed,
    }
}

fn key_of(fact: &Fact) -> Option<(Key, bool)> {
    let (kind, namespace, name, exists) = match fact {
        Fact::Service(key, fact) => (Kind::Services, &*key.namespace, &key.name, fact.is_some()),
        Fact::Slice(key, fact) => (Kind::Slices, &*key.namespace, &key.name, fact.is_some()),
        Fact::Endpoints(key, fact) => (Kind::Endpoints, &*key.namespace, &key.name, fact.is_some()),
        Fact::Node(name, fact) => (Kind::Nodes, "", name, fact.is_some()),
        Fact::Cidrs(name, fact) => (Kind::Cidrs, "", name, fact.is_some()),
        Fact::LocalAddresses(_) | Fact::Begin(_) | Fact::Synced(_) => return None,
    };
    Some(((kind, namespace.to_owned(), name.to_string()), exists))
}

/// The fact that an object states.
pub(crate) fn fact_of(object: &Object) -> (Key, Fact) {
    let frame = event_json("ADDED", &object.json()).to_string();
    let mut names = Names::default();
    let read = event(
        object.resource(),
        Encoding::Json,
        frame.as_bytes(),
        &mut names,
    );
    match read {
        Ok(Some(Event::Change { fact, .. })) => (key_of(&fact).unwrap().0, fact),
        other => panic!("{other:?}"),
    }
}

/// The facts that a server's objects state.
pub(crate) fn facts_of(server: &Server) -> BTreeMap<Key, Fact> {
    let objects: Vec<Object> = server.with(|store| store.objects.values().cloned().collect());
    objects.iter().map(fact_of).collect()
}

impl Mirror {
    pub(crate) async fn of(server: &Server) -> Mirror {
        Mirror::with(options(Access::Server(server.url()), 1)).await
    }

    pub(crate) async fn with(options: ApiOptions) -> Mirror {
        Mirror {
            source: ApiSource::start(options).await.unwrap(),
            facts: BTreeMap::new(),
            synced: BTreeSet::new(),
            open: BTreeMap::new(),
            lists: Vec::new(),
            notices: Vec::new(),
            stable: BTreeSet::new(),
        }
    }

    /// Takes in what comes until `done`, at most for the given time by the paused clock.
    pub(crate) async fn until(&mut self, limit: Duration, done: impl Fn(&Mirror) -> bool) {
        let end = tokio::time::Instant::now() + limit;
        while !done(self) {
            match tokio::time::timeout_at(end, self.source.next()).await {
                Ok(Some(update)) => self.take(update),
                Ok(None) => panic!("the source ended"),
                Err(_) => panic!("not within {limit:?}; last notices: {:#?}", self.tail()),
            }
        }
    }

    /// Takes in what comes within the given time.
    pub(crate) async fn during(&mut self, time: Duration) {
        let end = tokio::time::Instant::now() + time;
        while let Ok(update) = tokio::time::timeout_at(end, self.source.next()).await {
            self.take(update.expect("the source goes on"));
        }
    }

    fn tail(&self) -> &[Notice] {
        &self.notices[self.notices.len().saturating_sub(12)..]
    }

    /// Until the facts are those of the server and all four kinds are synced.
    pub(crate) async fn until_same(&mut self, server: &Server, limit: Duration) {
        let server = server.clone();
        self.until(limit, move |mirror| {
            mirror.synced.len() >= 4 && mirror.facts == facts_of(&server)
        })
        .await;
    }

    fn take(&mut self, update: Update) {
        match update {
            Update::Notice(notice) => self.notices.push(notice),
            Update::Facts(facts) => {
                assert!(facts.len() <= 256, "a batch of {}", facts.len());
                facts.into_iter().for_each(|fact| self.apply(fact));
            }
        }
    }

    fn apply(&mut self, fact: Fact) {
        if let Some((key, exists)) = key_of(&fact) {
            if exists {
                if let Some(open) = self.open.get_mut(&key.0) {
                    open.insert(key.clone());
                }
                self.facts.insert(key, fact);
            } else {
                self.facts.remove(&key);
            }
            return;
        }
        match fact {
            Fact::Begin(kind) => {
                self.open.insert(kind, BTreeSet::new());
            }
            Fact::Synced(kind) => {
                let seen = self.open.remove(&kind).expect("a list that was begun");
                let must: Vec<_> = self.stable.iter().filter(|key| key.0 == kind).collect();
                assert!(
                    must.iter().all(|key| seen.contains(*key)),
                    "half a list was served"
                );
                self.facts
                    .retain(|key, _| key.0 != kind || seen.contains(key));
                self.synced.insert(kind);
                self.lists.push((kind, seen.len()));
            }
            other => panic!("{other:?} from an API source"),
        }
    }

    /// The troubles reported for a resource.
    pub(crate) fn troubles(&self, of: Resource) -> Vec<String> {
        let troubles = self.notices.iter().filter_map(|notice| match notice {
            Notice::Trouble { resource, text, .. } if *resource == of => Some(text.clone()),
            _ => None,
        });
        troubles.collect()
    }
}
