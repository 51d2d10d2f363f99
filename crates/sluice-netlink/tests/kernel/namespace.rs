//! A network namespace per test.

use std::os::fd::OwnedFd;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread into a new network namespace. Tests run in threads of their own, so
/// that nothing else is moved.
#[allow(
    unsafe_code,
    reason = "rustix marks unshare unsafe for the sake of CLONE_FILES"
)]
pub(crate) fn fresh_namespace() {
    // SAFETY: only the network namespace is unshared; descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("tests of the kernel need root");
}

/// A descriptor of the calling thread's network namespace.
pub(crate) fn namespace() -> OwnedFd {
    std::fs::File::open("/proc/thread-self/ns/net")
        .expect("procfs is mounted")
        .into()
}
