//! Links (`struct ifinfomsg`, `IFLA_*`).

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::Socket;
use crate::error::Error;
use crate::message::{Message, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Request};
use crate::wire::{Attrs, Writer};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
/// Bytes of `struct ifinfomsg`.
const HEADER: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
/// `IFF_UP` (`linux/if.h`).
const IFF_UP: u32 = 1;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LinkInfo {
    /// Index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// `IFF_*` (`linux/if.h`): 1 up, 8 loopback.
    pub flags: u32,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// Index of the bridge or bond it belongs to.
    pub master: Option<u32>,
    /// `veth`, `bridge`, `dummy`, ...; `None` for hardware and loopback.
    pub kind: Option<String>,
    /// Hardware address; empty where there is none.
    pub hardware: Vec<u8>,
}

impl LinkInfo {
    /// Switched on by its administrator.
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }
}

/// A link to make.
#[derive(Clone, Copy, Debug)]
pub enum LinkKind<'a> {
    /// `bridge`.
    Bridge,
    /// `dummy`.
    Dummy,
    /// One end of a cable.
    Veth {
        /// Name of the other end.
        peer: &'a str,
        /// Network namespace of the other end; this one if `None`.
        peer_namespace: Option<BorrowedFd<'a>>,
    },
}

impl LinkKind<'_> {
    fn word(&self) -> &'static str {
        match self {
            LinkKind::Bridge => "bridge",
            LinkKind::Dummy => "dummy",
            LinkKind::Veth { .. } => "veth",
        }
    }
}

/// What to change of a link.
#[derive(Clone, Copy, Debug)]
pub enum LinkChange<'a> {
    /// Switch it on.
    Up,
    /// Switch it off.
    Down,
    /// Make it a port of the bridge with this index.
    Master(u32),
    /// Take it off its bridge.
    NoMaster,
    /// Rename it; most kernels want it down for that.
    Name(&'a str),
    /// Move it into a network namespace.
    Namespace(BorrowedFd<'a>),
    /// Largest packet, bytes.
    Mtu(u32),
    /// Hardware address.
    Hardware([u8; 6]),
}

impl fmt::Display for LinkChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkChange::Up => f.write_str("switch on"),
            LinkChange::Down => f.write_str("switch off"),
            LinkChange::Master(index) => write!(f, "attach to bridge {index}"),
            LinkChange::NoMaster => f.write_str("detach from its bridge"),
            LinkChange::Name(name) => write!(f, "rename to {name}"),
            LinkChange::Namespace(_) => f.write_str("move to another namespace"),
            LinkChange::Mtu(mtu) => write!(f, "set mtu {mtu}"),
            LinkChange::Hardware(_) => f.write_str("set hardware address"),
        }
    }
}

impl Socket {
    /// All links of this namespace.
    pub fn links(&mut self) -> Result<Vec<LinkInfo>, Error> {
        let request = Request::new(RTM_GETLINK, NLM_F_DUMP, &header(0, 0, 0), |_| {});
        self.socket.dump("list links", request, |message, list| {
            if message.kind == RTM_NEWLINK {
                list.push(decode(message)?);
            }
            Ok(())
        })
    }

    /// The link of a name; `ENODEV` if there is none.
    pub fn link(&mut self, name: &str) -> Result<LinkInfo, Error> {
        let what = format!("look up link {name}");
        let request = Request::new(RTM_GETLINK, NLM_F_ACK, &header(0, 0, 0), |w| {
            w.text(IFLA_IFNAME, name);
        });
        let mut found = None;
        self.socket.request(&what, request, |message| {
            found = Some(decode(message)?);
            Ok(())
        })?;
        found.ok_or(Error::Malformed { what, part: "link" })
    }

    /// The index of the link of a name; `ENODEV` if there is none.
    pub fn link_index(&mut self, name: &str) -> Result<u32, Error> {
        Ok(self.link(name)?.index)
    }

