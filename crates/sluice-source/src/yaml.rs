//! YAML and JSON as a tree in which every value knows its place.
//!
//! Typed deserialization stops at the first field that does not fit. People who edit files by
//! hand are better served by all complaints at once, each with line and column, and by a program
//! that goes on with the rest; hence a tree that the caller walks at leisure.

mod field;

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Options, Spanned};

pub use field::{Complaint, Field};

/// Line and column in a file, both from 1; 0 where unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Line.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

/// A value and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it starts.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// A YAML value by the core schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing, `null`, `~`.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// A sequence.
    Seq(Vec<Node>),
    /// A mapping in the order written; a key may occur twice.
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key starts.
    pub place: Place,
    /// Its value.
    pub node: Node,
}

/// Text that is not YAML: where and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SyntaxError {
    /// Where reading stopped.
    pub place: Place,
    /// What is wrong, one line.
    pub text: String,
}

impl Node {
    /// The value of a mapping's key, the last one where it occurs twice; `None` also where this
    /// is no mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries()
            .iter()
            .rev()
            .find(|entry| entry.key == key)
            .map(|entry| &entry.node)
    }

    /// The text, if it is text.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Seq(_)
            | Value::Map(_) => None,
        }
    }

    /// The entries of a mapping, nothing for any other value.
    pub fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Seq(_) => &[],
        }
    }

    /// True for a null.
    pub fn is_null(&self) -> bool {
        self.value == Value::Null
    }

    /// The value in a message: scalars as they are, collections by their sort.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::Null => "null".into(),
            Value::Bool(value) => value.to_string(),
            Value::Int(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Text(text) => text.chars().take(80).collect(),
            Value::Seq(_) => "a list".into(),
            Value::Map(_) => "a mapping".into(),
        }
    }
}

/// One document of a stream: its text and the number of lines before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The document's text, its `---` included.
    pub text: &'a str,
    /// Lines that precede it in the file.
    pub lines_before: u32,
}

/// Cuts a stream into documents. Whatever stands around it, a line that starts with `---` begins
/// a document and one that starts with `...` ends it, so the cut needs no parser and a broken
/// document does not hide the ones after it. Documents of blanks and comments are left out.
pub fn documents(text: &str) -> Vec<Chunk<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut chunks = Vec::new();
    let mut start = (0, 0);
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if is_marker(line, "---") || is_marker(line, "...") {
            chunks.push((start, offset));
            start = (offset, u32::try_from(number).unwrap_or(u32::MAX));
            if is_marker(line, "...") {
                start = (offset + line.len(), start.1.saturating_add(1));
            }
        }
        offset += line.len();
    }
    chunks.push((start, text.len()));
    chunks
        .into_iter()
        .map(|((from, lines_before), to)| Chunk {
            text: &text[from..to],
            lines_before,
        })
        .filter(|chunk| !chunk.text.lines().all(is_empty_line))
        .collect()
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn is_empty_line(line: &str) -> bool {
    let line = line.strip_prefix("---").unwrap_or(line).trim();
    line.is_empty() || line.starts_with(['#', '%'])
}

/// Reads one document into a tree.
pub fn parse(chunk: Chunk<'_>) -> Result<Node, SyntaxError> {
    with_seed(chunk, NodeSeed(chunk.lines_before))
}

/// Reads a document whose top-level key `items` holds a list, handing each item to `each` as soon
/// as it is read, so that a list of many thousand objects is never in memory as a tree. The rest
/// of the document is returned, `items` in it as an empty list. A syntax error may come after
/// items were handed out.
pub fn parse_items(chunk: Chunk<'_>, each: &mut dyn FnMut(Node)) -> Result<Node, SyntaxError> {
    let seed = TopSeed {
        lines_before: chunk.lines_before,
        each,
    };
    with_seed(chunk, seed)
}

fn with_seed<'a, S>(chunk: Chunk<'a>, seed: S) -> Result<Node, SyntaxError>
where
    S: DeserializeSeed<'a, Value = Node>,
{
    serde_saphyr::with_deserializer_from_str_with_options(chunk.text, options(), |deserializer| {
        seed.deserialize(deserializer)
    })
    .map_err(|error| {
        // What is wrong with the document as a whole stands where it starts.
        let start = Place {
            line: chunk.lines_before.saturating_add(1),
            column: 1,
        };
        let place = match error.location().map(|at| place(at, chunk.lines_before)) {
            Some(place) if place.line > 0 => place,
            Some(_) | None => start,
        };
        SyntaxError {
            place,
            text: one_line(&error.without_snippet().to_string()),
        }
    })
}

