//! Where a service listens, and by which policy.

use sluice_model::cluster::Cluster;
use sluice_model::fact::{Family, ServiceType};
use sluice_model::route::{At, Masquerade, Path, PoolChoice, Refusal, Scope};
use sluice_model::settings::{DetectLocal, ExternalIps, Settings};
use sluice_model::testing::{ServiceBuilder, ip, key, service, slice};

use crate::{apply, changed, cluster, cluster_with, find, frontend, notices, route, settings, vip};

const PODS_KEPT: Path = Path::Uniform(PoolChoice::Cluster, Masquerade::NotPods);
const ALWAYS: Path = Path::Uniform(PoolChoice::Cluster, Masquerade::Always);

fn web() -> ServiceBuilder {
    service("web").cluster_ip("172.30.0.1").tcp("", 80)
}

fn all_scopes() -> ServiceBuilder {
    web()
        .load_balancer("203.0.113.1")
        .external_ip("198.51.100.1")
        .node_port(30080)
}

fn listeners(cluster: &Cluster) -> Vec<(At, Scope, Path)> {
    let route = route(cluster, "default/web");
    let frontends = route.frontends.iter();
    frontends.map(|f| (f.at, f.scope, f.path)).collect()
}

#[test]
fn every_address_of_a_service_is_a_frontend_and_only_the_cluster_ip_keeps_pod_sources() {
    let (cluster, _) = cluster([all_scopes().fact()]);
    assert_eq!(
        listeners(&cluster),
        [
            (vip("172.30.0.1", 80), Scope::Cluster, PODS_KEPT),
            (vip("198.51.100.1", 80), Scope::ExternalIp, ALWAYS),
            (vip("203.0.113.1", 80), Scope::LoadBalancer, ALWAYS),
            (At::NodePort(30080), Scope::NodePort, ALWAYS),
        ]
    );
}

#[test]
fn external_policy_local_splits_external_addresses_only() {
    let (cluster, _) = cluster([all_scopes().external_local().fact()]);
    assert_eq!(
        listeners(&cluster),
        [
            (vip("172.30.0.1", 80), Scope::Cluster, PODS_KEPT),
            (vip("198.51.100.1", 80), Scope::ExternalIp, Path::Split),
            (vip("203.0.113.1", 80), Scope::LoadBalancer, Path::Split),
            (At::NodePort(30080), Scope::NodePort, Path::Split),
        ]
    );
}

#[test]
fn internal_policy_local_touches_the_cluster_ip_only() {
    let (cluster, _) = cluster([web().node_port(30080).internal_local().fact()]);
    let local = Path::Uniform(PoolChoice::Local, Masquerade::NotPods);
    assert_eq!(
        listeners(&cluster),
        [
            (vip("172.30.0.1", 80), Scope::Cluster, local),
            (At::NodePort(30080), Scope::NodePort, ALWAYS),
        ]
    );
}

#[test]
fn external_policy_of_a_cluster_ip_service_counts_when_it_has_external_ips() {
    let (cluster, _) = cluster([web().external_ip("198.51.100.1").external_local().fact()]);
    let route = route(&cluster, "default/web");
    assert_eq!(frontend(&route, vip("198.51.100.1", 80)).path, Path::Split);
}

#[test]
fn split_frontend_refuses_strangers_while_endpoints_are_elsewhere_or_nowhere() {
    let external = web().node_port(30080).external_local();
    let remote = slice("web-1", "web")
        .tcp("", 8080)
        .ready("10.1.2.1", "there");
    let (mut cluster, _) = cluster([external.fact()]);
    let refusal = |cluster: &Cluster| {
        let route = route(cluster, "default/web");
        frontend(&route, At::NodePort(30080)).refusal
    };
    assert_eq!(refusal(&cluster), Some(Refusal::Reject));
    apply(&mut cluster, [remote.clone().fact()]);
    assert_eq!(refusal(&cluster), Some(Refusal::Drop));
    apply(&mut cluster, [remote.ready("10.1.2.2", "here").fact()]);
    assert_eq!(refusal(&cluster), None);
}

