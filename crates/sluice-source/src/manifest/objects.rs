//! Documents to objects to facts.

mod cluster;
mod endpoints;
mod service;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use sluice_model::fact::Fact;
use sluice_model::name::{Name, Names, ObjectKey};

use super::ledger::{Key, Placed};
use super::{ManifestProblem, Outcome};
use crate::object::{self, Meaning};
use crate::yaml::{self, Chunk, Complaint, Field, Node, Place};

/// What one file says, with places.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) facts: Vec<Placed>,
    pub(super) problems: Vec<ManifestProblem>,
    pub(super) outcome: Outcome,
}

/// Reads a file's bytes, which must be UTF-8.
pub(super) fn read_bytes(file: &str, bytes: &[u8], names: &mut Names) -> Reading {
    match std::str::from_utf8(bytes) {
        Ok(text) => read(file, text, names),
        Err(error) => {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
            Reading {
                outcome: Outcome::Broken,
                problems: vec![ManifestProblem {
                    file: file.to_owned(),
                    place: Place {
                        line: u32::try_from(line).unwrap_or(u32::MAX),
                        column: 1,
                    },
                    object: String::new(),
                    text: "is not UTF-8: save the file in that encoding".into(),
                }],
                ..Reading::default()
            }
        }
    }
}

/// Reads a file's text.
pub(super) fn read(file: &str, text: &str, names: &mut Names) -> Reading {
    let mut reader = Reader {
        file,
        names,
        reading: Reading::default(),
        seen: HashMap::new(),
        skipped: BTreeMap::new(),
    };
    for chunk in yaml::documents(text) {
        reader.document(chunk);
    }
    reader.finish()
}

struct Reader<'f, 'n> {
    file: &'f str,
    names: &'n mut Names,
    reading: Reading,
    /// Where in `reading.facts` an object stands.
    seen: HashMap<Key, usize>,
    /// Kinds that are none of ours, with the number of objects and the place of the first.
    skipped: BTreeMap<String, (usize, Place)>,
}

impl Reader<'_, '_> {
    fn document(&mut self, chunk: Chunk<'_>) {
        let before = self.reading.facts.len();
        let mut nameless = Vec::new();
        let mut items = 0;
        let parsed = yaml::parse_items(chunk, &mut |node| {
            items += 1;
            // Items of a typed list (`kind: ServiceList`) may leave out their kind, and the
            // list's own kind may only follow after them.
            if node.get("kind").is_none() {
                nameless.push(node);
            } else {
                self.object(&node, None);
            }
        });
        let top = match parsed {
            Ok(top) => top,
            Err(error) => {
                self.reading.outcome = Outcome::Broken;
                self.problem(error.place, "", format!("cannot be read: {}", error.text));
                return;
            }
        };
        let kind = top.get("kind").and_then(Node::text).unwrap_or_default();
        let item_kind = kind.strip_suffix("List");
        if let Some(item_kind) = item_kind.filter(|_| top.get("items").is_some()) {
            let version = top
                .get("apiVersion")
                .and_then(Node::text)
                .unwrap_or_default();
            for node in nameless {
                self.object(&node, Some((version, item_kind)));
            }
        } else {
            if items > 0 {
                self.forget(before);
            }
            self.object(&top, None);
        }
    }

    /// Takes back facts that were read from a document's `items` before it turned out that the
    /// document is no list.
    fn forget(&mut self, from: usize) {
        self.reading.facts.truncate(from);
        self.seen.retain(|_, index| *index < from);
    }

    /// One object. `of_list` is the version and kind that its list implies.
    fn object(&mut self, node: &Node, of_list: Option<(&str, &str)>) {
        let text = |key| node.get(key).and_then(Node::text);
        let (list_version, list_kind) = of_list.unwrap_or_default();
        let version = text("apiVersion").unwrap_or(list_version);
        let kind = text("kind").unwrap_or(list_kind);
        if version.is_empty() || kind.is_empty() {
            let why = "is no Kubernetes object: apiVersion and kind must say what it is";
            self.problem(node.place, "", why.into());
            return;
        }
        let Some(convert) = converter(version, kind) else {
            self.other_kind(version, kind, node.place);
            return;
        };
        let mut scope = Scope {
            object: kind.to_owned(),
            complaints: Vec::new(),
            names: self.names,
        };
        let fact = scope.convert(node, convert);
        let Scope {
            object, complaints, ..
        } = scope;
        for complaint in complaints {
            self.problem(complaint.place, &object, complaint.to_string());
        }
        if let Some(fact) = fact {
            self.add(fact, node.place, &object);
        }
    }

