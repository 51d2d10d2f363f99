//! A value on the way through a document: with its path, for messages that name the field.

use std::fmt;
use std::ops::RangeInclusive;

use super::{Node, Place, Value};

/// A value and how it was reached. Paths are spelled only when a message needs them.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    node: &'a Node,
    parent: Option<&'a Field<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Key(&'a str),
    Index(usize),
}

/// A value that does not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value}: {why}")]
pub struct Complaint {
    /// Where it stands.
    pub place: Place,
    /// Path of the field, as `spec.ports[0].port`.
    pub field: String,
    /// What it said.
    pub value: String,
    /// Why that does not do, and what would.
    pub why: String,
}

impl fmt::Display for Field<'_> {
    /// The path, as `spec.ports[0].port`; empty for the root.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => {
                let inner = self.parent.is_some_and(|p| !matches!(p.step, Step::Root));
                write!(f, "{}{key}", if inner { "." } else { "" })
            }
        }
    }
}

impl<'a> Field<'a> {
    /// The top of a document or object.
    pub fn root(node: &'a Node) -> Field<'a> {
        Field {
            node,
            parent: None,
            step: Step::Root,
        }
    }

    /// The value itself.
    pub fn node(&self) -> &'a Node {
        self.node
    }

    /// Where the value starts.
    pub fn place(&self) -> Place {
        self.node.place
    }

    /// A key's value. An explicit null is the same as no key, as in the API.
    pub fn get(&'a self, key: &'a str) -> Option<Field<'a>> {
        let node = self.node.get(key)?;
        (!node.is_null()).then_some(Field {
            node,
            parent: Some(self),
            step: Step::Key(key),
        })
    }

    /// The same with a complaint about this value where the key is missing.
    pub fn require(&'a self, key: &'a str, why: &str) -> Result<Field<'a>, Complaint> {
        self.get(key).ok_or_else(|| {
            let dot = if matches!(self.step, Step::Root) {
                ""
            } else {
                "."
            };
            Complaint {
                place: self.place(),
                field: format!("{self}{dot}{key}"),
                value: "missing".into(),
                why: why.into(),
            }
        })
    }

    /// The elements of a list.
    pub fn list(&'a self) -> Result<impl Iterator<Item = Field<'a>>, Complaint> {
        let Value::Seq(nodes) = &self.node.value else {
            return Err(self.complaint("must be a list: start every entry with \"- \""));
        };
        Ok(nodes.iter().enumerate().map(move |(index, node)| Field {
            node,
            parent: Some(self),
            step: Step::Index(index),
        }))
    }

    /// Text.
    pub fn text(&self) -> Result<&'a str, Complaint> {
        self.node
            .text()
            .ok_or_else(|| self.complaint("must be text: put it in quotes"))
    }

    /// A boolean.
    pub fn flag(&self) -> Result<bool, Complaint> {
        if let Value::Bool(value) = self.node.value {
            return Ok(value);
        }
        Err(self.complaint("must be true or false, without quotes"))
    }

    /// A whole number within `range`.
    pub fn whole(&self, range: RangeInclusive<i64>) -> Result<i64, Complaint> {
        if let Value::Int(value) = self.node.value
            && range.contains(&value)
        {
            return Ok(value);
        }
        let (low, high) = range.into_inner();
        Err(self.complaint(format!("must be a whole number from {low} to {high}")))
    }

    /// That this value does not do.
    pub fn complaint(&self, why: impl Into<String>) -> Complaint {
        let shown = match &self.node.value {
            Value::Text(_) => format!("{:?}", self.node.shown()),
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Seq(_)
            | Value::Map(_) => self.node.shown(),
        };
        Complaint {
            place: self.place(),
            field: self.to_string(),
            value: shown,
            why: why.into(),
        }
    }
}