#[test]
fn without_a_pod_detector_the_cluster_ip_never_masquerades() {
    let (cluster, _) = cluster_with(Settings::for_node("here"), [web().fact()]);
    let never = Path::Uniform(PoolChoice::Cluster, Masquerade::Never);
    assert_eq!(
        listeners(&cluster),
        [(vip("172.30.0.1", 80), Scope::Cluster, never)]
    );
}

#[test]
fn masquerade_all_masquerades_the_cluster_ip_with_and_without_detector() {
    for detect_local in [DetectLocal::NodeCidr, settings().detect_local] {
        let settings = Settings {
            masquerade_all: true,
            detect_local,
            ..settings()
        };
        let (cluster, _) = cluster_with(settings, [web().fact()]);
        assert_eq!(
            listeners(&cluster),
            [(vip("172.30.0.1", 80), Scope::Cluster, ALWAYS)]
        );
    }
}

#[test]
fn services_of_others_and_without_cluster_ip_have_no_route() {
    let mut headless = web();
    headless.service.headless = true;
    let mut external_name = web();
    external_name.service.service_type = ServiceType::ExternalName;
    let mut other_proxy = web();
    other_proxy.service.other_proxy = true;
    let unassigned = service("web").tcp("", 80);
    let portless = service("web").cluster_ip("172.30.0.1");
    for skipped in [headless, external_name, other_proxy, unassigned, portless] {
        let (cluster, changes) = cluster([skipped.clone().fact()]);
        assert_eq!(cluster.routes().count(), 0, "{:?}", skipped.service);
        assert_eq!(notices(&changes), [""; 0], "{:?}", skipped.service);
    }
}

#[test]
fn a_service_that_another_proxy_takes_over_goes() {
    let (mut cluster, _) = cluster([web().fact()]);
    let mut labelled = web();
    labelled.service.other_proxy = true;
    let changes = apply(&mut cluster, [labelled.fact()]);
    assert_eq!(changed(&changes), ["-default/web IPv4"]);
}

#[test]
fn dual_stack_service_has_a_route_per_family() {
    let dual = web().cluster_ip("fd00::1").node_port(30080);
    let six = slice("web-6", "web")
        .tcp("", 8080)
        .ready("fd01::1", "there");
    let (cluster, _) = cluster([dual.fact(), six.fact()]);
    let v4 = route(&cluster, "default/web");
    let v6 = find(&cluster, "default/web", Family::V6).expect("an IPv6 route");
    assert_eq!(crate::sockets(&v4.cluster), [""; 0]);
    assert_eq!(crate::sockets(&v6.cluster), ["[fd01::1]:8080"]);
    assert_eq!(
        frontend(&v4, At::NodePort(30080)).refusal,
        Some(Refusal::Reject)
    );
    assert_eq!(frontend(&v6, At::NodePort(30080)).refusal, None);
    assert_eq!(frontend(&v6, vip("fd00::1", 80)).scope, Scope::Cluster);
}

#[test]
fn addresses_of_a_family_without_cluster_ip_are_not_served() {
    let (cluster, _) = cluster([web().load_balancer("2001:db8::1").fact()]);
    assert!(find(&cluster, "default/web", Family::V6).is_none());
    assert_eq!(route(&cluster, "default/web").frontends.len(), 1);
}

#[test]
fn old_servers_without_ip_families_give_the_one_cluster_ip() {
    let mut old = service("web").tcp("", 80);
    old.service.cluster_ips = vec![ip("fd00::1"), ip("172.30.0.1")];
    let (cluster, _) = cluster([old.fact()]);
    assert!(find(&cluster, "default/web", Family::V6).is_some());
    assert!(find(&cluster, "default/web", Family::V4).is_none());
}

#[test]
fn load_balancer_in_proxy_mode_is_left_alone() {
    let (cluster, _) = cluster([web().proxied_load_balancer("203.0.113.1").fact()]);
    assert_eq!(
        listeners(&cluster),
        [(vip("172.30.0.1", 80), Scope::Cluster, PODS_KEPT)]
    );
}

#[test]
fn external_ips_are_ignored_where_the_gate_is_off() {
    let settings = Settings {
        external_ips: ExternalIps::Ignored,
        ..settings()
    };
    let (cluster, changes) = cluster_with(settings, [web().external_ip("198.51.100.1").fact()]);
    assert_eq!(
        listeners(&cluster),
        [(vip("172.30.0.1", 80), Scope::Cluster, PODS_KEPT)]
    );
    assert_eq!(
        notices(&changes),
        [
            "Service default/web: spec.externalIPs: not served, the feature gate \
             AllowServiceExternalIPs is off"
        ]
    );
}

