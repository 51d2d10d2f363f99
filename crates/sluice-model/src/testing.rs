//! Short ways to write facts down in tests, here and in the crates that stand on this one.
//!
//! Text that is no address or prefix panics: it is a mistake in the test.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::fact::{
    Conditions, Endpoint, Fact, Family, Hints, Ingress, Kind, Node, Protocol, Service, ServicePort,
    ServiceType, Slice, SlicePort, TrafficPolicy, parse_ip, parse_net,
};
use crate::name::{Name, ObjectKey};

/// An address from text.
pub fn ip(text: &str) -> IpAddr {
    parse_ip(text).expect("tests write valid addresses")
}

/// A prefix from text.
pub fn net(text: &str) -> IpNet {
    parse_net(text).expect("tests write valid prefixes")
}

/// A key from `namespace/name`; without a slash the namespace is `default`.
pub fn key(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    ObjectKey::new(namespace, name)
}

/// Facts as complete first lists of Services and slices: a cluster that takes them in is synced.
pub fn listed(facts: impl IntoIterator<Item = Fact>) -> Vec<Fact> {
    let mut all = vec![Fact::Begin(Kind::Services), Fact::Begin(Kind::Slices)];
    all.extend(facts);
    all.extend([Fact::Synced(Kind::Services), Fact::Synced(Kind::Slices)]);
    all
}

/// A Service under construction.
#[derive(Clone, Debug)]
pub struct ServiceBuilder {
    key: ObjectKey,
    /// As built so far; fields without a method of their own are set here.
    pub service: Service,
}

/// Starts a Service of type ClusterIP without addresses and ports.
pub fn service(name: &str) -> ServiceBuilder {
    ServiceBuilder {
        key: key(name),
        service: Service::default(),
    }
}

impl ServiceBuilder {
    /// Adds a cluster IP and its family.
    pub fn cluster_ip(mut self, text: &str) -> Self {
        self.service.families.push(Family::of(ip(text)));
        self.service.cluster_ips.push(ip(text));
        self
    }

    /// Adds an external IP.
    pub fn external_ip(mut self, text: &str) -> Self {
        self.service.external_ips.push(ip(text));
        self
    }

    /// Makes it a LoadBalancer and adds an address with ipMode VIP.
    pub fn load_balancer(mut self, text: &str) -> Self {
        self.service.service_type = ServiceType::LoadBalancer;
        self.service.ingress.push(Ingress {
            ip: ip(text),
            proxied: false,
        });
        self
    }

    /// Makes it a LoadBalancer and adds an address with ipMode Proxy.
    pub fn proxied_load_balancer(mut self, text: &str) -> Self {
        self.service.service_type = ServiceType::LoadBalancer;
        self.service.ingress.push(Ingress {
            ip: ip(text),
            proxied: true,
        });
        self
    }

    /// Adds a port; an unnamed one has an empty name.
    pub fn port(mut self, protocol: Protocol, name: &str, port: u16) -> Self {
        self.service.ports.push(ServicePort {
            name: name.into(),
            protocol,
            port,
            node_port: 0,
        });
        self
    }

    /// Adds a TCP port.
    pub fn tcp(self, name: &str, port: u16) -> Self {
        self.port(Protocol::Tcp, name, port)
    }

    /// Adds a UDP port.
    pub fn udp(self, name: &str, port: u16) -> Self {
        self.port(Protocol::Udp, name, port)
    }

    /// Gives the last port a node port; a ClusterIP service becomes a NodePort one.
    pub fn node_port(mut self, node_port: u16) -> Self {
        if self.service.service_type == ServiceType::ClusterIp {
            self.service.service_type = ServiceType::NodePort;
        }
        if let Some(port) = self.service.ports.last_mut() {
            port.node_port = node_port;
        }
        self
    }

    /// Sets externalTrafficPolicy Local.
    pub fn external_local(mut self) -> Self {
        self.service.external_policy = TrafficPolicy::Local;
        self
    }

    /// Sets internalTrafficPolicy Local.
    pub fn internal_local(mut self) -> Self {
        self.service.internal_policy = TrafficPolicy::Local;
        self
    }

    /// Sets ClientIP affinity with this time-out.
    pub fn affinity(mut self, seconds: u32) -> Self {
        self.service.affinity_seconds = Some(seconds);
        self
    }

    /// Adds a load-balancer source range; text that is none counts as given, but not as a range.
    pub fn source_range(mut self, text: &str) -> Self {
        self.service.source_ranges.given = true;
        self.service.source_ranges.nets.extend(parse_net(text));
        self
    }

