//! rtnetlink: addresses, links and routes.
//!
//! Numbers follow `linux/rtnetlink.h`, `linux/if_addr.h`, `linux/if_link.h` and `linux/veth.h`;
//! all of them are of host order.

mod address;
mod link;
mod route;
mod watch;

pub use address::{Address, flag};
pub use link::{LinkChange, LinkInfo, LinkKind};
pub use route::{Route, RouteKind};
pub use watch::{Topic, Watch};

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::Error;
use crate::message::{Messages, NLM_F_ACK, Request};
use crate::socket;
use crate::wire::{Attr, Writer};

/// `linux/socket.h`.
const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// A socket of rtnetlink, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Socket {
    socket: socket::Socket,
}

impl Socket {
    /// A new socket.
    pub fn open() -> Result<Self, Error> {
        Ok(Socket {
            socket: socket::Socket::open(None)?,
        })
    }

    /// A request that only succeeds or fails.
    fn change(
        &mut self,
        what: &str,
        (kind, flags): (u16, u16),
        header: &[u8],
        fill: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), Error> {
        let request = Request::new(kind, NLM_F_ACK | flags, header, fill);
        self.socket.request(what, request, |_| Ok(()))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

const fn family(ip: IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

fn put_ip(w: &mut Writer<'_>, kind: u16, ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => w.bytes(kind, &ip.octets()),
        IpAddr::V6(ip) => w.bytes(kind, &ip.octets()),
    }
}

fn ip(attr: Attr<'_>) -> Option<IpAddr> {
    match attr.value.len() {
        4 => Some(IpAddr::from(<[u8; 4]>::try_from(attr.value).ok()?)),
        16 => Some(IpAddr::from(<[u8; 16]>::try_from(attr.value).ok()?)),
        _ => None,
    }
}

/// Every decoder over every message, for tests with arbitrary bytes; counts what was understood.
pub(crate) fn decode_anything(datagram: &[u8]) -> usize {
    Messages(datagram)
        .map(|message| {
            usize::from(matches!(address::decode(&message), Ok(Some(_))))
                + usize::from(link::decode(&message).is_ok())
                + usize::from(matches!(route::decode(&message), Ok(Some(_))))
        })
        .sum()
}
