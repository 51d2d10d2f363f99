//! The API as a source: decoding against independent encoders, and following a server that
//! misbehaves in every way that servers and networks do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    clippy::large_enum_variant,
    reason = "helpers of tests: what does not fit must fail the test"
)]

mod credentials;
mod decoding;
mod draws;
mod following;
mod mirror;
mod objects;
mod server;
