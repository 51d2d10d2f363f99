//! Links, addresses, routes and kernel settings of the namespace a thread is in.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::{fs, process};

use ipnet::IpNet;

use super::SandboxError;

/// Where packets of a route go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The destination is a neighbour on the link.
    Link,
    /// To this neighbour.
    Via(IpAddr),
    /// To this machine itself.
    Local,
}

/// The links of the calling thread's namespace.
#[derive(Debug)]
pub(super) struct Links;

impl Links {
    pub(super) fn open() -> Result<Links, SandboxError> {
        Ok(Links)
    }

    /// A veth pair, one end here, the other in `there`.
    pub(super) fn veth(
        &mut self,
        name: &str,
        peer: &str,
        there: BorrowedFd<'_>,
    ) -> Result<(), SandboxError> {
        let fd = format!("/proc/{}/fd/{}", process::id(), there.as_raw_fd());
        ip(&[
            "link", "add", "name", name, "type", "veth", "peer", "name", peer, "netns", &fd,
        ])
    }

    /// A bridge without spanning tree.
    pub(super) fn bridge(&mut self, name: &str) -> Result<(), SandboxError> {
        ip(&["link", "add", "name", name, "type", "bridge"])
    }

    pub(super) fn up(&mut self, name: &str) -> Result<(), SandboxError> {
        ip(&["link", "set", name, "up"])
    }

    pub(super) fn enslave(&mut self, name: &str, bridge: &str) -> Result<(), SandboxError> {
        ip(&["link", "set", name, "master", bridge])
    }

    /// An address that is usable at once (no duplicate address detection).
    pub(super) fn address(&mut self, name: &str, address: IpNet) -> Result<(), SandboxError> {
        ip(&["addr", "add", &address.to_string(), "dev", name])
    }

    pub(super) fn route(&mut self, to: IpNet, way: Way, link: &str) -> Result<(), SandboxError> {
        let to = to.to_string();
        match way {
            Way::Link => ip(&["route", "add", &to, "dev", link]),
            Way::Via(gateway) => ip(&[
                "route",
                "add",
                &to,
                "via",
                &gateway.to_string(),
                "dev",
                link,
            ]),
            Way::Local => ip(&["route", "add", "local", &to, "dev", link]),
        }
    }
}

/// Stands in until `sluice_netlink::rt` exists.
fn ip(words: &[&str]) -> Result<(), SandboxError> {
    let failed = |cause: String| SandboxError::Link {
        operation: words.join(" "),
        cause,
    };
    let output = process::Command::new("ip").args(words).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(
        String::from_utf8_lossy(&output.stderr).trim().into(),
    ))
}

/// Writes settings under /proc/sys/net, where the kernel shows those of the thread's namespace.
pub(super) fn set(settings: &[(&str, &'static str)]) -> Result<(), SandboxError> {
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).map_err(|cause| SandboxError::Sysctl { path, value, cause })?;
    }
    Ok(())
}

/// The kernel has settings of this kind, as `ipv6` or `bridge`.
pub(super) fn exists(kind: &str) -> bool {
    Path::new("/proc/sys/net").join(kind).exists()
}
