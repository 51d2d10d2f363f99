//! The sandbox itself.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

use ipnet::IpNet;
use sluice_model::fact::Protocol;

use super::echo::Echo;
use super::probe::{Connection, Flight, Outcome, Probe, fly};
use super::{Namespace, Place, SandboxError, WorldSpec, socket, wiring};

/// Probes that are under way at the same time, at most: each holds a descriptor.
const IN_FLIGHT: usize = 256;

/// A built sandbox. Dropping it removes everything it made.
#[derive(Debug)]
pub struct World {
    // Before the namespaces, so that the servers' sockets are closed first.
    echo: Echo,
    spec: WorldSpec,
    node: Namespace,
    outside: Namespace,
    others: Namespace,
    pods: Vec<Namespace>,
    pod_of: HashMap<IpAddr, usize>,
}

impl World {
    /// Builds the sandbox. Needs the right to make network namespaces, see
    /// [`enter_user_namespace`](super::enter_user_namespace).
    pub fn create(spec: &WorldSpec) -> Result<World, SandboxError> {
        let spec = spec.clone().with_usable_families()?;
        let echo = Echo::start().map_err(|cause| SandboxError::Socket {
            operation: "start the echo servers",
            cause,
        })?;
        let mut pods = Vec::new();
        let mut pod_of = HashMap::new();
        for (number, addresses) in spec.local_pods.iter().enumerate() {
            pods.push(Namespace::create(&format!("pod{number}"))?);
            pod_of.extend(addresses.iter().map(|address| (*address, number)));
        }
        let world = World {
            echo,
            node: Namespace::create("node")?,
            outside: Namespace::create("outside")?,
            others: Namespace::create("others")?,
            pods,
            pod_of,
            spec,
        };
        wiring::connect(&world)?;
        Ok(world)
    }

    /// What was built: the specification without families that this kernel or the node lacks.
    pub fn spec(&self) -> &WorldSpec {
        &self.spec
    }

    /// The namespace in which `place` acts.
    pub fn namespace(&self, place: Place) -> Result<&Namespace, SandboxError> {
        match place {
            Place::Node => Ok(&self.node),
            Place::Outside => Ok(&self.outside),
            Place::OtherNode => Ok(&self.others),
            Place::Pod(ip) => match self.pod_of.get(&ip) {
                Some(&number) => Ok(&self.pods[number]),
                None if self.is_remote_pod(ip) => Ok(&self.others),
                None => Err(SandboxError::NobodyHas(ip)),
            },
        }
    }

    /// The namespaces of the node's pods, in the order of [`WorldSpec::local_pods`].
    pub(super) fn pods(&self) -> &[Namespace] {
        &self.pods
    }

    fn is_remote_pod(&self, ip: IpAddr) -> bool {
        self.spec
            .remote_pods
            .iter()
            .any(|range| range.contains(&ip))
    }

    /// Whose address this is.
    pub fn owner(&self, ip: IpAddr) -> Result<Place, SandboxError> {
        if self.spec.node.iter().any(|own| own.addr() == ip) {
            Ok(Place::Node)
        } else if self.spec.outside.contains(&ip) {
            Ok(Place::Outside)
        } else if self.spec.other_nodes.contains(&ip) {
            Ok(Place::OtherNode)
        } else {
            self.namespace(Place::Pod(ip)).map(|_| Place::Pod(ip))
        }
    }

