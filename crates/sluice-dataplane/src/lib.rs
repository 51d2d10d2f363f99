//! From routes to kernel state. Each mode is a pure compiler, which turns changed
//! [`Route`](sluice_model::route::Route)s into a transaction, and a thin driver, which carries it
//! out and reads the kernel back. Compilers never see a driver, drivers never see a route.

pub mod arrange;
pub mod drift;
pub mod image;
pub mod iptables;
pub mod mode;
pub mod nftables;