    fn add(&mut self, fact: Fact, place: Place, object: &str) {
        let Some(key) = Key::of(&fact) else { return };
        let placed = Placed { place, fact };
        match self
            .seen
            .get(&key)
            .and_then(|&at| self.reading.facts.get_mut(at))
        {
            Some(earlier) => {
                let line = earlier.place.line;
                *earlier = placed;
                let text = format!("is also at line {line}; this one counts: remove one of them");
                self.problem(place, object, text);
            }
            None => {
                self.seen.insert(key, self.reading.facts.len());
                self.reading.facts.push(placed);
            }
        }
    }

    fn other_kind(&mut self, version: &str, kind: &str, place: Place) {
        let outdated = matches!(
            (group(version), kind),
            ("", "Service" | "Endpoints" | "Node")
                | ("discovery.k8s.io", "EndpointSlice")
                | ("networking.k8s.io", "ServiceCIDR")
        );
        if outdated {
            let text = format!("apiVersion {version:?} is not served: use v1 of that group");
            self.problem(place, kind, text);
            return;
        }
        let entry = self.skipped.entry(format!("{version} {kind}"));
        entry.or_insert((0, place)).0 += 1;
    }

    fn problem(&mut self, place: Place, object: &str, text: String) {
        self.reading.problems.push(ManifestProblem {
            file: self.file.to_owned(),
            place,
            object: object.to_owned(),
            text,
        });
    }

    fn finish(mut self) -> Reading {
        let skipped = std::mem::take(&mut self.skipped);
        let first = skipped.values().map(|(_, place)| *place).min();
        if let Some(place) = first {
            let kinds: Vec<String> = skipped
                .iter()
                .map(|(kind, (count, _))| match count {
                    1 => kind.clone(),
                    count => format!("{kind} ({count} times)"),
                })
                .collect();
            let text = format!(
                "kinds a service proxy has no use for are skipped: {}",
                kinds.join(", ")
            );
            self.problem(place, "", text);
        }
        self.reading.problems.sort_by_key(|problem| problem.place);
        self.reading
    }
}

fn group(version: &str) -> &str {
    version.split_once('/').map_or("", |(group, _)| group)
}

type Convert = fn(&mut Scope<'_>, &Field<'_>, ObjectKey) -> Option<Fact>;

/// Whether objects of a kind live in a namespace, and how one becomes a fact.
type Converter = (Home, Convert);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Namespace,
    Cluster,
}

fn converter(version: &str, kind: &str) -> Option<Converter> {
    let converter: Converter = match (version, kind) {
        ("v1", "Service") => (Home::Namespace, service::service),
        ("v1", "Endpoints") => (Home::Namespace, endpoints::endpoints),
        ("discovery.k8s.io/v1", "EndpointSlice") => (Home::Namespace, endpoints::slice),
        ("v1", "Node") => (Home::Cluster, cluster::node),
        ("networking.k8s.io/v1" | "networking.k8s.io/v1beta1", "ServiceCIDR") => {
            (Home::Cluster, cluster::cidrs)
        }
        _ => return None,
    };
    Some(converter)
}

/// One object while it is read: collects what is wrong with it.
struct Scope<'n> {
    /// Kind and key, for messages.
    object: String,
    complaints: Vec<Complaint>,
    names: &'n mut Names,
}