#[test]
fn loopback_and_unspecified_addresses_are_never_taken() {
    let odd = web().external_ip("127.0.0.1").load_balancer("0.0.0.0");
    let (cluster, changes) = cluster([odd.fact()]);
    assert_eq!(
        listeners(&cluster),
        [(vip("172.30.0.1", 80), Scope::Cluster, PODS_KEPT)]
    );
    assert_eq!(
        notices(&changes),
        [
            "Service default/web: spec.externalIPs: 127.0.0.1 is unspecified, loopback or \
             multicast and never a service's; it is left out",
            "Service default/web: status.loadBalancer.ingress: 0.0.0.0 is unspecified, loopback \
             or multicast and never a service's; it is left out",
        ]
    );
}

#[test]
fn a_port_number_of_zero_and_a_repeated_port_name_are_left_out_and_reported() {
    let odd = web().tcp("zero", 0).tcp("", 81).udp("", 80);
    let (cluster, changes) = cluster([odd.fact()]);
    let ports: Vec<_> = cluster.routes().map(|r| r.key.protocol.number()).collect();
    assert_eq!(ports, [6, 17]);
    assert_eq!(
        notices(&changes),
        [
            "Service default/web: spec.ports[1]: port 0 cannot be connected to; it is left out \
             until it gets a number",
            "Service default/web: spec.ports[2]: a port before it has the same name \"\" and \
             protocol tcp; it is left out, give it another name",
        ]
    );
}

#[test]
fn affinity_out_of_bounds_is_used_as_near_as_possible_and_reported() {
    for (given, used) in [
        (1, 1),
        (10800, 10800),
        (86400, 86400),
        (86401, 86400),
        (0, 10800),
    ] {
        let (cluster, changes) = cluster([web().affinity(given).fact()]);
        assert_eq!(route(&cluster, "default/web").affinity, Some(used));
        let text = format!(
            "Service default/web: spec.sessionAffinityConfig.clientIP.timeoutSeconds: {given} is \
             not within 1..=86400; {used} is used"
        );
        let expected = if given == used { vec![] } else { vec![text] };
        assert_eq!(notices(&changes), expected);
    }
}

#[test]
fn health_check_counts_addresses_of_ready_local_endpoints_over_all_ports_and_families() {
    use sluice_model::route::HealthCheck;
    use sluice_model::testing::endpoint;
    let balanced = web()
        .cluster_ip("fd00::1")
        .tcp("admin", 81)
        .load_balancer("203.0.113.1")
        .external_local()
        .health_check(32000);
    let v4 = slice("web-4", "web")
        .tcp("", 8080)
        .tcp("admin", 8081)
        .ready("10.1.2.1", "here")
        .ready("10.1.2.2", "there")
        .with(endpoint("10.1.2.3").on("here").terminating());
    let v6 = slice("web-6", "web").tcp("", 8080).ready("fd01::1", "here");
    let (mut cluster, changes) = cluster([balanced.clone().fact(), v4.fact(), v6.fact()]);
    let health = |count| {
        let check = HealthCheck {
            port: 32000,
            local_endpoints: count,
        };
        vec![(key("web"), Some(check))]
    };
    assert_eq!(changes.health, health(2));
    let changes = apply(&mut cluster, [sluice_model::testing::no_slice("web-6")]);
    assert_eq!(changes.health, health(1));
    let mut open = balanced;
    open.service.external_policy = sluice_model::fact::TrafficPolicy::Cluster;
    let changes = apply(&mut cluster, [open.fact()]);
    assert_eq!(changes.health, [(key("web"), None)]);
}

#[test]
fn load_balancer_with_local_policy_but_no_health_check_port_is_reported() {
    let balanced = web().load_balancer("203.0.113.1").external_local();
    let (_, changes) = cluster([balanced.fact()]);
    assert_eq!(changes.health, []);
    assert_eq!(
        notices(&changes),
        [
            "Service default/web: spec.healthCheckNodePort: unset although \
             externalTrafficPolicy is Local; load balancers cannot ask this node whether it has \
             endpoints"
        ]
    );
}
