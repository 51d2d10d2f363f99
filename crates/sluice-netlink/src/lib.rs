//! Netlink, spoken directly: nf_tables and rtnetlink.
//!
//! Encoders and decoders are pure functions over bytes; one socket type, kept open for life,
//! carries them. Nothing here knows what a Service is.
//!
//! Constants follow the kernel's `include/uapi/linux/` headers; each module names its own.

mod error;
mod message;
pub mod nft;
pub mod rt;
mod socket;
mod sys;
mod wire;

pub use error::Error;
pub use rustix::io::Errno;

/// Entry points for fuzzing: they take any bytes and must return.
#[doc(hidden)]
pub mod fuzz {
    /// Decodes a datagram as every reply and event the crate knows.
    pub fn datagram(bytes: &[u8]) -> usize {
        crate::nft::decode_anything(bytes) + crate::rt::decode_anything(bytes)
    }
}
