//! Shared strings: names repeat thousands of times in a cluster, so each is stored once.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A name from the API (namespace, object, port, node, zone). Cloning shares the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Name(Arc::from(text))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The table of names in use. A source owns one and asks it for every name it reads.
#[derive(Debug, Default)]
pub struct Names {
    known: HashSet<Name>,
    sweep_at: usize,
}

impl Names {
    /// The one shared copy of `text`.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(name) = self.known.get(text) {
            return name.clone();
        }
        if self.known.len() >= self.sweep_at {
            // Names nobody else holds are dropped whenever the table has doubled since the last
            // look, so that a cluster with much churn does not grow it for ever.
            self.known.retain(|name| Arc::strong_count(&name.0) > 1);
            self.sweep_at = (self.known.len() * 2).max(1024);
        }
        let name = Name::from(text);
        self.known.insert(name.clone());
        name
    }
}

/// Namespace and name of an API object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    /// Namespace.
    pub namespace: Name,
    /// Name within the namespace.
    pub name: Name,
}

impl ObjectKey {
    /// A key from plain text.
    pub fn new(namespace: &str, name: &str) -> Self {
        ObjectKey {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
