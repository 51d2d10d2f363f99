//! What every service port must do, decided once for all dataplanes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::fact::{Family, Protocol};
use crate::name::{Name, ObjectKey};

/// Identity of a service port. The number is not part of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PortKey {
    /// The Service.
    pub service: ObjectKey,
    /// Port name, empty when unnamed.
    pub port: Name,
    /// Protocol.
    pub protocol: Protocol,
}

impl fmt::Display for PortKey {
    /// `ns/name` or `ns/name:port`, as logs and comments of kube-proxy have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.service)?;
        if self.port.is_empty() {
            Ok(())
        } else {
            write!(f, ":{}", self.port)
        }
    }
}

/// A service port in one family: where it listens and what is behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Whose it is.
    pub key: PortKey,
    /// Family of every address in it.
    pub family: Family,
    /// Endpoints under Cluster policy; empty also when nothing uses them.
    pub cluster: Pool,
    /// Endpoints under Local policy; empty also when nothing uses them.
    pub local: Pool,
    /// ClientIP affinity, seconds.
    pub affinity: Option<u32>,
    /// Where it listens; only what this service holds against older claimants, sorted by `at`.
    pub frontends: Vec<Frontend>,
}

impl Route {
    /// The endpoints of a pool.
    pub fn pool(&self, choice: PoolChoice) -> &Pool {
        match choice {
            PoolChoice::Cluster => &self.cluster,
            PoolChoice::Local => &self.local,
        }
    }
}

/// Endpoints in a fixed order: sorted by address and port, without duplicates. Cloning shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool(Arc<[Backend]>);

impl Pool {
    /// Sorts and deduplicates.
    pub fn new(mut backends: Vec<Backend>) -> Pool {
        backends.sort_unstable();
        backends.dedup_by_key(|b| (b.ip, b.port));
        Pool(backends.into())
    }
}

impl Default for Pool {
    fn default() -> Self {
        Pool(Arc::from([]))
    }
}

impl std::ops::Deref for Pool {
    type Target = [Backend];
    fn deref(&self) -> &[Backend] {
        &self.0
    }
}

/// One endpoint of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Backend {
    /// Address.
    pub ip: IpAddr,
    /// Port.
    pub port: u16,
    /// Runs on this node.
    pub local: bool,
}

/// One place where a service port can be reached, and the rules of that place.
///
/// What happens to a new connection, in this order: a source outside `allow` is dropped; then
/// `path` says from which pool it is served and whether its source is masqueraded; where that
/// pool is empty, `refusal` applies. A connection whose chosen endpoint is its own source
/// (hairpin) is always masqueraded.
#[derive(Clone, Debug, PartialEq)]
pub struct Frontend {
    /// Address and port, or node port.
    pub at: At,
    /// Which address of the service this is.
    pub scope: Scope,
    /// Pool and masquerade by source.
    pub path: Path,
    /// Sources that may connect, merged and sorted; `None` is everyone, empty is nobody. Includes
    /// the service's own load-balancer addresses where a range holds this node's address.
    pub allow: Option<Vec<IpNet>>,
    /// The answer to a packet for which `path` finds no endpoint; `None` while every source has
    /// some.
    pub refusal: Option<Refusal>,
}

/// Where a frontend listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum At {
    /// A virtual address and port.
    Vip(IpAddr, u16),
    /// A port on the node's own node-port addresses, never loopback.
    NodePort(u16),
}

/// Which address of a service a frontend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// clusterIP.
    Cluster,
    /// spec.externalIPs.
    ExternalIp,
    /// status.loadBalancer.ingress.
    LoadBalancer,
    /// nodePort.
    NodePort,
}

/// From which pool a frontend serves, and when it hides the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Every source is served from this pool.
    Uniform(PoolChoice, Masquerade),
    /// externalTrafficPolicy Local. Pods of this node (where a detector tells them) are served
    /// from the cluster pool, source kept; processes of this node from the cluster pool,
    /// masqueraded; everyone else from the local pool, source kept.
    Split,
}

/// One of a route's two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PoolChoice {
    /// [`Route::cluster`].
    Cluster,
    /// [`Route::local`].
    Local,
}

/// When the source is replaced by the node's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Masquerade {
    /// Only hairpin connections.
    Never,
    /// When the source is no pod of this node, by [`NodeView::pods`].
    NotPods,
    /// Always.
    Always,
}

/// How a connection without endpoints ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// ICMP port unreachable: no endpoint exists anywhere.
    Reject,
    /// Silence: endpoints exist, none that this source may use.
    Drop,
}

/// What the node itself contributes in one family: the same for every route.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// How to tell that a packet comes from a pod of this node; `None` where that is unknown.
    pub pods: Option<PodMatch>,
    /// Destinations that accept node ports.
    pub node_ports: NodePortMatch,
    /// Ranges in which cluster IPs are allocated: an unallocated one is dropped.
    pub service_cidrs: Vec<IpNet>,
}

/// A match for packets of this node's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodMatch {
    /// Source within this prefix.
    Source(IpNet),
    /// Arrived on this interface.
    Interface(Name),
    /// Arrived on an interface with this prefix.
    InterfacePrefix(Name),
}

/// Which destinations accept node ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodePortMatch {
    /// Every local address except loopback.
    AnyLocal,
    /// Just these, sorted; empty means node ports are unreachable in this family.
    Addresses(Vec<IpAddr>),
}

/// What changed since the last time, for a dataplane to carry out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Routes that appeared, changed or went, in any order.
    pub routes: Vec<RouteChange>,
    /// Set where a family's node view changed.
    pub node: [Option<NodeView>; 2],
    /// Health-check node ports that appeared, changed or (`None`) went.
    pub health: Vec<(ObjectKey, Option<HealthCheck>)>,
    /// Slices' trigger times that these changes satisfy, Unix nanoseconds.
    pub triggers: Vec<i64>,
    /// Things to tell the operator, once each.
    pub notices: Vec<Notice>,
}

/// A route before and after; at least one side is present, and they differ.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteChange {
    /// As last handed out.
    pub old: Option<Arc<Route>>,
    /// As it is now.
    pub new: Option<Arc<Route>>,
}

impl RouteChange {
    /// The family of the route.
    pub fn family(&self) -> Option<Family> {
        self.old
            .as_ref()
            .or(self.new.as_ref())
            .map(|route| route.family)
    }
}

/// A service's health-check node port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// spec.healthCheckNodePort.
    pub port: u16,
    /// Distinct addresses of ready endpoints on this node.
    pub local_endpoints: usize,
}

/// A remark about an object that is served only in part, or differently than its author may think.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Kind and key, as `Service default/web`.
    pub object: String,
    /// What and why, with a remedy.
    pub text: String,
}
