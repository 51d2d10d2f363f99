//! Documents to objects to facts.

use sluice_model::name::Names;

use super::ledger::Placed;
use super::{ManifestProblem, Outcome};

/// What one file says, with places.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) facts: Vec<Placed>,
    pub(super) problems: Vec<ManifestProblem>,
    pub(super) outcome: Outcome,
}

pub(super) fn read(_file: &str, _text: &str, _names: &mut Names) -> Reading {
    Reading::default()
}

pub(super) fn read_bytes(file: &str, bytes: &[u8], names: &mut Names) -> Reading {
    read(file, &String::from_utf8_lossy(bytes), names)
}
