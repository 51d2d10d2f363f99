//! Whether anything changed.

use std::os::fd::{AsFd, BorrowedFd};

use crate::error::Error;
use crate::socket::{Received, Socket};

/// `RTMGRP_*` masks of `linux/rtnetlink.h`.
const GROUP_LINK: u32 = 0x1;
const GROUP_IPV4_ADDRESS: u32 = 0x10;
const GROUP_IPV6_ADDRESS: u32 = 0x100;

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// Addresses of both families.
    Addresses,
    /// Addresses and links.
    AddressesAndLinks,
}

/// A socket of change notifications. Its descriptor is readable after a change.
///
/// Only that something changed is told: the state is to be listed anew, which is right also
/// where notifications were lost.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Watches the network namespace of the calling thread. Open it before the first list, or a
    /// change in between is missed.
    pub fn open(topic: Topic) -> Result<Self, Error> {
        let socket = Socket::open(None)?;
        let addresses = GROUP_IPV4_ADDRESS | GROUP_IPV6_ADDRESS;
        let mask = match topic {
            Topic::Addresses => addresses,
            Topic::AddressesAndLinks => addresses | GROUP_LINK,
        };
        let step = "join the address groups";
        socket
            .set_groups(mask)
            .map_err(|errno| Error::Open { step, errno })?;
        Ok(Watch { socket })
    }

    /// Whether something changed since the last call. Never blocks.
    pub fn changed(&mut self) -> Result<bool, Error> {
        let mut changed = false;
        loop {
            match self.socket.notification("address changes")? {
                Received::Empty => return Ok(changed),
                Received::Datagram(_) | Received::Overflow => changed = true,
            }
        }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