    /// Sets the creation time, Unix seconds.
    pub fn created(mut self, seconds: i64) -> Self {
        self.service.created = Some(seconds);
        self
    }

    /// Sets the health-check node port.
    pub fn health_check(mut self, port: u16) -> Self {
        self.service.health_check_node_port = port;
        self
    }

    /// The fact that it exists so.
    pub fn fact(self) -> Fact {
        Fact::Service(self.key, Some(Box::new(self.service)))
    }
}

/// The fact that a Service is gone.
pub fn no_service(name: &str) -> Fact {
    Fact::Service(key(name), None)
}

/// An EndpointSlice under construction.
#[derive(Clone, Debug)]
pub struct SliceBuilder {
    key: ObjectKey,
    /// As built so far; fields without a method of their own are set here.
    pub slice: Slice,
}

/// Starts a slice of a service of its namespace. It takes the family of its first endpoint, IPv4
/// while it has none.
pub fn slice(name: &str, service: &str) -> SliceBuilder {
    SliceBuilder {
        key: key(name),
        slice: Slice {
            service: Some(service.into()),
            family: Some(Family::V4),
            ..Slice::default()
        },
    }
}

impl SliceBuilder {
    /// Adds a port.
    pub fn port(mut self, protocol: Protocol, name: &str, port: u16) -> Self {
        self.slice.ports.push(SlicePort {
            name: Some(name.into()),
            protocol,
            port: Some(port),
        });
        self
    }

    /// Adds a TCP port.
    pub fn tcp(self, name: &str, port: u16) -> Self {
        self.port(Protocol::Tcp, name, port)
    }

    /// Adds a UDP port.
    pub fn udp(self, name: &str, port: u16) -> Self {
        self.port(Protocol::Udp, name, port)
    }

    /// Adds an endpoint.
    pub fn with(mut self, endpoint: EndpointBuilder) -> Self {
        if self.slice.endpoints.is_empty() {
            self.slice.family = Some(Family::of(endpoint.0.ip));
        }
        self.slice.endpoints.push(endpoint.0);
        self
    }

    /// Adds a ready endpoint on a node.
    pub fn ready(self, ip: &str, node: &str) -> Self {
        self.with(endpoint(ip).on(node))
    }

    /// The fact that it exists so.
    pub fn fact(self) -> Fact {
        Fact::Slice(self.key, Some(Box::new(self.slice)))
    }
}

/// The fact that a slice is gone.
pub fn no_slice(name: &str) -> Fact {
    Fact::Slice(key(name), None)
}

/// An endpoint under construction.
#[derive(Clone, Debug)]
pub struct EndpointBuilder(pub Endpoint);

/// Starts a ready endpoint on no node.
pub fn endpoint(text: &str) -> EndpointBuilder {
    EndpointBuilder(Endpoint {
        ip: ip(text),
        conditions: Conditions::new(None, None, None),
        node: None,
        hints: None,
    })
}

impl EndpointBuilder {
    /// Sets its node.
    pub fn on(mut self, node: &str) -> Self {
        self.0.node = Some(node.into());
        self
    }

    /// Neither ready nor serving.
    pub fn unready(mut self) -> Self {
        self.0.conditions = Conditions::new(Some(false), Some(false), None);
        self
    }

    /// Being terminated, but still serving.
    pub fn terminating(mut self) -> Self {
        self.0.conditions = Conditions::new(Some(false), Some(true), Some(true));
        self
    }

    /// Being terminated and no longer serving.
    pub fn dying(mut self) -> Self {
        self.0.conditions = Conditions::new(Some(false), Some(false), Some(true));
        self
    }

    /// Adds a zone hint.
    pub fn for_zone(mut self, zone: &str) -> Self {
        self.hints().zones.push(zone.into());
        self
    }

    /// Adds a node hint.
    pub fn for_node(mut self, node: &str) -> Self {
        self.hints().nodes.push(node.into());
        self
    }

    fn hints(&mut self) -> &mut Hints {
        self.0.hints.get_or_insert_with(Box::default)
    }
}

/// The fact that a Node exists with these addresses, in this zone where one is given.
pub fn node(name: &str, addresses: &[&str], zone: Option<&str>) -> Fact {
    let node = Node {
        addresses: addresses.iter().map(|text| ip(text)).collect(),
        zone: zone.map(Name::from),
        ..Node::default()
    };
    Fact::Node(name.into(), Some(Box::new(node)))
}
