//! Any bytes as a datagram of the kernel: every decoder returns.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    sluice_netlink::fuzz::datagram(bytes);
});
