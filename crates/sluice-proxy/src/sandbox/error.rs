//! What can go wrong in building and using a sandbox.

use std::io;
use std::net::{IpAddr, SocketAddr};

use sluice_model::fact::Protocol;

/// A sandbox operation that failed, with the object it failed on.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// This process may make neither network namespaces nor a user namespace to make them in.
    #[error("this machine does not let an ordinary user make network namespaces: {why}")]
    Forbidden {
        /// The setting in the way and the way round it.
        why: String,
    },
    /// A step of entering a user namespace failed.
    #[error("cannot {step}: {cause}")]
    UserNamespace {
        /// What was tried.
        step: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A namespace could not be made.
    #[error("cannot make the network namespace of {namespace}: {cause}")]
    Namespace {
        /// Whose it is.
        namespace: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The thread that lives in a namespace has died.
    #[error("the thread in the network namespace of {namespace} has died")]
    ThreadDied {
        /// Whose it is.
        namespace: String,
    },
    /// A link, address or route could not be made.
    #[error(transparent)]
    Link(#[from] sluice_netlink::Error),
    /// A kernel setting could not be written.
    #[error("cannot write {value:?} to {path}: {cause}")]
    Sysctl {
        /// File under /proc/sys.
        path: String,
        /// What was to be written.
        value: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// No namespace has this address.
    #[error("nobody in the sandbox has the address {0}")]
    NobodyHas(IpAddr),
    /// The place of a probe has no address of the destination's family.
    #[error("{from} has no address to reach {to} from")]
    NoSource {
        /// Who asks.
        from: super::Place,
        /// Where to.
        to: SocketAddr,
    },
    /// A specification that cannot be built.
    #[error("the sandbox needs {0}")]
    Specification(&'static str),
    /// A server could not be started.
    #[error("cannot serve {protocol} on {address}: {cause}")]
    Serve {
        /// Protocol.
        protocol: Protocol,
        /// Address and port.
        address: SocketAddr,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A socket operation failed for a reason that says nothing about the network.
    #[error("cannot {operation}: {cause}")]
    Socket {
        /// What was tried.
        operation: &'static str,
        /// The kernel's answer.
        cause: io::Error,
    },
}

impl SandboxError {
    /// The kernel does not have the protocol (SCTP, as a rule).
    pub fn is_unsupported(&self) -> bool {
        let cause = match self {
            SandboxError::Serve { cause, .. } | SandboxError::Socket { cause, .. } => cause,
            SandboxError::Forbidden { .. }
            | SandboxError::UserNamespace { .. }
            | SandboxError::Namespace { .. }
            | SandboxError::ThreadDied { .. }
            | SandboxError::Link(_)
            | SandboxError::Sysctl { .. }
            | SandboxError::NobodyHas(_)
            | SandboxError::NoSource { .. }
            | SandboxError::Specification(_) => return false,
        };
        let errno = rustix::io::Errno::from_io_error(cause);
        errno == Some(rustix::io::Errno::PROTONOSUPPORT)
    }
}
