//! Connections made to see where they arrive.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, connect, recv, send, sockopt};
use sluice_model::fact::Protocol;

use super::{Place, SandboxError, now};

/// One connection to be tried, or one datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who asks.
    pub from: Place,
    /// Source address; `None` leaves it to the kernel, or is the pod's address.
    pub source: Option<IpAddr>,
    /// Destination.
    pub to: SocketAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// How long to wait for the answer. A dropped packet costs all of it. Below about 1.2 s a
    /// refusal by ICMPv6 may pass for a drop: in one machine the message is back before connect(2)
    /// has let go of its socket, so that Linux ignores it (`TcpExtLockDroppedIcmps`) and heeds
    /// only the answer to the repeated SYN, a second later.
    pub timeout: Duration,
}

impl Probe {
    /// A probe that waits long enough to tell a refusal from a drop.
    pub fn new(from: Place, protocol: Protocol, to: SocketAddr) -> Probe {
        Probe {
            from,
            source: None,
            to,
            protocol,
            timeout: Duration::from_millis(1500),
        }
    }
}

/// How a probe ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// A server answered.
    Reached {
        /// The server's own address.
        endpoint: SocketAddr,
        /// Who asked, as the server saw it.
        source: SocketAddr,
    },
    /// ICMP port unreachable, or a TCP reset in answer to the first packet.
    Refused,
    /// Nothing came back.
    TimedOut,
    /// A connection was accepted, and ended before an answer came.
    Closed,
    /// The kernel or a router said that there is no way, with this errno.
    Unreachable(i32),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Reached { endpoint, source } => write!(f, "{endpoint} (source {source})"),
            Outcome::Refused => f.write_str("refused"),
            Outcome::TimedOut => f.write_str("timed out"),
            Outcome::Closed => f.write_str("closed without an answer"),
            Outcome::Unreachable(errno) => {
                write!(
                    f,
                    "unreachable: {}",
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
        }
    }
}

/// A connection that stays open.
#[derive(Debug)]
pub struct Connection {
    /// The server's own address.
    pub endpoint: SocketAddr,
    /// This connection's source as the server saw it.
    pub source: SocketAddr,
    socket: OwnedFd,
}

impl Connection {
    /// Sends a line and waits for it to come back; the error says how the connection ended.
    pub fn exchange(&self, timeout: Duration) -> Result<(), Outcome> {
        const LINE: &[u8] = b"are you there\n";
        send(&self.socket, LINE, SendFlags::NOSIGNAL).map_err(after_connect)?;
        let deadline = now() + timeout;
        let mut missing = LINE.len();
        while missing > 0 {
            wait_readable(&self.socket, deadline)?;
            let mut buffer = [0; LINE.len()];
            match recv(&self.socket, &mut buffer[..missing], RecvFlags::empty()) {
                Ok((0, _)) => return Err(Outcome::Closed),
                Ok((length, _)) => missing -= length,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(after_connect(errno)),
            }
        }
        Ok(())
    }
}

fn wait_readable(socket: &OwnedFd, deadline: Instant) -> Result<(), Outcome> {
    let left = deadline.saturating_duration_since(now());
    match poll(
        &mut [PollFd::new(socket, PollFlags::IN)],
        Some(&timespec(left)),
    ) {
        Ok(0) => Err(Outcome::TimedOut),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(Outcome::Unreachable(errno.raw_os_error())),
    }
}

fn timespec(left: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    }
}

/// A probe under way.
#[derive(Debug)]
pub(super) struct Flight {
    socket: OwnedFd,
    protocol: Protocol,
    phase: Phase,
    heard: Vec<u8>,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Listening,
    Landed(Outcome),
}

impl Flight {
    /// Sends the first packet of `probe` through `socket`.
    pub(super) fn launch(socket: OwnedFd, probe: &Probe) -> Flight {
        let first = connect(&socket, &probe.to);
        let phase = match (probe.protocol, first) {
            (Protocol::Tcp | Protocol::Sctp, Ok(()) | Err(Errno::INPROGRESS)) => Phase::Connecting,
            (Protocol::Udp, Ok(())) => match send(&socket, b"?", SendFlags::NOSIGNAL) {
                // EPERM is a filter's drop on the way out, a refusal of its own comes after it.
                Ok(_) | Err(Errno::PERM) => Phase::Listening,
                Err(errno) => Phase::Landed(before_connect(errno)),
            },
            (_, Err(errno)) => Phase::Landed(before_connect(errno)),
        };
        Flight {
            socket,
            protocol: probe.protocol,
            phase,
            heard: Vec::new(),
            deadline: now() + probe.timeout,
        }
    }

    fn landed(&self) -> Option<Outcome> {
        match self.phase {
            Phase::Landed(outcome) => Some(outcome),
            Phase::Connecting | Phase::Listening => None,
        }
    }

