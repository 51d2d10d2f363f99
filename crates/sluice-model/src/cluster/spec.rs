//! A Service as the model keeps it: checked, and without what this proxy does not serve.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

use crate::fact::{Family, Service, ServicePort, ServiceType, TrafficPolicy};
use crate::name::ObjectKey;
use crate::route::{At, Scope};
use crate::settings::ExternalIps;

use super::claims::{Claim, Place};
use super::node::{merged, of_family};

/// The longest affinity time-out of the API, one day.
const AFFINITY_MAX: u32 = 86_400;
/// The API's default, three hours.
const AFFINITY_DEFAULT: u32 = 10_800;

/// A Service that is served in at least one family.
#[derive(Debug, PartialEq)]
pub(super) struct Spec {
    /// Unix seconds, `i64::MAX` where unknown.
    pub(super) created: i64,
    /// Sorted by name and protocol, no two alike, none with number 0.
    pub(super) ports: Box<[ServicePort]>,
    cluster_v4: Option<Ipv4Addr>,
    cluster_v6: Option<Ipv6Addr>,
    /// Seconds.
    pub(super) affinity: Option<u32>,
    pub(super) internal: TrafficPolicy,
    pub(super) external: TrafficPolicy,
    /// 0 where there is none.
    pub(super) health_port: u16,
    outside: Option<Box<Outside>>,
}

/// What only services with addresses of their own beside the cluster IP have.
#[derive(Debug, Default, PartialEq)]
struct Outside {
    external_ips: Vec<IpAddr>,
    load_balancers: Vec<IpAddr>,
    /// Per family; `None` lets everyone in.
    ranges: [Option<Vec<IpNet>>; 2],
}

impl Spec {
    /// What of a Service is served, `None` where nothing is, and remarks about the rest.
    pub(super) fn check(
        service: &Service,
        external_ips: ExternalIps,
    ) -> (Option<Spec>, Vec<String>) {
        let not_ours = service.other_proxy
            || service.headless
            || service.service_type == ServiceType::ExternalName;
        if not_ours {
            return (None, Vec::new());
        }
        let mut notes: Vec<String> = service.problems.iter().map(ToString::to_string).collect();
        let cluster_ip = |family| cluster_ip(service, family);
        let cluster_v4 = cluster_ip(Family::V4).and_then(|ip| match ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        });
        let cluster_v6 = cluster_ip(Family::V6).and_then(|ip| match ip {
            IpAddr::V4(_) => None,
            IpAddr::V6(ip) => Some(ip),
        });
        if cluster_v4.is_none() && cluster_v6.is_none() {
            return (None, notes);
        }
        let ports = usable_ports(&service.ports, &mut notes);
        let spec = Spec {
            created: service.created.unwrap_or(i64::MAX),
            health_port: if ports.is_empty() {
                0
            } else {
                health_port(service, &mut notes)
            },
            ports,
            cluster_v4,
            cluster_v6,
            affinity: service
                .affinity_seconds
                .map(|seconds| affinity(seconds, &mut notes)),
            internal: service.internal_policy,
            external: external_policy(service),
            outside: outside(service, external_ips, &mut notes),
        };
        (Some(spec), notes)
    }

    /// The cluster IP of a family; without one the service does not exist in that family.
    pub(super) fn cluster_ip(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.cluster_v4.map(IpAddr::V4),
            Family::V6 => self.cluster_v6.map(IpAddr::V6),
        }
    }

    /// Load-balancer addresses of a family that are served here.
    pub(super) fn load_balancers(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        let all = self.outside.iter().flat_map(|o| o.load_balancers.iter());
        all.copied().filter(move |ip| Family::of(*ip) == family)
    }

    /// Sources that may use load-balancer addresses of a family, merged; `None` is everyone.
    pub(super) fn ranges(&self, family: Family) -> Option<&[IpNet]> {
        self.outside.as_ref()?.ranges[family as usize].as_deref()
    }

    /// Whether anything of it depends on the node's own address.
    pub(super) fn has_ranges(&self) -> bool {
        Family::ALL.iter().any(|&f| self.ranges(f).is_some())
    }

    /// Where a port wants to be reached in a family, each place once.
    ///
    /// An address that the service has in several roles counts as a load balancer's first, so that
    /// naming it again as external IP does not get around the source ranges, and as a cluster IP
    /// before an external one, so that pods keep their source address.
    pub(super) fn places(&self, port: &ServicePort, family: Family) -> Vec<(Place, Scope)> {
        let Some(cluster_ip) = self.cluster_ip(family) else {
            return Vec::new();
        };
        let place = |at| Place {
            at,
            protocol: port.protocol,
            family,
        };
        let vip = |ip| place(At::Vip(ip, port.port));
        let external = self.outside.iter().flat_map(|o| o.external_ips.iter());
        let external = external.copied().filter(|ip| Family::of(*ip) == family);
        let node_port = (port.node_port != 0).then_some(port.node_port);
        let mut places: Vec<(Place, Scope)> = Vec::with_capacity(1);
        places.extend(
            self.load_balancers(family)
                .map(|ip| (vip(ip), Scope::LoadBalancer)),
        );
        places.push((vip(cluster_ip), Scope::Cluster));
        places.extend(external.map(|ip| (vip(ip), Scope::ExternalIp)));
        places.extend(node_port.map(|n| (place(At::NodePort(n)), Scope::NodePort)));
        // Stable: of equal places the first stays.
        places.sort_by_key(|(place, _)| *place);
        places.dedup_by_key(|(place, _)| *place);
        places
    }

    /// Everything it wants, sorted.
    pub(super) fn claims(&self, service: &Arc<ObjectKey>) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (port, index) in self.ports.iter().zip(0u16..) {
            for (place, _) in Family::ALL.iter().flat_map(|f| self.places(port, *f)) {
                claims.push(Claim {
                    place,
                    created: self.created,
                    service: Arc::clone(service),
                    port: index,
                });
            }
        }
        claims.sort_unstable();
        claims
    }
}

