//! Bytes of the API to facts, without objects in between.
//!
//! Both encodings end in the same drafts (`object::draft`), so that they cannot differ in what a
//! field means. Whatever the bytes are, nothing here panics, and nothing is read beyond them.

mod json;
mod messages;
mod proto;
mod wire;

use std::fmt;

use sluice_model::fact::Fact;
use sluice_model::name::{Names, ObjectKey};

pub use wire::Fault;

use super::resource::Resource;
use crate::object::draft::Meta;
use wire::WireError;

/// How bodies are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// `application/vnd.kubernetes.protobuf`.
    #[default]
    Protobuf,
    /// `application/json`.
    Json,
}

impl Encoding {
    /// By the value of a Content-Type header; `None` for any other type.
    pub fn of_content_type(text: &str) -> Option<Encoding> {
        let essence = text.split(';').next().unwrap_or_default().trim();
        match essence {
            "application/vnd.kubernetes.protobuf" => Some(Encoding::Protobuf),
            "application/json" => Some(Encoding::Json),
            _ => None,
        }
    }
}

/// A resourceVersion. Only [`Version::Number`]s can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Version {
    /// A plain decimal number, as every known server has.
    Number(u64),
    /// Anything else, passed back as it came.
    Text(String),
}

impl Version {
    pub(crate) fn new(text: &str) -> Version {
        // Only what prints the same may become a number.
        let plain = text == "0" || !text.starts_with(['0', '+']);
        match text.parse() {
            Ok(number) if plain => Version::Number(number),
            Ok(_) | Err(_) => Version::Text(text.to_owned()),
        }
    }

    /// Whether this one is older than another, as far as can be told.
    pub fn is_before(&self, other: &Version) -> bool {
        match (self, other) {
            (Version::Number(one), Version::Number(two)) => one < two,
            (Version::Number(_) | Version::Text(_), _) => false,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Number(number) => write!(f, "{number}"),
            Version::Text(text) => f.write_str(text),
        }
    }
}

/// A page of a list, apart from its facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The version of the whole list; a watch goes on from here.
    pub version: Version,
    /// Asks for the next page; `None` on the last.
    pub rest: Option<String>,
}

/// One frame of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An object was added, changed or deleted.
    Change {
        /// What it says now.
        fact: Fact,
        /// Its version.
        version: Version,
    },
    /// Nothing changed up to this version.
    Bookmark {
        /// That version.
        version: Version,
        /// Whether everything of a streamed list has been sent.
        list: ListState,
    },
    /// The server ends the watch.
    Error(Status),
}

/// What a bookmark says about a streamed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListState {
    /// Nothing.
    Unsaid,
    /// It is complete.
    Complete,
}

/// The API's answer where it is no object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason, as `Expired`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// How long to wait before asking again, seconds.
    pub retry_after: Option<u32>,
    /// Reasons of its causes, as `ResourceVersionTooLarge`.
    pub causes: Vec<String>,
}

/// A body or frame that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DecodeError {
    /// Kind of the object or list.
    pub kind: &'static str,
    /// Namespace and name, as far as they were read.
    pub object: String,
    /// Path of the field.
    pub field: &'static str,
    /// Bytes from the start of the frame or body.
    pub offset: usize,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for DecodeError {
    /// `EndpointSlice default/web-1: endpoints.addresses at byte 120: is not UTF-8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        if !self.object.is_empty() {
            write!(f, " {}", self.object)?;
        }
        let (field, offset, fault) = (self.field, self.offset, self.fault);
        write!(f, ": {field} at byte {offset}: {fault}")
    }
}

impl DecodeError {
    fn of(resource: Resource, meta: &Meta<'_>, error: WireError) -> DecodeError {
        let object = match (&*meta.namespace, &*meta.name) {
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        };
        DecodeError {
            kind: resource.kind(),
            object: object.chars().take(320).collect(),
            field: error.field,
            offset: error.offset,
            fault: error.fault,
        }
    }
}

/// Reads a page of a list; its facts go to `facts`.
pub fn page(
    resource: Resource,
    encoding: Encoding,
    body: &[u8],
    names: &mut Names,
    facts: &mut Vec<Fact>,
) -> Result<Page, DecodeError> {
    match encoding {
        Encoding::Protobuf => proto::page(resource, body, names, facts),
        Encoding::Json => json::page(resource, body, names, facts),
    }
}

/// Reads one frame of a watch. `None` for a kind of event that this source does not know.
pub fn event(
    resource: Resource,
    encoding: Encoding,
    frame: &[u8],
    names: &mut Names,
) -> Result<Option<Event>, DecodeError> {
    match encoding {
        Encoding::Protobuf => proto::event(resource, frame, names),
        Encoding::Json => json::event(resource, frame, names),
    }
}

/// Reads a Status; `None` where the body is anything else.
pub fn status(encoding: Encoding, body: &[u8]) -> Option<Status> {
    match encoding {
        Encoding::Protobuf => proto::status(body),
        Encoding::Json => json::status(body),
    }
}

/// What a watch says happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// ADDED or MODIFIED.
    Set,
    /// DELETED.
    Gone,
}

/// The fact that an object of this key is gone.
fn gone(resource: Resource, meta: &Meta<'_>, names: &mut Names) -> Fact {
    match resource {
        Resource::Services => Fact::Service(key(meta, names), None),
        Resource::Slices => Fact::Slice(key(meta, names), None),
        Resource::Endpoints => Fact::Endpoints(key(meta, names), None),
        Resource::Node => Fact::Node(names.intern(&meta.name), None),
        Resource::Cidrs | Resource::CidrsBeta => Fact::Cidrs(names.intern(&meta.name), None),
    }
}

fn key(meta: &Meta<'_>, names: &mut Names) -> ObjectKey {
    ObjectKey {
        namespace: names.intern(&meta.namespace),
        name: names.intern(&meta.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_only_as_numbers_and_print_as_they_came() {
        assert!(Version::new("9").is_before(&Version::new("10")));
        assert!(!Version::new("10").is_before(&Version::new("10")));
        assert!(!Version::new("a").is_before(&Version::new("b")));
        for text in ["007", "+1", "", "0", "18446744073709551616", "12"] {
            assert_eq!(Version::new(text).to_string(), text);
        }
        assert_eq!(Version::new("007"), Version::Text("007".into()));
    }

    #[test]
    fn content_types_are_told_by_their_essence() {
        let of = Encoding::of_content_type;
        let watch = "application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(of(watch), Some(Encoding::Protobuf));
        let json = "application/json; charset=utf-8";
        assert_eq!(of(json), Some(Encoding::Json));
        assert_eq!(of("text/html"), None);
    }
}
