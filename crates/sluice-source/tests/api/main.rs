//! The API as a source: decoding against independent encoders, and following a server that
//! misbehaves in every way that servers and networks do.

mod credentials;
mod decoding;
mod following;
mod mirror;
mod objects;
mod server;
