//! The proxy as a library: what `main.rs` calls, and what the lab and the demonstration run.

pub mod cleanup;
pub mod config;
pub mod daemon;
pub mod demo;
pub mod engine;
pub mod flags;
pub mod logging;
pub mod sandbox;
