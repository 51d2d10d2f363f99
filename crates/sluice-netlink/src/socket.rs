//! A netlink socket that is opened once and kept.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt;
use rustix::net::{self, AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::error::Error;
use crate::message::{
    Answer, Message, Messages, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, Request,
};
use crate::sys;

/// `linux/netlink.h`.
const NETLINK_CAP_ACK: i32 = 10;
const NETLINK_EXT_ACK: i32 = 11;

/// The kernel fills at most 32 KiB per dump datagram; notifications may be larger.
const DATAGRAM: usize = 256 * 1024;
/// Room for the replies to a batch with thousands of errors.
const RECEIVE_BUFFER: usize = 8 * 1024 * 1024;
const SEND_BUFFER: usize = 1024 * 1024;
/// Replies are there when the send returns, or the kernel is not going to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a list is read again because it changed meanwhile.
pub(crate) const TRIES: u32 = 20;

/// A connected netlink socket with its receive buffer.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    sequence: u32,
    portid: u32,
    send_buffer: usize,
    datagram: Vec<u8>,
}

/// Outcome of one non-blocking receive.
pub(crate) enum Received<'a> {
    Datagram(&'a [u8]),
    /// Nothing is waiting.
    Empty,
    /// Messages were lost.
    Overflow,
}

fn opening(step: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Open { step, errno }
}

