//! Scenarios: one list of cases that says what Kubernetes service networking means, run against
//! the oracle and against every mode on a real kernel.
//!
//! `scenarios/README.md` describes the files. [`scenario`] reads them, [`family`] turns a case
//! written in IPv4 into IPv6, [`world`] says who is where, and [`runner`] compares what a
//! [`backend`] shows with what the scenario expects.

pub mod backend;
pub mod compare;
pub mod family;
pub mod kernel;
pub mod objects;
pub mod oracle;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod world;
