//! The one system call without a safe wrapper: netlink socket options.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// `SOL_NETLINK`, `include/linux/socket.h`.
const SOL_NETLINK: libc::c_int = 270;

/// Switches an integer option of level `SOL_NETLINK` on (`linux/netlink.h`: `NETLINK_CAP_ACK` 10,
/// `NETLINK_EXT_ACK` 11, `NETLINK_GET_STRICT_CHK` 12).
#[allow(unsafe_code, reason = "rustix has no netlink socket options")]
pub(crate) fn enable(fd: BorrowedFd<'_>, option: libc::c_int) -> Result<(), Errno> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is borrowed and so open; the pointer and the length describe a live
    // c_int, which the kernel only reads.
    let status = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            SOL_NETLINK,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if status == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