    /// Takes note of what poll(2) said of the socket.
    fn advance(&mut self) {
        if self.phase == Phase::Connecting {
            self.phase = match sockopt::socket_error(&self.socket) {
                Ok(Ok(())) => Phase::Listening,
                Ok(Err(errno)) | Err(errno) => Phase::Landed(before_connect(errno)),
            };
            return;
        }
        let mut buffer = [0; 256];
        let heard = recv(&self.socket, &mut buffer, RecvFlags::empty());
        self.phase = match (heard, self.protocol) {
            (Ok((0, _)), _) => Phase::Landed(Outcome::Closed),
            (Ok((length, _)), _) => {
                self.heard.extend_from_slice(&buffer[..length]);
                parse_greeting(&self.heard).map_or(Phase::Listening, Phase::Landed)
            }
            (Err(Errno::AGAIN | Errno::INTR), _) => Phase::Listening,
            (Err(errno), Protocol::Udp) => Phase::Landed(before_connect(errno)),
            (Err(errno), Protocol::Tcp | Protocol::Sctp) => Phase::Landed(after_connect(errno)),
        };
    }

    /// Ends the flight: its outcome, and for an answered one the open connection.
    pub(super) fn finish(self) -> Result<Connection, Outcome> {
        match self.landed() {
            Some(Outcome::Reached { endpoint, source }) => Ok(Connection {
                endpoint,
                source,
                socket: self.socket,
            }),
            Some(other) => Err(other),
            None => Err(Outcome::TimedOut),
        }
    }
}

/// Waits until every flight has landed or its time is over.
pub(super) fn fly(flights: &mut [Flight]) -> Result<(), SandboxError> {
    loop {
        let time = now();
        for flight in flights.iter_mut() {
            if flight.landed().is_none() && flight.deadline <= time {
                flight.phase = Phase::Landed(Outcome::TimedOut);
            }
        }
        let up: Vec<usize> = (0..flights.len())
            .filter(|&at| flights[at].landed().is_none())
            .collect();
        let Some(next) = up.iter().map(|&at| flights[at].deadline).min() else {
            return Ok(());
        };
        let mut watched: Vec<PollFd<'_>> = up
            .iter()
            .map(|&at| {
                let wanted = match flights[at].phase {
                    Phase::Connecting => PollFlags::OUT,
                    Phase::Listening | Phase::Landed(_) => PollFlags::IN,
                };
                PollFd::new(&flights[at].socket, wanted)
            })
            .collect();
        match poll(
            &mut watched,
            Some(&timespec(next.saturating_duration_since(time))),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(SandboxError::Socket {
                    operation: "wait for answers",
                    cause: errno.into(),
                });
            }
        }
        let stirred: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (&at, _) in up.iter().zip(stirred).filter(|(_, stirred)| *stirred) {
            flights[at].advance();
        }
    }
}

/// An error in answer to the first packet.
fn before_connect(errno: Errno) -> Outcome {
    match errno {
        Errno::CONNREFUSED | Errno::CONNRESET => Outcome::Refused,
        Errno::TIMEDOUT => Outcome::TimedOut,
        other => Outcome::Unreachable(other.raw_os_error()),
    }
}

/// An error on a connection that was accepted.
fn after_connect(errno: Errno) -> Outcome {
    match errno {
        Errno::CONNRESET | Errno::CONNREFUSED | Errno::PIPE => Outcome::Closed,
        Errno::TIMEDOUT => Outcome::TimedOut,
        other => Outcome::Unreachable(other.raw_os_error()),
    }
}

/// A server's line, once it is complete. Anything else on the line is no answer of ours: that
/// connection counts as closed.
fn parse_greeting(heard: &[u8]) -> Option<Outcome> {
    let end = heard.iter().position(|&byte| byte == b'\n')?;
    let line = std::str::from_utf8(&heard[..end]).ok();
    let addresses = line.and_then(|line| {
        let mut words = line.split(' ');
        let mut address = || {
            let ip: IpAddr = words.next()?.parse().ok()?;
            Some(SocketAddr::new(ip, words.next()?.parse().ok()?))
        };
        Some((address()?, address()?))
    });
    Some(
        addresses.map_or(Outcome::Closed, |(endpoint, source)| Outcome::Reached {
            endpoint,
            source,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::{Outcome, parse_greeting};

    #[test]
    fn a_greeting_counts_once_its_line_is_complete() {
        assert_eq!(parse_greeting(b"198.51.100.1 8080 192.0.2.200 4"), None);
        assert_eq!(
            parse_greeting(b"fd00:10:1::1 8080 2001:db8:1::200 40000\n"),
            Some(Outcome::Reached {
                endpoint: "[fd00:10:1::1]:8080".parse().unwrap(),
                source: "[2001:db8:1::200]:40000".parse().unwrap(),
            })
        );
    }

    #[test]
    fn a_strange_server_is_not_taken_for_an_endpoint() {
        assert_eq!(
            parse_greeting(b"HTTP/1.1 400 Bad Request\n"),
            Some(Outcome::Closed)
        );
        assert_eq!(parse_greeting(b"\xff\xfe\n"), Some(Outcome::Closed));
    }
}