/// With ipFamilies, the address of a family that is among them; without (servers before dual
/// stack), the only address if it is of this family.
fn cluster_ip(service: &Service, family: Family) -> Option<IpAddr> {
    let ips = &service.cluster_ips;
    let ip = if service.families.is_empty() {
        ips.first().filter(|ip| Family::of(**ip) == family)
    } else if service.families.contains(&family) {
        ips.iter().find(|ip| Family::of(**ip) == family)
    } else {
        None
    };
    ip.copied().filter(|ip| is_virtual(*ip))
}

/// Whether packets to an address may be taken as meant for a service. The API refuses the others,
/// manifests may not.
fn is_virtual(ip: IpAddr) -> bool {
    !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast()
}

fn usable_ports(ports: &[ServicePort], notes: &mut Vec<String>) -> Box<[ServicePort]> {
    let mut seen = HashSet::new();
    let mut usable = Vec::with_capacity(ports.len().min(usize::from(u16::MAX)));
    for (i, port) in ports.iter().enumerate() {
        if port.port == 0 {
            notes.push(format!(
                "spec.ports[{i}]: port 0 cannot be connected to; it is left out until it gets a \
                 number"
            ));
        } else if !seen.insert((&port.name, port.protocol)) {
            notes.push(format!(
                "spec.ports[{i}]: a port before it has the same name {:?} and protocol {}; it is \
                 left out, give it another name",
                &*port.name, port.protocol
            ));
        } else if usable.len() < usize::from(u16::MAX) {
            usable.push(port.clone());
        }
    }
    usable.sort_by(|a, b| (&a.name, a.protocol).cmp(&(&b.name, b.protocol)));
    usable.into()
}

fn affinity(seconds: u32, notes: &mut Vec<String>) -> u32 {
    let used = match seconds {
        0 => AFFINITY_DEFAULT,
        1..=AFFINITY_MAX => return seconds,
        _ => AFFINITY_MAX,
    };
    notes.push(format!(
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds: {seconds} is not within \
         1..={AFFINITY_MAX}; {used} is used"
    ));
    used
}

