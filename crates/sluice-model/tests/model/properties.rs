//! What holds for any facts: order does not matter, lists do not matter, nothing panics, and the
//! reported changes add up.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use sluice_model::cluster::Cluster;
use sluice_model::fact::{
    Conditions, Endpoint, Fact, Family, Hints, Ingress, Kind, Node, Problem, Protocol, Service,
    ServicePort, ServiceType, Slice, SlicePort, SourceRanges, TrafficPolicy,
};
use sluice_model::name::{Name, ObjectKey};
use sluice_model::route::{HealthCheck, PortKey, Route};
use sluice_model::settings::{DetectLocal, NodePortAddresses, Settings};
use sluice_model::testing::net;

/// A cluster's worth of objects by key, so that each key has one meaning.
#[derive(Clone, Debug, Default)]
struct World {
    services: BTreeMap<ObjectKey, Service>,
    slices: BTreeMap<ObjectKey, Slice>,
    endpoints: BTreeMap<ObjectKey, Vec<Slice>>,
    node: Option<Node>,
    local: Vec<IpAddr>,
}

impl World {
    fn facts(&self) -> Vec<Fact> {
        let mut facts = vec![Fact::LocalAddresses(self.local.clone())];
        let node = self.node.clone().map(Box::new);
        facts.extend(node.map(|node| Fact::Node("here".into(), Some(node))));
        let services = self.services.clone().into_iter();
        facts.extend(services.map(|(k, s)| Fact::Service(k, Some(Box::new(s)))));
        let slices = self.slices.clone().into_iter();
        facts.extend(slices.map(|(k, s)| Fact::Slice(k, Some(Box::new(s)))));
        let endpoints = self.endpoints.clone().into_iter();
        facts.extend(endpoints.map(|(k, s)| Fact::Endpoints(k, Some(s))));
        facts
    }

    /// Takes a fact about an object in.
    fn take_in(&mut self, fact: &Fact) {
        fn put<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, key: &K, value: Option<V>) {
            map.remove(key);
            map.extend(value.map(|value| (key.clone(), value)));
        }
        match fact.clone() {
            Fact::Service(key, s) => put(&mut self.services, &key, s.map(|s| *s)),
            Fact::Slice(key, s) => put(&mut self.slices, &key, s.map(|s| *s)),
            Fact::Endpoints(key, parts) => put(&mut self.endpoints, &key, parts),
            Fact::Node(_, node) => self.node = node.map(|node| *node),
            Fact::LocalAddresses(local) => self.local = local,
            Fact::Cidrs(..) | Fact::Begin(_) | Fact::Synced(_) => {}
        }
    }

    /// The facts that take this world away, except the node.
    fn removal(&self) -> Vec<Fact> {
        let mut facts: Vec<Fact> = Vec::new();
        facts.extend(self.services.keys().map(|k| Fact::Service(k.clone(), None)));
        facts.extend(self.slices.keys().map(|k| Fact::Slice(k.clone(), None)));
        facts.extend(
            self.endpoints
                .keys()
                .map(|k| Fact::Endpoints(k.clone(), None)),
        );
        facts
    }
}

const LISTED: [Kind; 3] = [Kind::Services, Kind::Slices, Kind::Endpoints];

fn listed(facts: Vec<Fact>) -> Vec<Fact> {
    let begin = LISTED.map(Fact::Begin).into_iter();
    begin.chain(facts).chain(LISTED.map(Fact::Synced)).collect()
}

/// Few values, so that objects collide.
fn name() -> impl Strategy<Value = Name> {
    prop::sample::select(vec!["a", "b", "c"]).prop_map(Name::from)
}

fn object_key() -> impl Strategy<Value = ObjectKey> {
    (prop::sample::select(vec!["x", "y"]), name()).prop_map(|(namespace, name)| ObjectKey {
        namespace: namespace.into(),
        name,
    })
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        8 => (1u8..6).prop_map(|n| IpAddr::V4(Ipv4Addr::new(192, 0, 2, n))),
        8 => (1u16..6).prop_map(|n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n))),
        1 => any::<IpAddr>(),
        1 => Just(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        1 => Just(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ]
}

