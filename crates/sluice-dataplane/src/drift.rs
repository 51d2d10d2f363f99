//! How far the kernel was off, for logs and counters.

/// How the kernel differed from intent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drift {
    /// Objects that were missing.
    pub missing: usize,
    /// Objects that should not have been there.
    pub unexpected: usize,
    /// Some of them in words, for the log.
    pub examples: Vec<String>,
}

impl Drift {
    /// No difference.
    pub fn is_none(&self) -> bool {
        self.missing == 0 && self.unexpected == 0
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < 8 {
            self.examples.push(text());
        }
    }
}