/// externalTrafficPolicy where it has a meaning.
fn external_policy(service: &Service) -> TrafficPolicy {
    let counts = match service.service_type {
        ServiceType::NodePort | ServiceType::LoadBalancer => true,
        ServiceType::ClusterIp => !service.external_ips.is_empty(),
        ServiceType::ExternalName => false,
    };
    if counts {
        service.external_policy
    } else {
        TrafficPolicy::Cluster
    }
}

fn health_port(service: &Service, notes: &mut Vec<String>) -> u16 {
    match (service.service_type, service.external_policy) {
        (ServiceType::LoadBalancer, TrafficPolicy::Local) => {
            if service.health_check_node_port == 0 {
                notes.push(
                    "spec.healthCheckNodePort: unset although externalTrafficPolicy is Local; \
                     load balancers cannot ask this node whether it has endpoints"
                        .to_owned(),
                );
            }
            service.health_check_node_port
        }
        (ServiceType::LoadBalancer, TrafficPolicy::Cluster)
        | (ServiceType::ClusterIp | ServiceType::NodePort | ServiceType::ExternalName, _) => 0,
    }
}

fn outside(
    service: &Service,
    external_ips: ExternalIps,
    notes: &mut Vec<String>,
) -> Option<Box<Outside>> {
    let mut virtual_only = |field: &str, ips: &mut dyn Iterator<Item = IpAddr>| -> Vec<IpAddr> {
        let (good, bad): (Vec<IpAddr>, Vec<IpAddr>) = ips.partition(|ip| is_virtual(*ip));
        notes.extend(bad.iter().map(|ip| {
            format!(
                "{field}: {ip} is unspecified, loopback or multicast and never a service's; it is \
                 left out"
            )
        }));
        good
    };
    let proxied_here = service.ingress.iter().filter(|i| !i.proxied).map(|i| i.ip);
    let load_balancers = virtual_only("status.loadBalancer.ingress", &mut proxied_here.into_iter());
    let external_ips = match external_ips {
        ExternalIps::Served => virtual_only(
            "spec.externalIPs",
            &mut service.external_ips.iter().copied(),
        ),
        ExternalIps::Ignored => {
            if !service.external_ips.is_empty() {
                notes.push(
                    "spec.externalIPs: not served, the feature gate AllowServiceExternalIPs is off"
                        .to_owned(),
                );
            }
            Vec::new()
        }
    };
    if external_ips.is_empty() && load_balancers.is_empty() {
        return None;
    }
    let ranges = Family::ALL.map(|family| {
        let guarded = load_balancers.iter().any(|ip| Family::of(*ip) == family);
        guarded.then(|| ranges(service, family, notes)).flatten()
    });
    Some(Box::new(Outside {
        external_ips,
        load_balancers,
        ranges,
    }))
}

/// Who may use load-balancer addresses of a family: `None` is everyone.
///
/// A list that has lost all its ranges for a family closes it. kube-proxy opens it then, which
/// turns a misspelt filter into none.
fn ranges(service: &Service, family: Family, notes: &mut Vec<String>) -> Option<Vec<IpNet>> {
    const FIELD: &str = "spec.loadBalancerSourceRanges";
    let given = &service.source_ranges;
    if !given.given && given.nets.is_empty() {
        return None;
    }
    let nets: Vec<IpNet> = of_family(&given.nets, family).collect();
    if nets.iter().any(|net| net.prefix_len() == 0) {
        return None;
    }
    if !nets.is_empty() {
        return Some(merged(nets));
    }
    let lost = service.problems.iter().any(|p| p.field.starts_with(FIELD));
    let everyone = given.nets.iter().all(|net| net.prefix_len() == 0);
    if everyone && !given.nets.is_empty() && !lost {
        return None;
    }
    let all = match family {
        Family::V4 => "0.0.0.0/0",
        Family::V6 => "::/0",
    };
    notes.push(format!(
        "{FIELD}: no valid {family} range is left, so nobody may use its {family} load-balancer \
         addresses; add one, {all} for everyone"
    ));
    Some(Vec::new())
}