/// The library's message ends in "at line 3, column 5", counted within the chunk; the place is
/// reported apart and for the whole file.
fn one_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let mut text = line.to_owned();
    while let Some(at) = text.find(" at line ").or_else(|| text.find("line ")) {
        let tail = &text[at..];
        let end = tail
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == ' ' || c == ','))
            .unwrap_or(tail.len());
        let (from, to) = (at, at + end);
        text.replace_range(from..to, "");
    }
    text.trim_matches([' ', ':', ',']).to_owned()
}

/// The limits of the reader guard servers that take YAML from strangers. Manifests are the
/// operator's own and may hold a whole cluster, so only those against runaway nesting and aliases
/// stay.
fn options() -> Options {
    let mut options = Options::default();
    options.with_snippet = false;
    options.strict_booleans = true;
    options.duplicate_keys = DuplicateKeyPolicy::PassThrough;
    if let Some(budget) = &mut options.budget {
        budget.max_events = usize::MAX;
        budget.max_nodes = usize::MAX;
        budget.max_total_scalar_bytes = usize::MAX;
    }
    options
}

fn place(location: serde_saphyr::Location, lines_before: u32) -> Place {
    let clamp = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    match location.line() {
        0 => Place::default(),
        line => Place {
            line: clamp(line).saturating_add(lines_before),
            column: clamp(location.column()),
        },
    }
}

/// A tree without the shift by `lines_before`, which a plain `Deserialize` cannot know.
struct Raw(Value);

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Raw)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }
    fn visit_string<E: de::Error>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }
    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Value, D::Error> {
        inner.deserialize_any(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Raw>>()? {
            nodes.push(node(item, 0));
        }
        Ok(Value::Seq(nodes))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let value = map.next_value::<Spanned<Raw>>()?;
            entries.push(Entry {
                place: place(key.referenced, 0),
                key: key.value,
                node: node(value, 0),
            });
        }
        Ok(Value::Map(entries))
    }
}

fn node(spanned: Spanned<Raw>, lines_before: u32) -> Node {
    let mut node = Node {
        place: place(spanned.referenced, 0),
        value: spanned.value.0,
    };
    shift(&mut node, lines_before);
    node
}

fn shift(node: &mut Node, lines: u32) {
    if lines == 0 {
        return;
    }
    shift_place(&mut node.place, lines);
    match &mut node.value {
        Value::Seq(nodes) => nodes.iter_mut().for_each(|node| shift(node, lines)),
        Value::Map(entries) => {
            for entry in entries {
                shift_place(&mut entry.place, lines);
                shift(&mut entry.node, lines);
            }
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {}
    }
}

fn shift_place(place: &mut Place, lines: u32) {
    if place.line > 0 {
        place.line = place.line.saturating_add(lines);
    }
}

struct NodeSeed(u32);

impl<'de> DeserializeSeed<'de> for NodeSeed {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Spanned::<Raw>::deserialize(deserializer).map(|spanned| node(spanned, self.0))
    }
}

/// Reads the top level of a document; `each` gets the items.
struct TopSeed<'e> {
    lines_before: u32,
    each: &'e mut dyn FnMut(Node),
}

impl<'de> DeserializeSeed<'de> for TopSeed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TopSeed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object, which is a mapping with apiVersion, kind and metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let mut key_place = place(key.referenced, 0);
            shift_place(&mut key_place, self.lines_before);
            let value = if key.value == "items" {
                map.next_value_seed(ItemsSeed {
                    lines_before: self.lines_before,
                    each: &mut *self.each,
                })?
            } else {
                map.next_value_seed(NodeSeed(self.lines_before))?
            };
            entries.push(Entry {
                key: key.value,
                place: key_place,
                node: value,
            });
        }
        Ok(Node {
            place: entries.first().map(|e| e.place).unwrap_or_default(),
            value: Value::Map(entries),
        })
    }
}

struct ItemsSeed<'e> {
    lines_before: u32,
    each: &'e mut dyn FnMut(Node),
}

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(no_items())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        while let Some(item) = seq.next_element_seed(NodeSeed(self.lines_before))? {
            (self.each)(item);
        }
        Ok(no_items())
    }
}

fn no_items() -> Node {
    Node {
        place: Place::default(),
        value: Value::Seq(Vec::new()),
    }
}