fn prefix() -> impl Strategy<Value = ipnet::IpNet> {
    (address(), 0u8..=128).prop_map(|(ip, length)| {
        let most = if ip.is_ipv4() { 32 } else { 128 };
        ipnet::IpNet::new_assert(ip, length.min(most))
    })
}

fn number() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0u16..4, 1 => any::<u16>()]
}

fn protocol() -> impl Strategy<Value = Protocol> {
    prop::sample::select(Protocol::ALL.to_vec())
}

fn policy() -> impl Strategy<Value = TrafficPolicy> {
    prop_oneof![Just(TrafficPolicy::Cluster), Just(TrafficPolicy::Local)]
}

fn problems() -> impl Strategy<Value = Vec<Problem>> {
    let fields = prop::sample::select(vec!["spec.loadBalancerSourceRanges[0]", "spec.ports"]);
    vec(
        fields.prop_map(|field| Problem::new(field, "?", "odd")),
        0..2,
    )
}

fn service_type() -> impl Strategy<Value = ServiceType> {
    prop_oneof![
        4 => Just(ServiceType::ClusterIp),
        4 => Just(ServiceType::NodePort),
        4 => Just(ServiceType::LoadBalancer),
        1 => Just(ServiceType::ExternalName),
    ]
}

fn service_port() -> impl Strategy<Value = ServicePort> {
    (name(), protocol(), number(), number()).prop_map(|(name, protocol, port, node_port)| {
        ServicePort {
            name,
            protocol,
            port,
            node_port,
        }
    })
}

fn ingress() -> impl Strategy<Value = Ingress> {
    (address(), any::<bool>()).prop_map(|(ip, proxied)| Ingress { ip, proxied })
}

/// As servers write them, mostly; now and then at odds with the cluster IPs.
fn families(cluster_ips: &[IpAddr]) -> impl Strategy<Value = Vec<Family>> + use<> {
    let matching = cluster_ips.iter().map(|ip| Family::of(*ip)).collect();
    let odd = vec(prop::sample::select(Family::ALL.to_vec()), 0..3);
    prop_oneof![5 => Just(matching), 1 => odd]
}

fn any_service() -> impl Strategy<Value = Service> {
    let addresses = (
        vec(address(), 0..3).prop_flat_map(|ips| (families(&ips), Just(ips))),
        vec(address(), 0..3),
        vec(ingress(), 0..3),
        (any::<bool>(), vec(prefix(), 0..4)),
    );
    let rules = (
        option::of(0i64..3),
        service_type(),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.05),
        (policy(), policy()),
        option::of(prop_oneof![0u32..3, any::<u32>()]),
        number(),
    );
    let rest = (vec(service_port(), 0..4), problems());
    (addresses, rules, rest).prop_map(|(addresses, rules, (ports, problems))| {
        let ((families, cluster_ips), external_ips, ingress, (given, nets)) = addresses;
        let (created, service_type, other_proxy, headless, policies, affinity_seconds, health) =
            rules;
        Service {
            created,
            service_type,
            other_proxy,
            headless,
            families,
            cluster_ips,
            external_ips,
            ingress,
            source_ranges: SourceRanges { given, nets },
            external_policy: policies.0,
            internal_policy: policies.1,
            affinity_seconds,
            health_check_node_port: health,
            ports,
            problems,
        }
    })
}

