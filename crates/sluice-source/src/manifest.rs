//! Manifests: files of YAML or JSON that stand in for an API server.
//!
//! [`facts_from_str`] is the pure half: one file's text to facts. [`ManifestSource`] watches a
//! file or folder and reports what changed. The part of the API server that matters to hand-made
//! files is played here: defaults are filled in, and what the server would refuse is reported
//! with its place. Such remarks travel as [`ManifestProblem`]s, which know line and column, and
//! not in the `problems` of the facts, so that nothing is said twice.

mod ledger;
mod objects;
mod source;
mod watch;

use std::fmt;

use sluice_model::fact::Fact;
use sluice_model::name::Names;

use crate::yaml::Place;

pub use source::{ManifestSource, SourceError, Update};

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The facts, in the order of the file; an object that occurs twice counts as last written.
    pub facts: Vec<Fact>,
    /// What is wrong with the file, in the order of the file.
    pub problems: Vec<ManifestProblem>,
    /// Whether all of the file could be read.
    pub outcome: Outcome,
}

/// Whether a file could be read as YAML to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// Yes.
    #[default]
    Read,
    /// A part is no YAML: what is missing from the facts may only be unreadable, not gone.
    Broken,
}

/// Something wrong in a manifest: where, with which object, what and what would do instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestProblem {
    /// The file.
    pub file: String,
    /// Line and column; 0 where it concerns the whole file.
    pub place: Place,
    /// Kind and key, as `Service default/web`; empty where no object could be made out.
    pub object: String,
    /// What is wrong, and the remedy.
    pub text: String,
}

impl fmt::Display for ManifestProblem {
    /// `file:line:column: Service default/web: text`, the form editors can jump to.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.place.line > 0 {
            write!(f, ":{}:{}", self.place.line, self.place.column)?;
        }
        if !self.object.is_empty() {
            write!(f, ": {}", self.object)?;
        }
        write!(f, ": {}", self.text)
    }
}

/// Reads one file's text. `file` is its name in messages.
pub fn facts_from_str(file: &str, text: &str, names: &mut Names) -> Parsed {
    let objects::Reading {
        facts,
        problems,
        outcome,
    } = objects::read(file, text, names);
    Parsed {
        facts: facts.into_iter().map(|placed| placed.fact).collect(),
        problems,
        outcome,
    }
}