impl Socket {
    /// A socket of a netlink protocol (`None` is `NETLINK_ROUTE`).
    pub(crate) fn open(protocol: Option<Protocol>) -> Result<Self, Error> {
        let fd = net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )
        .map_err(opening("socket"))?;
        net::bind(&fd, &SocketAddrNetlink::new(0, 0)).map_err(opening("bind"))?;
        // A connected socket takes messages from the kernel only, whoever else knows its port.
        net::connect(&fd, &SocketAddrNetlink::new(0, 0)).map_err(opening("connect"))?;
        let address = net::getsockname(&fd).map_err(opening("getsockname"))?;
        let address = SocketAddrNetlink::try_from(address).map_err(opening("getsockname"))?;
        sys::enable(fd.as_fd(), NETLINK_EXT_ACK).map_err(opening("NETLINK_EXT_ACK"))?;
        sys::enable(fd.as_fd(), NETLINK_CAP_ACK).map_err(opening("NETLINK_CAP_ACK"))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(PATIENCE))
            .map_err(opening("SO_RCVTIMEO"))?;
        let mut socket = Socket {
            fd,
            sequence: 0,
            portid: address.pid(),
            send_buffer: 0,
            datagram: vec![0; DATAGRAM],
        };
        socket
            .grow_receive_buffer(RECEIVE_BUFFER)
            .map_err(opening("SO_RCVBUF"))?;
        socket
            .grow_send_buffer(SEND_BUFFER)
            .map_err(opening("SO_SNDBUF"))?;
        Ok(socket)
    }

    /// The address by which the kernel names this socket in what it tells others.
    pub(crate) fn portid(&self) -> u32 {
        self.portid
    }

    /// Joins exactly the multicast groups of this mask (bit `n - 1` is group `n`).
    /// The same socket under another descriptor.
    pub(crate) fn share(&self) -> Result<Socket, Errno> {
        Ok(Socket {
            fd: rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?,
            sequence: self.sequence,
            portid: self.portid,
            send_buffer: self.send_buffer,
            datagram: Vec::new(),
        })
    }

    pub(crate) fn set_groups(&self, mask: u32) -> Result<(), Errno> {
        net::bind(&self.fd, &SocketAddrNetlink::new(self.portid, mask))
    }

    pub(crate) fn grow_receive_buffer(&self, size: usize) -> Result<(), Errno> {
        // The forced variant needs CAP_NET_ADMIN of the initial user namespace; without it the
        // system's limit applies.
        sockopt::set_socket_recv_buffer_size_force(&self.fd, size)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&self.fd, size))
    }

    fn grow_send_buffer(&mut self, size: usize) -> Result<(), Errno> {
        sockopt::set_socket_send_buffer_size_force(&self.fd, size)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&self.fd, size))?;
        self.send_buffer = size;
        Ok(())
    }

    /// Sends parts as one datagram, after making room for it.
    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> Result<(), Errno> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > self.send_buffer {
            self.grow_send_buffer(length.next_power_of_two())?;
        }
        let parts: Vec<_> = parts
            .iter()
            .map(|part| std::io::IoSlice::new(part))
            .collect();
        let sent = retry_on_intr(|| {
            net::sendmsg(
                &self.fd,
                &parts,
                &mut net::SendAncillaryBuffer::default(),
                SendFlags::empty(),
            )
        })?;
        if sent == length {
            Ok(())
        } else {
            Err(Errno::MSGSIZE)
        }
    }

    /// Takes a datagram if one is waiting.
    pub(crate) fn receive_now(&mut self) -> Result<Received<'_>, Errno> {
        match self.receive(RecvFlags::DONTWAIT) {
            Ok(length) => Ok(Received::Datagram(&self.datagram[..length])),
            Err(Errno::AGAIN) => Ok(Received::Empty),
            Err(Errno::NOBUFS) => Ok(Received::Overflow),
            Err(errno) => Err(errno),
        }
    }

    /// The same for a socket of notifications: errors name what it listens to.
    pub(crate) fn notification(&mut self, what: &str) -> Result<Received<'_>, Error> {
        self.receive_now().map_err(|errno| Error::Transport {
            what: what.to_owned(),
            step: "receive",
            errno,
        })
    }

    fn receive(&mut self, flags: RecvFlags) -> Result<usize, Errno> {
        let (_, length) = retry_on_intr(|| {
            net::recv(&self.fd, &mut self.datagram[..], flags | RecvFlags::TRUNC)
        })?;
        // A datagram that was cut is a datagram that was lost.
        if length > self.datagram.len() {
            Err(Errno::NOBUFS)
        } else {
            Ok(length)
        }
    }

    /// Throws away what is waiting: replies to a request that was given up.
    pub(crate) fn drain(&mut self) -> Result<(), Errno> {
        while !matches!(self.receive_now()?, Received::Empty) {}
        Ok(())
    }

    /// Sends a request and calls `each` for every message of the reply, which ends with an
    /// acknowledgement or the end of a list. `Ok(false)` when the list changed meanwhile.
    fn exchange(
        &mut self,
        what: &str,
        request: &mut Request,
        mut each: impl FnMut(&Message<'_>) -> Result<(), &'static str>,
    ) -> Result<bool, Error> {
        let transport = |step, errno| Error::Transport {
            what: what.to_owned(),
            step,
            errno,
        };
        if request.too_long {
            return Err(Error::TooLong {
                what: what.to_owned(),
            });
        }
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        request.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.drain().map_err(|errno| transport("receive", errno))?;
        self.send(&[&request.bytes])
            .map_err(|errno| transport("send", errno))?;
        let mut consistent = true;
        let mut malformed = None;
        loop {
            let length = self
                .receive(RecvFlags::empty())
                .map_err(|errno| transport("receive", errno))?;
            for message in Messages(&self.datagram[..length]) {
                if message.sequence != sequence {
                    continue;
                }
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_ERROR => {
                        return match message.answer() {
                            Some(Answer { errno: None, .. }) => finish(what, consistent, malformed),
                            Some(Answer {
                                errno: Some(errno),
                                text,
                                ..
                            }) => Err(Error::Refused {
                                what: what.to_owned(),
                                errno,
                                text,
                            }),
                            None => finish(what, consistent, Some("error")),
                        };
                    }
                    NLMSG_DONE => {
                        return match message.done_error() {
                            None => finish(what, consistent, malformed),
                            Some(errno) => Err(Error::Refused {
                                what: what.to_owned(),
                                errno,
                                text: None,
                            }),
                        };
                    }
                    // A list is read to its end whatever is in it: the kernel refuses another
                    // one while this one is open.
                    _ => malformed = malformed.or(each(&message).err()),
                }
            }
        }
    }

    /// A request that is acknowledged, with at most a few messages of reply.
    pub(crate) fn request(
        &mut self,
        what: &str,
        mut request: Request,
        each: impl FnMut(&Message<'_>) -> Result<(), &'static str>,
    ) -> Result<(), Error> {
        self.exchange(what, &mut request, each).map(|_| ())
    }

    /// Reads a list, again from its start when it changed while it was read.
    pub(crate) fn dump<T>(
        &mut self,
        what: &str,
        mut request: Request,
        mut decode: impl FnMut(&Message<'_>, &mut Vec<T>) -> Result<(), &'static str>,
    ) -> Result<Vec<T>, Error> {
        for _ in 0..TRIES {
            if let Some(list) = self.dump_once(what, &mut request, &mut decode)? {
                return Ok(list);
            }
        }
        Err(Error::Interrupted {
            what: what.to_owned(),
            tries: TRIES,
        })
    }

    /// Reads a list; `None` when the kernel says that it changed meanwhile.
    pub(crate) fn dump_once<T>(
        &mut self,
        what: &str,
        request: &mut Request,
        mut decode: impl FnMut(&Message<'_>, &mut Vec<T>) -> Result<(), &'static str>,
    ) -> Result<Option<Vec<T>>, Error> {
        let mut list = Vec::new();
        let consistent = self.exchange(what, request, |message| decode(message, &mut list))?;
        Ok(consistent.then_some(list))
    }
}

fn finish(what: &str, consistent: bool, malformed: Option<&'static str>) -> Result<bool, Error> {
    match malformed {
        Some(part) if consistent => Err(Error::Malformed {
            what: what.to_owned(),
            part,
        }),
        Some(_) | None => Ok(consistent),
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
