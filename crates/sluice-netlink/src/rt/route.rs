//! Routes (`struct rtmsg`, `RTA_*`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{AF_INET, AF_INET6, AF_UNSPEC, Socket, family, ip, put_ip};
use crate::error::Error;
use crate::message::{Message, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, Request};
use crate::wire::{Attrs, Writer};

const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
/// Bytes of `struct rtmsg`.
const HEADER: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
const RTA_TABLE: u16 = 15;
/// `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`.
const TABLE_MAIN: u32 = 254;
const TABLE_LOCAL: u32 = 255;
/// `RTPROT_STATIC`.
const PROTOCOL_STATIC: u8 = 4;
/// `RT_SCOPE_*`.
const SCOPE_UNIVERSE: u8 = 0;
const SCOPE_LINK: u8 = 253;
const SCOPE_HOST: u8 = 254;

/// What a route does with its packets (`RTN_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RouteKind {
    /// Sends them on.
    #[default]
    Unicast,
    /// Delivers them here; lives in the local table.
    Local,
    /// Drops them in silence.
    Blackhole,
    /// Refuses them.
    Unreachable,
}

impl RouteKind {
    const fn raw(self) -> u8 {
        match self {
            RouteKind::Unicast => 1,
            RouteKind::Local => 2,
            RouteKind::Blackhole => 6,
            RouteKind::Unreachable => 7,
        }
    }

    const fn from_raw(raw: u8) -> Option<RouteKind> {
        match raw {
            1 => Some(RouteKind::Unicast),
            2 => Some(RouteKind::Local),
            6 => Some(RouteKind::Blackhole),
            7 => Some(RouteKind::Unreachable),
            _ => None,
        }
    }

    const fn table(self) -> u32 {
        match self {
            RouteKind::Local => TABLE_LOCAL,
            RouteKind::Unicast | RouteKind::Blackhole | RouteKind::Unreachable => TABLE_MAIN,
        }
    }
}

/// A route of the main table, or of the local table for [`RouteKind::Local`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    /// Where it leads.
    pub destination: IpAddr,
    /// Bits of the destination that count; 0 is the default route.
    pub prefix: u8,
    /// What it does.
    pub kind: RouteKind,
    /// Next hop.
    pub gateway: Option<IpAddr>,
    /// Interface index.
    pub index: Option<u32>,
    /// Source address of packets sent from here.
    pub source: Option<IpAddr>,
}

impl Route {
    /// To a prefix through an interface.
    pub fn via_link(destination: IpAddr, prefix: u8, index: u32) -> Route {
        Route {
            destination,
            prefix,
            kind: RouteKind::Unicast,
            gateway: None,
            index: Some(index),
            source: None,
        }
    }

    /// To a prefix through a next hop.
    pub fn via_gateway(destination: IpAddr, prefix: u8, gateway: IpAddr) -> Route {
        Route {
            gateway: Some(gateway),
            index: None,
            ..Route::via_link(destination, prefix, 0)
        }
    }

    /// Everything of the next hop's family.
    pub fn default_via(gateway: IpAddr) -> Route {
        Route::via_gateway(unspecified(family(gateway)), 0, gateway)
    }

    /// A prefix whose every address is this machine (`index` is usually the loopback's).
    pub fn local(destination: IpAddr, prefix: u8, index: u32) -> Route {
        Route {
            kind: RouteKind::Local,
            ..Route::via_link(destination, prefix, index)
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Route {
            destination,
            prefix,
            kind,
            gateway,
            index,
            source,
        } = self;
        match kind {
            RouteKind::Unicast => {}
            RouteKind::Local => f.write_str("local ")?,
            RouteKind::Blackhole => f.write_str("blackhole ")?,
            RouteKind::Unreachable => f.write_str("unreachable ")?,
        }
        write!(f, "{destination}/{prefix}")?;
        if let Some(gateway) = gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(index) = index {
            write!(f, " interface {index}")?;
        }
        if let Some(source) = source {
            write!(f, " source {source}")?;
        }
        Ok(())
    }
}

impl Socket {
    /// The unicast, local, blackhole and unreachable routes of the main and local tables.
    pub fn routes(&mut self) -> Result<Vec<Route>, Error> {
        let header = [AF_UNSPEC, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let request = Request::new(RTM_GETROUTE, NLM_F_DUMP, &header, |_| {});
        self.socket.dump("list routes", request, |message, list| {
            if message.kind == RTM_NEWROUTE {
                list.extend(decode(message)?);
            }
            Ok(())
        })
    }

    /// Adds a route.
    pub fn add_route(&mut self, route: &Route) -> Result<(), Error> {
        let kind = (RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL);
        self.change(&format!("add route {route}"), kind, &header(route), |w| {
            put(w, route)
        })
    }

    /// Removes a route.
    pub fn delete_route(&mut self, route: &Route) -> Result<(), Error> {
        let what = format!("delete route {route}");
        self.change(&what, (RTM_DELROUTE, 0), &header(route), |w| put(w, route))
    }
}

fn header(route: &Route) -> [u8; HEADER] {
    let Route {
        destination,
        prefix,
        kind,
        gateway,
        index: _,
        source: _,
    } = route;
    let scope = match (kind, gateway) {
        (RouteKind::Local, _) => SCOPE_HOST,
        (RouteKind::Unicast, None) => SCOPE_LINK,
        (RouteKind::Unicast, Some(_)) | (RouteKind::Blackhole | RouteKind::Unreachable, _) => {
            SCOPE_UNIVERSE
        }
    };
    let table = kind.table() as u8;
    let family = family(*destination);
    [
        family,
        *prefix,
        0,
        0,
        table,
        PROTOCOL_STATIC,
        scope,
        kind.raw(),
        0,
        0,
        0,
        0,
    ]
}

fn put(w: &mut Writer<'_>, route: &Route) {
    let Route {
        destination,
        prefix: _,
        kind,
        gateway,
        index,
        source,
    } = route;
    put_ip(w, RTA_DST, *destination);
    if let Some(gateway) = gateway {
        put_ip(w, RTA_GATEWAY, *gateway);
    }
    if let Some(index) = index {
        w.ne32(RTA_OIF, *index);
    }
    if let Some(source) = source {
        put_ip(w, RTA_PREFSRC, *source);
    }
    w.ne32(RTA_TABLE, kind.table());
}

const fn unspecified(family: u8) -> IpAddr {
    match family {
        AF_INET => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        _ => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// `None` for other tables, kinds and families.
pub(super) fn decode(message: &Message<'_>) -> Result<Option<Route>, &'static str> {
    let &[family, prefix, _, _, low_table, _, _, kind, ..] =
        message.body.first_chunk::<HEADER>().ok_or("route header")?;
    let attrs = Attrs(&message.body[HEADER..]);
    let table = attrs
        .find(RTA_TABLE)
        .and_then(|a| a.ne32())
        .unwrap_or(u32::from(low_table));
    let Some(kind) = RouteKind::from_raw(kind) else {
        return Ok(None);
    };
    let known_table = table == TABLE_MAIN || table == TABLE_LOCAL;
    if !known_table || (family != AF_INET && family != AF_INET6) {
        return Ok(None);
    }
    Ok(Some(Route {
        destination: attrs
            .find(RTA_DST)
            .and_then(ip)
            .unwrap_or(unspecified(family)),
        prefix,
        kind,
        gateway: attrs.find(RTA_GATEWAY).and_then(ip),
        index: attrs.find(RTA_OIF).and_then(|a| a.ne32()),
        source: attrs.find(RTA_PREFSRC).and_then(ip),
    }))
}