fn hints() -> impl Strategy<Value = Hints> {
    let node = prop::sample::select(vec!["here", "there"]).prop_map(Name::from);
    (vec(name(), 0..3), vec(node, 0..2)).prop_map(|(zones, nodes)| Hints { zones, nodes })
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    let flags = (
        any::<Option<bool>>(),
        any::<Option<bool>>(),
        any::<Option<bool>>(),
    );
    let node = option::of(prop::sample::select(vec!["here", "there"]).prop_map(Name::from));
    (
        address(),
        flags,
        node,
        option::weighted(0.7, hints().prop_map(Box::new)),
    )
        .prop_map(
            |(ip, (ready, serving, terminating), node, hints)| Endpoint {
                ip,
                conditions: Conditions::new(ready, serving, terminating),
                node,
                hints,
            },
        )
}

fn slice_port() -> impl Strategy<Value = SlicePort> {
    (
        option::weighted(0.9, name()),
        protocol(),
        option::weighted(0.9, number()),
    )
        .prop_map(|(name, protocol, port)| SlicePort {
            name,
            protocol,
            port,
        })
}

fn any_slice() -> impl Strategy<Value = Slice> {
    let family = option::weighted(0.95, prop::sample::select(Family::ALL.to_vec()));
    (
        option::weighted(0.9, name()),
        prop::bool::weighted(0.1),
        family,
        vec(slice_port(), 0..4),
        vec(any_endpoint(), 0..5),
        option::of(0i64..3),
        problems(),
    )
        .prop_map(
            |(service, headless, family, ports, endpoints, triggered, problems)| Slice {
                service,
                headless,
                family,
                ports,
                endpoints,
                triggered,
                problems,
            },
        )
}

fn any_node() -> impl Strategy<Value = Node> {
    (
        vec(address(), 0..3),
        vec(prefix(), 0..3),
        option::of(name()),
        any::<bool>(),
    )
        .prop_map(|(addresses, pod_cidrs, zone, leaving)| Node {
            addresses,
            pod_cidrs,
            zone,
            leaving,
            problems: Vec::new(),
        })
}

fn world() -> impl Strategy<Value = World> {
    (
        vec((object_key(), any_service()), 0..6),
        vec((object_key(), any_slice()), 0..6),
        vec((object_key(), vec(any_slice(), 0..2)), 0..2),
        any_node(),
        vec(address(), 0..4),
    )
        .prop_map(|(services, slices, endpoints, node, local)| World {
            services: services.into_iter().collect(),
            slices: slices.into_iter().collect(),
            endpoints: endpoints.into_iter().collect(),
            node: Some(node),
            local,
        })
}

fn settings() -> impl Strategy<Value = Settings> {
    let detect = prop_oneof![
        vec(prefix(), 0..3).prop_map(DetectLocal::ClusterCidr),
        Just(DetectLocal::NodeCidr),
        Just(DetectLocal::BridgeInterface("cni0".into())),
    ];
    let ports = prop_oneof![
        Just(NodePortAddresses::Primary),
        Just(NodePortAddresses::Within(vec![net("192.0.2.0/30")])),
    ];
    (detect, ports, any::<bool>(), option::of(address())).prop_map(
        |(detect_local, node_port_addresses, masquerade_all, node_ip_override)| Settings {
            detect_local,
            node_port_addresses,
            masquerade_all,
            node_ip_override,
            ..Settings::for_node("here")
        },
    )
}

type Routes = BTreeMap<(PortKey, Family), Arc<Route>>;

fn routes(cluster: &Cluster) -> Routes {
    let all = cluster.routes();
    all.map(|r| ((r.key.clone(), r.family), Arc::clone(r)))
        .collect()
}

fn from_scratch(settings: &Settings, world: &World) -> Cluster {
    let mut cluster = Cluster::new(settings.clone());
    listed(world.facts())
        .into_iter()
        .for_each(|fact| cluster.apply(fact));
    let _ = cluster.changes();
    cluster
}

/// What someone who only sees the changes believes.
#[derive(Debug, Default, PartialEq)]
struct Follower {
    routes: Routes,
    health: BTreeMap<ObjectKey, HealthCheck>,
}

