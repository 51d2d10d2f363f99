//! Who changes the ruleset: the multicast group `NFNLGRP_NFTABLES`.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::netlink;

use super::dump::{split, table_of};
use super::{Family, SUBSYSTEM, msg};
use crate::error::Error;
use crate::message::{Message, Messages};
use crate::socket::{Received, Socket};

/// `NFNLGRP_NFTABLES` is 7, its bit in the mask of groups is one lower.
const GROUP: u32 = 1 << 6;
/// `enum nft_gen_attributes`.
const GEN_ID: u16 = 1;
/// The kernel fills in `task_pid_nr(current)`, which user space calls a thread id.
const GEN_PID: u16 = 2;
const GEN_PROCESS: u16 = 3;

/// What kind of object an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A table.
    Table,
    /// A chain.
    Chain,
    /// A rule.
    Rule,
    /// A set.
    Set,
    /// Elements of a set.
    Elements,
    /// A named object or a flow table.
    Other,
}

/// What happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// It was added or changed.
    New,
    /// It was removed.
    Gone,
}

/// Something happened to the ruleset of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An object changed.
    Object {
        /// What it is.
        kind: ObjectKind,
        /// What happened.
        change: Change,
        /// Family; `None` for inet, bridge and the like.
        family: Option<Family>,
        /// Table.
        table: String,
        /// Port id of the socket that asked for it; 0 is the kernel itself (a packet that
        /// changed a set, an element that timed out).
        portid: u32,
    },
    /// A batch was committed; the objects it changed come before.
    Generation {
        /// The new generation.
        id: u32,
        /// Id of the thread that did it; of a process with one thread, the process.
        thread: u32,
        /// The thread's name, which is the program's unless it was given another.
        process: String,
    },
    /// Events were lost: whatever they would have told must be looked up.
    Overflow,
}

/// A socket of events. Its descriptor is readable while events wait.
#[derive(Debug)]
pub struct Events {
    socket: Socket,
}

impl Events {
    /// A socket in the group, in the network namespace of the calling thread.
    pub fn open() -> Result<Self, Error> {
        let events = Events {
            socket: Socket::open(Some(netlink::NETFILTER))?,
        };
        events.join()?;
        Ok(events)
    }

    /// Joins the group (again).
    pub fn join(&self) -> Result<(), Error> {
        let step = "join the nf_tables group";
        self.socket
            .set_groups(GROUP)
            .map_err(|errno| Error::Open { step, errno })
    }

    /// Leaves the group, so that a huge change of one's own does not flood the socket. What
    /// waits stays readable.
    pub fn leave(&self) -> Result<(), Error> {
        let step = "leave the nf_tables group";
        self.socket
            .set_groups(0)
            .map_err(|errno| Error::Open { step, errno })
    }

    /// The same socket for another thread, which then can [`leave`](Events::leave) and
    /// [`join`](Events::join) while this one reads.
    pub fn share(&self) -> Result<Events, Error> {
        let step = "duplicate the descriptor";
        let socket = self
            .socket
            .share()
            .map_err(|errno| Error::Open { step, errno })?;
        Ok(Events { socket })
    }

    /// All events that wait; empty when there are none. Never blocks.
    pub fn read(&mut self) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        loop {
            match self.socket.notification("nf_tables events")? {
                Received::Empty => return Ok(events),
                Received::Overflow => events.push(Event::Overflow),
                Received::Datagram(bytes) => {
                    events.extend(Messages(bytes).filter_map(|message| decode(&message)));
                }
            }
        }
    }
}

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reads a notification.
pub(super) fn decode(message: &Message<'_>) -> Option<Event> {
    if message.kind & 0xff00 != SUBSYSTEM {
        return None;
    }
    let (family, attrs) = split(message).ok()?;
    let (kind, change) = match message.kind & 0xff {
        msg::NEWGEN => {
            return Some(Event::Generation {
                id: attrs.find(GEN_ID)?.be32()?,
                thread: attrs.find(GEN_PID).and_then(|a| a.be32()).unwrap_or(0),
                process: attrs
                    .find(GEN_PROCESS)
                    .and_then(|a| a.text())
                    .unwrap_or("")
                    .to_owned(),
            });
        }
        msg::NEWTABLE => (ObjectKind::Table, Change::New),
        msg::DELTABLE => (ObjectKind::Table, Change::Gone),
        msg::NEWCHAIN => (ObjectKind::Chain, Change::New),
        msg::DELCHAIN => (ObjectKind::Chain, Change::Gone),
        msg::NEWRULE => (ObjectKind::Rule, Change::New),
        msg::DELRULE => (ObjectKind::Rule, Change::Gone),
        msg::NEWSET => (ObjectKind::Set, Change::New),
        msg::DELSET => (ObjectKind::Set, Change::Gone),
        msg::NEWSETELEM => (ObjectKind::Elements, Change::New),
        msg::DELSETELEM => (ObjectKind::Elements, Change::Gone),
        msg::NEWOBJ | msg::NEWFLOWTABLE => (ObjectKind::Other, Change::New),
        msg::DELOBJ | msg::DELFLOWTABLE => (ObjectKind::Other, Change::Gone),
        _ => return None,
    };
    Some(Event::Object {
        kind,
        change,
        family: Family::from_raw(family),
        table: table_of(attrs).unwrap_or("").to_owned(),
        portid: message.portid,
    })
}

/// The generation that a reply to `NFT_MSG_GETGEN` tells.
pub(super) fn generation(message: &Message<'_>) -> Result<u32, &'static str> {
    let (_, attrs) = split(message)?;
    attrs
        .find(GEN_ID)
        .and_then(|a| a.be32())
        .ok_or("generation")
}
