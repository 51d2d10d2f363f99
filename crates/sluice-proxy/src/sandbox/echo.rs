//! Servers that say who was asked and by whom: one thread for all namespaces.
//!
//! The answer to a connection or a datagram is `<own ip> <own port> <peer ip> <peer port>` and a
//! line feed. A connection then stays open and returns what it is sent.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, SocketAddrAny, SocketFlags, accept_with, getpeername, recv, recvfrom,
    send, sendto,
};
use sluice_model::fact::Protocol;

/// The epoll token of the descriptor that ends the thread.
const STOP: u64 = 0;

/// All servers of a sandbox.
#[derive(Debug)]
pub(super) struct Echo {
    shared: Arc<Shared>,
    stop: OwnedFd,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    epoll: OwnedFd,
    sockets: Mutex<Sockets>,
}

#[derive(Debug, Default)]
struct Sockets {
    last: u64,
    by_token: HashMap<u64, Server>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    protocol: Protocol,
    role: Role,
    socket: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Accepts connections.
    Listener,
    /// One accepted connection.
    Connection,
    /// Answers datagrams.
    Datagrams,
}

impl Echo {
    /// Starts the thread; it serves nothing yet.
    pub(super) fn start() -> io::Result<Echo> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let token = epoll::EventData::new_u64(STOP);
        epoll::add(&epoll, &stop, token, epoll::EventFlags::IN)?;
        let shared = Arc::new(Shared {
            epoll,
            sockets: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("echo".into())
            .stack_size(256 << 10)
            .spawn(move || own.run())?;
        Ok(Echo {
            shared,
            stop,
            thread: Some(thread),
        })
    }

    /// Serves on a bound socket (and, for TCP and SCTP, a listening one).
    pub(super) fn add(
        &self,
        protocol: Protocol,
        address: SocketAddr,
        socket: OwnedFd,
    ) -> Result<(), Errno> {
        let role = match protocol {
            Protocol::Tcp | Protocol::Sctp => Role::Listener,
            Protocol::Udp => Role::Datagrams,
        };
        self.shared.lock().insert(
            &self.shared.epoll,
            Server {
                address,
                protocol,
                role,
                socket,
            },
        )
    }

    /// Ends the servers on this address, with their connections, and says how many they were.
    pub(super) fn stop(&self, ip: IpAddr) -> usize {
        let mut sockets = self.shared.lock();
        let mut servers = 0;
        sockets.by_token.retain(|_, server| {
            let keep = server.address.ip() != ip;
            servers += usize::from(!keep && server.role != Role::Connection);
            keep
        });
        servers
    }

    /// Addresses that are served, sorted.
    pub(super) fn served(&self) -> Vec<(SocketAddr, Protocol)> {
        let sockets = self.shared.lock();
        let servers = sockets.by_token.values();
        let mut served: Vec<_> = servers
            .filter(|server| server.role != Role::Connection)
            .map(|server| (server.address, server.protocol))
            .collect();
        served.sort_unstable();
        served
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let told = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let (Ok(_), Some(thread)) = (told, self.thread.take())
            && thread.join().is_err()
        {
            tracing::warn!("the thread of the echo servers panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(256);
        loop {
            events.clear();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, buffer, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let mut sockets = self.lock();
            for event in &events {
                let token = event.data.u64();
                if token == STOP {
                    return;
                }
                sockets.serve(&self.epoll, token);
            }
        }
    }
}

impl Sockets {
    fn insert(&mut self, epoll: &OwnedFd, server: Server) -> Result<(), Errno> {
        self.last += 1;
        let token = epoll::EventData::new_u64(self.last);
        epoll::add(epoll, &server.socket, token, epoll::EventFlags::IN)?;
        self.by_token.insert(self.last, server);
        Ok(())
    }

    /// Level-triggered: what is left over is reported again.
    fn serve(&mut self, epoll: &OwnedFd, token: u64) {
        let Some(server) = self.by_token.get(&token) else {
            return;
        };
        match server.role {
            Role::Listener => {
                // A connection that cannot be watched is closed: its peer sees that.
                if let Some(connection) = server.accept()
                    && let Err(errno) = self.insert(epoll, connection)
                {
                    tracing::warn!(%errno, "an echo server lost a connection");
                }
            }
            Role::Connection => {
                if !server.give_back() {
                    self.by_token.remove(&token);
                }
            }
            Role::Datagrams => server.answer(),
        }
    }
}

impl Server {
    fn accept(&self) -> Option<Server> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = accept_with(&self.socket, flags).ok()?;
        let line = greeting(self.address, getpeername(&socket).ok()?)?;
        send(&socket, line.as_bytes(), SendFlags::NOSIGNAL).ok()?;
        Some(Server {
            address: self.address,
            protocol: self.protocol,
            role: Role::Connection,
            socket,
        })
    }

    /// Returns what came in; false once the connection is over.
    fn give_back(&self) -> bool {
        let mut buffer = [0; 4096];
        match recv(&self.socket, &mut buffer, RecvFlags::empty()) {
            Ok((0, _)) => false,
            Ok((length, _)) => send(&self.socket, &buffer[..length], SendFlags::NOSIGNAL).is_ok(),
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    fn answer(&self) {
        let mut buffer = [0; 2048];
        // An error here is an ICMP message about an earlier answer; there is nobody to tell.
        let Ok((_, _, peer)) = recvfrom(&self.socket, &mut buffer, RecvFlags::empty()) else {
            return;
        };
        if let Some(peer) = &peer
            && let Some(line) = greeting(self.address, Some(peer.clone()))
            && let Err(errno) = sendto(&self.socket, line.as_bytes(), SendFlags::NOSIGNAL, peer)
        {
            // The asker sees a time-out.
            tracing::warn!(%errno, address = %self.address, "an echo server could not answer");
        }
    }
}

fn greeting(own: SocketAddr, peer: Option<SocketAddrAny>) -> Option<String> {
    let peer = SocketAddr::try_from(peer?).ok()?;
    Some(format!(
        "{} {} {} {}\n",
        own.ip(),
        own.port(),
        peer.ip(),
        peer.port()
    ))
}