    /// Makes a link; it is down at first.
    pub fn create_link(&mut self, name: &str, kind: LinkKind<'_>) -> Result<(), Error> {
        let what = format!("create {} {name}", kind.word());
        let message = (RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
        self.change(&what, message, &header(0, 0, 0), |w| {
            w.text(IFLA_IFNAME, name);
            w.nest(IFLA_LINKINFO, |w| {
                w.text(IFLA_INFO_KIND, kind.word());
                if let LinkKind::Veth {
                    peer,
                    peer_namespace,
                } = kind
                {
                    w.nest(IFLA_INFO_DATA, |w| {
                        w.nest(VETH_INFO_PEER, |w| put_peer(w, peer, peer_namespace));
                    });
                }
            });
        })
    }

    /// Changes a link.
    pub fn change_link(&mut self, index: u32, change: LinkChange<'_>) -> Result<(), Error> {
        let what = format!("interface {index}: {change}");
        let (flags, mask) = match change {
            LinkChange::Up => (IFF_UP, IFF_UP),
            LinkChange::Down => (0, IFF_UP),
            LinkChange::Master(_)
            | LinkChange::NoMaster
            | LinkChange::Name(_)
            | LinkChange::Namespace(_)
            | LinkChange::Mtu(_)
            | LinkChange::Hardware(_) => (0, 0),
        };
        self.change(
            &what,
            (RTM_NEWLINK, 0),
            &header(index, flags, mask),
            |w| match change {
                LinkChange::Up | LinkChange::Down => {}
                LinkChange::Master(master) => w.ne32(IFLA_MASTER, master),
                LinkChange::NoMaster => w.ne32(IFLA_MASTER, 0),
                LinkChange::Name(name) => w.text(IFLA_IFNAME, name),
                LinkChange::Namespace(fd) => w.ne32(IFLA_NET_NS_FD, fd.as_raw_fd() as u32),
                LinkChange::Mtu(mtu) => w.ne32(IFLA_MTU, mtu),
                LinkChange::Hardware(address) => w.bytes(IFLA_ADDRESS, &address),
            },
        )
    }

    /// Removes a link; of a veth, both ends.
    pub fn delete_link(&mut self, index: u32) -> Result<(), Error> {
        let what = format!("delete interface {index}");
        self.change(&what, (RTM_DELLINK, 0), &header(index, 0, 0), |_| {})
    }
}

fn put_peer(w: &mut Writer<'_>, peer: &str, namespace: Option<BorrowedFd<'_>>) {
    w.raw(&header(0, 0, 0));
    w.text(IFLA_IFNAME, peer);
    if let Some(namespace) = namespace {
        w.ne32(IFLA_NET_NS_FD, namespace.as_raw_fd() as u32);
    }
}

fn header(index: u32, flags: u32, mask: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&mask.to_ne_bytes());
    header
}

pub(super) fn decode(message: &Message<'_>) -> Result<LinkInfo, &'static str> {
    let header = message.body.first_chunk::<HEADER>().ok_or("link header")?;
    let word = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let attrs = Attrs(&message.body[HEADER..]);
    let number = |kind| attrs.find(kind).and_then(|a| a.ne32());
    let kind = attrs
        .find(IFLA_LINKINFO)
        .and_then(|a| a.nested().find(IFLA_INFO_KIND));
    Ok(LinkInfo {
        index: word(4),
        name: attrs
            .find(IFLA_IFNAME)
            .and_then(|a| a.text())
            .ok_or("link name")?
            .to_owned(),
        flags: word(8),
        mtu: number(IFLA_MTU).unwrap_or(0),
        master: number(IFLA_MASTER),
        kind: kind.and_then(|a| a.text()).map(str::to_owned),
        hardware: attrs
            .find(IFLA_ADDRESS)
            .map_or(Vec::new(), |a| a.value.to_vec()),
    })
}