    /// Runs `job` in the namespace of `place` and waits for it; see [`Namespace::run`].
    pub fn run_in<T, F>(&self, place: Place, job: F) -> Result<T, SandboxError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.namespace(place)?.run(job)
    }

    /// A descriptor of the namespace of `place`.
    pub fn netns_fd(&self, place: Place) -> Result<BorrowedFd<'_>, SandboxError> {
        self.namespace(place).map(Namespace::fd)
    }

    /// Serves on an address of the sandbox. The server answers with its own address and the
    /// peer's. Fails with EPROTONOSUPPORT for SCTP where the kernel has no such sockets.
    pub fn serve(&self, protocol: Protocol, address: SocketAddr) -> Result<(), SandboxError> {
        let failed = |cause: rustix::io::Errno| SandboxError::Serve {
            protocol,
            address,
            cause: cause.into(),
        };
        let place = self.owner(address.ip())?;
        let opened = self.run_in(place, move || socket::serve_at(protocol, address))?;
        let socket = opened.map_err(failed)?;
        self.echo.add(protocol, address, socket).map_err(failed)
    }

    /// Ends every server on this address and its connections, as a pod that dies, and says how
    /// many servers they were. The address itself stays: connections to it are refused.
    pub fn stop_serving(&self, ip: IpAddr) -> usize {
        self.echo.stop(ip)
    }

    /// What is served at this moment, sorted.
    pub fn served(&self) -> Vec<(SocketAddr, Protocol)> {
        self.echo.served()
    }

    /// Makes one connection and says how it ended.
    pub fn probe(&self, probe: &Probe) -> Result<Outcome, SandboxError> {
        let outcomes = self.probe_all(std::slice::from_ref(probe))?;
        Ok(outcomes[0])
    }

    /// Makes many connections, at the same time as far as possible; outcomes in the same order.
    pub fn probe_all(&self, probes: &[Probe]) -> Result<Vec<Outcome>, SandboxError> {
        let mut outcomes = Vec::with_capacity(probes.len());
        for group in probes.chunks(IN_FLIGHT) {
            let connected = self.connect_all(group)?;
            outcomes.extend(connected.into_iter().map(|connection| match connection {
                Ok(open) => Outcome::Reached {
                    endpoint: open.endpoint,
                    source: open.source,
                },
                Err(other) => other,
            }));
        }
        Ok(outcomes)
    }

    /// Makes one connection and keeps it open.
    pub fn connect(&self, probe: &Probe) -> Result<Result<Connection, Outcome>, SandboxError> {
        let mut connected = self.connect_all(std::slice::from_ref(probe))?;
        Ok(connected.pop().unwrap_or(Err(Outcome::TimedOut)))
    }

    fn connect_all(
        &self,
        probes: &[Probe],
    ) -> Result<Vec<Result<Connection, Outcome>>, SandboxError> {
        let mut flights = Vec::with_capacity(probes.len());
        for probe in probes {
            flights.push(Flight::launch(self.client_socket(probe)?, probe));
        }
        fly(&mut flights)?;
        Ok(flights.into_iter().map(Flight::finish).collect())
    }

    fn client_socket(&self, probe: &Probe) -> Result<OwnedFd, SandboxError> {
        let (protocol, to) = (probe.protocol, probe.to);
        let source = self.source(probe)?;
        let opened = self.run_in(probe.from, move || match source {
            Some(ip) => socket::open_at(protocol, SocketAddr::new(ip, 0)),
            None => socket::open(protocol, to),
        })?;
        opened.map_err(|cause| SandboxError::Socket {
            operation: "open the socket of a probe",
            cause: io::Error::from(cause),
        })
    }

    /// The source address that a probe must bind to. A pod asks from the address by which it was
    /// named, or from its address of the destination's family.
    fn source(&self, probe: &Probe) -> Result<Option<IpAddr>, SandboxError> {
        let same_family = |ip: &IpAddr| ip.is_ipv4() == probe.to.is_ipv4();
        if probe.source.is_some() {
            return Ok(probe.source);
        }
        match probe.from {
            Place::Node | Place::Outside => Ok(None),
            // The namespace of other nodes has the addresses of their pods too.
            Place::OtherNode => Ok(self.spec.other_nodes.iter().copied().find(same_family)),
            Place::Pod(ip) if same_family(&ip) => Ok(Some(ip)),
            Place::Pod(ip) => {
                let own = self
                    .pod_of
                    .get(&ip)
                    .map(|&number| &self.spec.local_pods[number]);
                let twin = own.into_iter().flatten().copied().find(same_family);
                twin.map(Some).ok_or(SandboxError::NoSource {
                    from: probe.from,
                    to: probe.to,
                })
            }
        }
    }

    /// The node's address of a family: what a masqueraded source looks like.
    pub fn node_address(&self, like: IpAddr) -> Option<IpAddr> {
        let own = self.spec.node.iter().map(IpNet::addr);
        own.into_iter()
            .find(|address| address.is_ipv4() == like.is_ipv4())
    }
}