impl Follower {
    fn follow(&mut self, cluster: &mut Cluster) {
        let changes = cluster.changes();
        for change in changes.routes {
            assert_ne!(change.old, change.new);
            let either = change
                .old
                .as_ref()
                .or(change.new.as_ref())
                .expect("one side");
            let key = (either.key.clone(), either.family);
            assert_eq!(self.routes.remove(&key), change.old);
            self.routes.extend(change.new.map(|new| (key, new)));
        }
        for (key, health) in changes.health {
            self.health.remove(&key);
            self.health.extend(health.map(|health| (key, health)));
        }
        assert!(!cluster.is_dirty());
        assert_eq!(self.routes, routes(cluster));
    }
}

fn assert_sound(cluster: &Cluster) {
    let mut held = std::collections::BTreeSet::new();
    for route in cluster.routes() {
        for frontend in &route.frontends {
            let place = (frontend.at, route.key.protocol, route.family);
            assert!(held.insert(place), "{place:?} has two holders");
        }
        assert!(route.frontends.is_sorted_by_key(|f| f.at));
        let backends = route.cluster.iter().chain(route.local.iter());
        assert!(
            backends
                .clone()
                .all(|b| b.port != 0 && Family::of(b.ip) == route.family)
        );
        assert!(route.local.iter().all(|b| b.local));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn any_order_of_facts_gives_the_same_routes(
        settings in settings(),
        (world, shuffled) in world().prop_flat_map(|world| {
            let facts = Just(world.facts()).prop_shuffle();
            (Just(world), facts)
        }),
    ) {
        let expected = from_scratch(&settings, &world);
        let mut cluster = Cluster::new(settings);
        let mut follower = Follower::default();
        listed(vec![]).into_iter().for_each(|fact| cluster.apply(fact));
        for fact in shuffled {
            cluster.apply(fact);
            follower.follow(&mut cluster);
        }
        prop_assert_eq!(routes(&cluster), routes(&expected));
        for family in Family::ALL {
            prop_assert_eq!(cluster.node_view(family), expected.node_view(family));
        }
        assert_sound(&cluster);
    }

    #[test]
    fn updates_and_then_another_list_are_as_from_scratch(
        settings in settings(),
        mut world in world(),
        after in world(),
        updates in vec(prop_oneof![
            (object_key(), option::of(any_service().prop_map(Box::new)))
                .prop_map(|(k, s)| Fact::Service(k, s)),
            (object_key(), option::of(any_slice().prop_map(Box::new)))
                .prop_map(|(k, s)| Fact::Slice(k, s)),
            any_node().prop_map(|n| Fact::Node("here".into(), Some(Box::new(n)))),
        ], 0..6),
    ) {
        let mut cluster = from_scratch(&settings, &world);
        let mut follower = Follower { routes: routes(&cluster), ..Follower::default() };
        for fact in updates {
            world.take_in(&fact);
            cluster.apply(fact);
            follower.follow(&mut cluster);
            prop_assert_eq!(routes(&cluster), routes(&from_scratch(&settings, &world)));
        }
        listed(after.facts()).into_iter().for_each(|fact| cluster.apply(fact));
        follower.follow(&mut cluster);
        prop_assert_eq!(routes(&cluster), routes(&from_scratch(&settings, &after)));
        assert_sound(&cluster);
    }

    #[test]
    fn a_world_taken_away_leaves_nothing(
        settings in settings(),
        (mut world, removal) in world().prop_flat_map(|world| {
            let facts = Just(world.removal()).prop_shuffle();
            (Just(world), facts)
        }),
    ) {
        let mut cluster = Cluster::new(settings.clone());
        let mut follower = Follower::default();
        listed(world.facts()).into_iter().for_each(|fact| cluster.apply(fact));
        follower.follow(&mut cluster);
        for fact in removal {
            world.take_in(&fact);
            cluster.apply(fact);
            follower.follow(&mut cluster);
            prop_assert_eq!(routes(&cluster), routes(&from_scratch(&settings, &world)));
        }
        prop_assert_eq!(follower, Follower::default());
    }
}
