//! What the cluster says, and what every service port must therefore do.
//!
//! Everything here is pure: no clock, no I/O, no threads. Sources feed [`fact::Fact`]s into a
//! [`cluster::Cluster`]; what comes out are [`route::Route`]s, the one statement of Kubernetes
//! service networking that every dataplane compiles and that the [`oracle`] answers from.

pub mod cluster;
pub mod fact;
pub mod name;
pub mod oracle;
pub mod route;
pub mod settings;
pub mod testing;
