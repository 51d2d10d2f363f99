//! What can go wrong with a netlink request.

use std::fmt;

use rustix::io::Errno;

/// A request that did not do what it was to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A socket could not be made or set up.
    #[error("netlink socket: {step}: {errno}")]
    Open {
        /// The step that failed.
        step: &'static str,
        /// Why.
        errno: Errno,
    },
    /// The kernel refused the request.
    #[error("{what}: {errno}{}", Aside(text))]
    Refused {
        /// Operation and object.
        what: String,
        /// Why.
        errno: Errno,
        /// The kernel's own words, where it has any.
        text: Option<String>,
    },
    /// The request or its reply did not pass the socket.
    #[error("{what}: {step}: {errno}")]
    Transport {
        /// Operation and object.
        what: String,
        /// `send` or `receive`.
        step: &'static str,
        /// Why; `EAGAIN` when the kernel did not answer in time.
        errno: Errno,
    },
    /// A list kept changing while it was read.
    #[error("{what}: the list changed {tries} times while it was read")]
    Interrupted {
        /// Operation and object.
        what: String,
        /// Attempts made.
        tries: u32,
    },
    /// The reply lacks something it must have.
    #[error("{what}: reply without a valid {part}")]
    Malformed {
        /// Operation and object.
        what: String,
        /// What is missing or wrong.
        part: &'static str,
    },
    /// The request cannot be expressed: an attribute would exceed 64 KiB.
    #[error("{what}: too long for a netlink attribute")]
    TooLong {
        /// Operation and object.
        what: String,
    },
}

impl Error {
    /// The error number, where there is one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Error::Open { errno, .. }
            | Error::Refused { errno, .. }
            | Error::Transport { errno, .. } => Some(*errno),
            Error::Interrupted { .. } | Error::Malformed { .. } | Error::TooLong { .. } => None,
        }
    }
}

/// A text in brackets, or nothing.
pub(crate) struct Aside<'a>(pub(crate) &'a Option<String>);

impl fmt::Display for Aside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}
