//! Addresses (`struct ifaddrmsg`, `IFA_*`).

use std::net::IpAddr;

use super::{AF_INET, AF_INET6, AF_UNSPEC, Socket, family, ip, put_ip};
use crate::error::Error;
use crate::message::{Message, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Request};
use crate::wire::Attrs;

const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
/// Bytes of `struct ifaddrmsg`.
const HEADER: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// Flags of an address (`IFA_F_*`).
pub mod flag {
    /// Not the first address of its prefix on the interface.
    pub const SECONDARY: u32 = 0x01;
    /// Usable at once, without looking for duplicates.
    pub const NODAD: u32 = 0x02;
    /// A duplicate was found: not usable.
    pub const DADFAILED: u32 = 0x08;
    /// Not to be used for new connections.
    pub const DEPRECATED: u32 = 0x20;
    /// Duplicates are being looked for: not usable yet.
    pub const TENTATIVE: u32 = 0x40;
    /// Stays until it is removed.
    pub const PERMANENT: u32 = 0x80;
}

/// An address of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The address itself, not the far end of a point-to-point link.
    pub ip: IpAddr,
    /// Bits of its prefix.
    pub prefix: u8,
    /// Interface index.
    pub index: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// `RT_SCOPE_*`: 0 universe, 253 link, 254 host.
    pub scope: u8,
}

impl Socket {
    /// All addresses of both families.
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        let header = [AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0];
        let request = Request::new(RTM_GETADDR, NLM_F_DUMP, &header, |_| {});
        self.socket
            .dump("list addresses", request, |message, list| {
                if message.kind == RTM_NEWADDR {
                    list.extend(decode(message)?);
                }
                Ok(())
            })
    }

    /// Adds an address to an interface. IPv6 addresses are usable at once ([`flag::NODAD`]).
    pub fn add_address(&mut self, index: u32, ip: IpAddr, prefix: u8) -> Result<(), Error> {
        let what = format!("add address {ip}/{prefix} to interface {index}");
        let kind = (RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
        self.change(&what, kind, &header(index, ip, prefix), |w| {
            put_ip(w, IFA_LOCAL, ip);
            put_ip(w, IFA_ADDRESS, ip);
            if ip.is_ipv6() {
                w.ne32(IFA_FLAGS, flag::NODAD);
            }
        })
    }

    /// Removes an address from an interface.
    pub fn delete_address(&mut self, index: u32, ip: IpAddr, prefix: u8) -> Result<(), Error> {
        let what = format!("delete address {ip}/{prefix} from interface {index}");
        self.change(&what, (RTM_DELADDR, 0), &header(index, ip, prefix), |w| {
            put_ip(w, IFA_LOCAL, ip);
        })
    }
}

fn header(index: u32, ip: IpAddr, prefix: u8) -> [u8; HEADER] {
    let [a, b, c, d] = index.to_ne_bytes();
    [family(ip), prefix, 0, 0, a, b, c, d]
}

/// `None` for families other than the two.
pub(super) fn decode(message: &Message<'_>) -> Result<Option<Address>, &'static str> {
    let &[family, prefix, low_flags, scope, a, b, c, d] = message
        .body
        .first_chunk::<HEADER>()
        .ok_or("address header")?;
    if family != AF_INET && family != AF_INET6 {
        return Ok(None);
    }
    let attrs = Attrs(&message.body[HEADER..]);
    let own = attrs.find(IFA_LOCAL).or_else(|| attrs.find(IFA_ADDRESS));
    Ok(Some(Address {
        ip: own.and_then(ip).ok_or("address")?,
        prefix,
        index: u32::from_ne_bytes([a, b, c, d]),
        flags: attrs
            .find(IFA_FLAGS)
            .and_then(|a| a.ne32())
            .unwrap_or(u32::from(low_flags)),
        scope,
    }))
}