impl Scope<'_> {
    fn convert(&mut self, node: &Node, (home, convert): Converter) -> Option<Fact> {
        let root = Field::root(node);
        let metadata = root.get("metadata");
        let key = metadata.and_then(|metadata| self.key(&metadata, home));
        let Some(key) = key else {
            if self.complaints.is_empty() {
                let missing = root.require("metadata", "must hold the object's name");
                self.take(missing.map(drop));
            }
            return None;
        };
        self.check_keys(node);
        convert(self, &root, key)
    }

    /// The object's key; also puts it into the name for messages.
    fn key(&mut self, metadata: &Field<'_>, home: Home) -> Option<ObjectKey> {
        let why = "must be given: manifests are not generated names";
        let name = self.take(metadata.require("name", why))?;
        let name = self.dns_name(&name)?;
        let namespace = match (home, metadata.get("namespace")) {
            (Home::Cluster, _) => None,
            (Home::Namespace, None) => Some("default"),
            (Home::Namespace, Some(field)) => match self.take(field.text())? {
                "" => Some("default"),
                _ => Some(self.dns_name(&field)?),
            },
        };
        self.object = match namespace {
            Some(namespace) => format!("{} {namespace}/{name}", self.object),
            None => format!("{} {name}", self.object),
        };
        Some(ObjectKey {
            namespace: self.names.intern(namespace.unwrap_or_default()),
            name: self.names.intern(name),
        })
    }

    /// A name as the API server has it: lower-case letters, digits, `-` and `.`.
    fn dns_name<'a>(&mut self, field: &Field<'a>) -> Option<&'a str> {
        let text = self.take(field.text())?;
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let good = text.len() <= 253
            && text.bytes().all(|b| inner(b) || b == b'-' || b == b'.')
            && text.bytes().next().is_some_and(inner)
            && text.bytes().last().is_some_and(inner);
        if good {
            return Some(text);
        }
        let why = "must be lower-case letters, digits, - and ., at most 253 of them";
        self.complaints.push(field.complaint(why));
        None
    }

    /// The value, or a complaint noted.
    fn take<T>(&mut self, result: Result<T, Complaint>) -> Option<T> {
        result
            .map_err(|complaint| self.complaints.push(complaint))
            .ok()
    }

    fn complain(&mut self, field: &Field<'_>, why: impl Into<String>) {
        self.complaints.push(field.complaint(why));
    }

    /// The elements of a list field; none where it is missing.
    fn list<'a>(&mut self, field: Option<&'a Field<'a>>) -> Vec<Field<'a>> {
        let Some(field) = field else {
            return Vec::new();
        };
        self.take(field.list())
            .map(Iterator::collect)
            .unwrap_or_default()
    }

    /// Text of an optional field.
    fn text<'a>(&mut self, field: Option<Field<'a>>) -> Option<&'a str> {
        let field = field?;
        self.take(field.text())
    }

    /// Text of an optional field as a shared name.
    fn name(&mut self, field: Option<Field<'_>>) -> Option<Name> {
        let text = self.text(field)?;
        Some(self.names.intern(text))
    }

    /// A label or annotation.
    fn label<'a>(&mut self, root: &'a Field<'a>, map: &'a str, key: &'a str) -> Option<&'a str> {
        let node = root.node().get("metadata")?.get(map)?.get(key)?;
        node.text()
    }

    fn port(&mut self, field: Field<'_>) -> Option<u16> {
        let number = self.take(field.whole(1..=65535))?;
        u16::try_from(number).ok()
    }

    /// What text means; a complaint noted where it means nothing.
    fn mean<T>(&mut self, field: &Field<'_>, rule: fn(&str) -> Meaning<T>) -> Option<T> {
        let text = self.take(field.text())?;
        let read = rule(text);
        read.map_err(|why| self.complain(field, why)).ok()
    }

    /// An address that may be that of a service or endpoint: not loopback, not link-local, ...
    fn address(&mut self, field: &Field<'_>) -> Option<IpAddr> {
        self.mean(field, object::address)
    }

    fn net(&mut self, field: &Field<'_>) -> Option<ipnet::IpNet> {
        self.mean(field, object::net)
    }

    /// Keys given twice: the last one counts, which few authors mean.
    fn check_keys(&mut self, node: &Node) {
        let mut twice = Vec::new();
        duplicate_keys(node, &mut twice);
        for (place, key) in twice {
            self.complaints.push(Complaint {
                place,
                field: key,
                value: "given twice".into(),
                why: "the last one counts: remove the other".into(),
            });
        }
    }
}

fn duplicate_keys(node: &Node, twice: &mut Vec<(Place, String)>) {
    match &node.value {
        yaml::Value::Map(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                if entries[..index].iter().any(|e| e.key == entry.key) {
                    twice.push((entry.place, entry.key.clone()));
                }
                duplicate_keys(&entry.node, twice);
            }
        }
        yaml::Value::Seq(nodes) => nodes.iter().for_each(|node| duplicate_keys(node, twice)),
        yaml::Value::Null
        | yaml::Value::Bool(_)
        | yaml::Value::Int(_)
        | yaml::Value::Float(_)
        | yaml::Value::Text(_) => {}
    }
}
