//! A node, its pods, another node and a client, all in network namespaces of this process.
//!
//! ```text
//!  outside (192.0.2.200)            other node (192.0.2.12) and its pods (198.51.100.128/25)
//!        \        lan (a bridge in the outside namespace)        /
//!         +----------------------------+------------------------+
//!                                      | eth0 (192.0.2.11)
//!                                     node          <- the proxy under test works here
//!                             pod0 |  | pod1 ...
//!                              pod A  pod B         (198.51.100.1, .2: a namespace each)
//! ```
//!
//! Everybody's route to everything leads through the node, so that each packet of a service is
//! seen by it, and so is each answer. Namespaces have no names: threads and descriptors of this
//! process are all that holds them, so nothing is left when it ends, however it ends.

mod echo;
mod error;
mod links;
mod namespace;
mod privilege;
mod probe;
mod socket;
mod spec;
mod wiring;
mod world;

pub use error::SandboxError;
pub use namespace::Namespace;
pub use privilege::{Privilege, enter_user_namespace};
pub use probe::{Connection, Outcome, Probe};
pub use spec::{Place, PodLink, WorldSpec};
pub use world::World;

/// The time now, for deadlines of probes.
#[expect(
    clippy::disallowed_methods,
    reason = "probes wait on a real network in real time"
)]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}
