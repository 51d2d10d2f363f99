//! Links, addresses, routes and kernel settings of the namespace a thread is in.

use std::fs;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::path::Path;

use ipnet::IpNet;
use sluice_netlink::Error;
use sluice_netlink::rt::{LinkChange, LinkKind, Route, RouteKind, Socket};

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
pub(super) struct Links {
    socket: Socket,
}

impl Links {
    pub(super) fn open() -> Result<Links, SandboxError> {
        Ok(Links {
            socket: Socket::open()?,
        })
    }

    /// A veth pair, one end here, the other in `there`.
    pub(super) fn veth(
        &mut self,
        name: &str,
        peer: &str,
        there: BorrowedFd<'_>,
    ) -> Result<(), SandboxError> {
        let kind = LinkKind::Veth {
            peer,
            peer_namespace: Some(there),
        };
        Ok(self.socket.create_link(name, kind)?)
    }

    /// A bridge without spanning tree.
    pub(super) fn bridge(&mut self, name: &str) -> Result<(), SandboxError> {
        Ok(self.socket.create_link(name, LinkKind::Bridge)?)
    }

    pub(super) fn up(&mut self, name: &str) -> Result<(), SandboxError> {
        self.on(name, |socket, index| {
            socket.change_link(index, LinkChange::Up)
        })
    }

    pub(super) fn enslave(&mut self, name: &str, bridge: &str) -> Result<(), SandboxError> {
        let master = self.socket.link_index(bridge)?;
        self.on(name, |socket, index| {
            socket.change_link(index, LinkChange::Master(master))
        })
    }

    /// An address that is usable at once (no duplicate address detection).
    pub(super) fn address(&mut self, name: &str, address: IpNet) -> Result<(), SandboxError> {
        self.on(name, |socket, index| {
            socket.add_address(index, address.addr(), address.prefix_len())
        })
    }

    pub(super) fn route(&mut self, to: IpNet, way: Way, link: &str) -> Result<(), SandboxError> {
        let (kind, gateway) = match way {
            Way::Link => (RouteKind::Unicast, None),
            Way::Via(gateway) => (RouteKind::Unicast, Some(gateway)),
            Way::Local => (RouteKind::Local, None),
        };
        self.on(link, |socket, index| {
            socket.add_route(&Route {
                destination: to.addr(),
                prefix: to.prefix_len(),
                kind,
                gateway,
                index: Some(index),
                source: None,
            })
        })
    }

    fn on(
        &mut self,
        link: &str,
        change: impl FnOnce(&mut Socket, u32) -> Result<(), Error>,
    ) -> Result<(), SandboxError> {
        let index = self.socket.link_index(link)?;
        Ok(change(&mut self.socket, index)?)
    }
}

/// Writes settings under /proc/sys/net, where the kernel shows those of the thread's namespace.
pub(super) fn set(settings: &[(&str, &'static str)]) -> Result<(), SandboxError> {
    for (name, value) in settings {
        let path = format!("/proc/sys/net/{name}");
        fs::write(&path, value).map_err(|cause| SandboxError::Sysctl { path, value, cause })?;
    }
    Ok(())
}

/// The kernel has this setting, or settings of this kind, as `ipv6` or `bridge`.
pub(super) fn exists(kind: &str) -> bool {
    Path::new("/proc/sys/net").join(kind).exists()
}
