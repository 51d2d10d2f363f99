//! Sockets of probes and servers. Whoever opens one does so on a namespace's thread.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, ipproto, listen, sockopt};
use sluice_model::fact::Protocol;

/// A non-blocking socket of the family of `like`.
pub(super) fn open(protocol: Protocol, like: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match like {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let (kind, number) = match protocol {
        Protocol::Tcp => (SocketType::STREAM, ipproto::TCP),
        Protocol::Udp => (SocketType::DGRAM, ipproto::UDP),
        // One-to-one style: it listens, accepts and connects as TCP does.
        Protocol::Sctp => (SocketType::STREAM, ipproto::SCTP),
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, kind, flags, Some(number))
}

/// A socket bound to `address`.
pub(super) fn open_at(protocol: Protocol, address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = open(protocol, address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Remote pods are prefixes, not interface addresses: IPv6 binds to those only if told so.
    match address {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(&socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    bind(&socket, &address)?;
    Ok(socket)
}

/// A socket that accepts connections, or datagrams, on `address`.
pub(super) fn serve_at(protocol: Protocol, address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = open_at(protocol, address)?;
    match protocol {
        Protocol::Tcp | Protocol::Sctp => listen(&socket, 1024)?,
        Protocol::Udp => {}
    }
    Ok(socket)
}
