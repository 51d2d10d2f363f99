//! Random objects of the API: few names and numbers, odd ones among them.

use std::collections::BTreeMap;

use k8s_pb::api::core::v1 as core;
use k8s_pb::api::discovery::v1 as discovery;
use k8s_pb::api::networking::v1 as networking;
use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::objects::Object;

fn text(choices: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(choices).prop_map(str::to_owned)
}

fn ip() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => any::<u32>().prop_map(|bits| std::net::Ipv4Addr::from(bits).to_string()),
        4 => any::<u128>().prop_map(|bits| std::net::Ipv6Addr::from(bits).to_string()),
        2 => text(&["", "010.1.2.3", "::ffff:10.0.0.9", "host.example", "127.0.0.1", "fe80::1", "0"]),
    ]
}

fn net() -> impl Strategy<Value = String> {
    (ip(), 0u8..140).prop_map(|(ip, length)| format!("{ip}/{length}"))
}

fn port() -> impl Strategy<Value = i32> {
    prop_oneof![8 => 1..=65535i32, 1 => Just(0), 1 => any::<i32>()]
}

fn protocol() -> impl Strategy<Value = Option<String>> {
    option::of(text(&["TCP", "UDP", "SCTP", "", "ICMP"]))
}

fn name() -> impl Strategy<Value = String> {
    "[a-z0-9-]{1,12}"
}

fn pairs() -> impl Strategy<Value = BTreeMap<String, String>> {
    let key = text(&[
        "service.kubernetes.io/service-proxy-name",
        "service.kubernetes.io/headless",
        "kubernetes.io/service-name",
        "topology.kubernetes.io/zone",
        "endpoints.kubernetes.io/last-change-trigger-time",
        "app",
        "q\"uo\\te",
    ]);
    let value = prop_oneof![
        3 => name(),
        1 => Just("2026-01-31T10:20:30.5Z".to_owned()),
        1 => any::<String>(),
    ];
    btree_map(key, value, 0..5)
}

fn time() -> impl Strategy<Value = Option<meta::Time>> {
    let seconds = prop_oneof![1 => Just(None), 4 => (0i64..4_000_000_000).prop_map(Some)];
    option::of(seconds.prop_map(|seconds| meta::Time {
        seconds,
        nanos: seconds.map(|_| 0),
    }))
}

fn metadata() -> impl Strategy<Value = meta::ObjectMeta> {
    let deleted = option::weighted(
        0.2,
        (1i64..4_000_000_000).prop_map(|seconds| meta::Time {
            seconds: Some(seconds),
            nanos: Some(0),
        }),
    );
    (name(), name(), pairs(), pairs(), time(), deleted).prop_map(
        |(name, namespace, labels, annotations, created, deleted)| meta::ObjectMeta {
            name: Some(name),
            namespace: Some(namespace),
            uid: Some("0e3c5b0a".into()),
            labels,
            annotations,
            creation_timestamp: created,
            deletion_timestamp: deleted,
            ..Default::default()
        },
    )
}

fn service() -> impl Strategy<Value = core::Service> {
    let port = (
        option::of(name()),
        protocol(),
        option::of(port()),
        option::of(port()),
    );
    let ports = vec(
        port.prop_map(|(name, protocol, port, node_port)| core::ServicePort {
            name,
            protocol,
            port,
            node_port,
            ..Default::default()
        }),
        0..4,
    );
    let policy = || option::of(text(&["Cluster", "Local", "", "Elsewhere"]));
    let addresses = (
        option::of(ip()),
        vec(ip(), 0..3),
        vec(ip(), 0..3),
        vec(net(), 0..3),
    );
    let kinds = text(&[
        "ClusterIP",
        "NodePort",
        "LoadBalancer",
        "ExternalName",
        "",
        "New",
    ]);
    let affinity = (
        option::of(text(&["None", "ClientIP", "Cookie"])),
        option::of(any::<i32>()),
    );
    let families = vec(text(&["IPv4", "IPv6", "IPv7"]), 0..3);
    let entry = (
        option::of(ip()),
        option::of(text(&["VIP", "Proxy", "Tunnel"])),
    );
    let ingress = vec(
        entry.prop_map(|(ip, ip_mode)| core::LoadBalancerIngress {
            ip,
            ip_mode,
            ..Default::default()
        }),
        0..3,
    );
    let rest = (
        option::of(kinds),
        affinity,
        families,
        option::of(self::port()),
        ingress,
    );
    (metadata(), ports, policy(), policy(), addresses, rest).prop_map(
        |(metadata, ports, external, internal, addresses, rest)| {
            let (kind, (affinity, seconds), families, health, ingress) = rest;
            core::Service {
                metadata: Some(metadata),
                spec: Some(core::ServiceSpec {
                    ports,
                    cluster_ip: addresses.0,
                    cluster_ips: addresses.1,
                    external_ips: addresses.2,
                    load_balancer_source_ranges: addresses.3,
                    r#type: kind,
                    session_affinity: affinity,
                    session_affinity_config: seconds.map(|seconds| core::SessionAffinityConfig {
                        client_ip: Some(core::ClientIpConfig {
                            timeout_seconds: Some(seconds),
                        }),
                    }),
                    ip_families: families,
                    health_check_node_port: health,
                    external_traffic_policy: external,
                    internal_traffic_policy: internal,
                    selector: [("app".to_owned(), "web".to_owned())].into(),
                    ..Default::default()
                }),
                status: Some(core::ServiceStatus {
                    load_balancer: Some(core::LoadBalancerStatus { ingress }),
                    ..Default::default()
                }),
            }
        },
    )
}

fn slice() -> impl Strategy<Value = discovery::EndpointSlice> {
    let flags = (
        any::<Option<bool>>(),
        any::<Option<bool>>(),
        any::<Option<bool>>(),
    );
    let conditions =
        option::of(flags.prop_map(
            |(ready, serving, terminating)| discovery::EndpointConditions {
                ready,
                serving,
                terminating,
            },
        ));
    let hints = option::of(
        (vec(name(), 0..3), vec(name(), 0..3)).prop_map(|(zones, nodes)| {
            let zone = |name| discovery::ForZone { name: Some(name) };
            let node = |name| discovery::ForNode { name: Some(name) };
            discovery::EndpointHints {
                for_zones: zones.into_iter().map(zone).collect(),
                for_nodes: nodes.into_iter().map(node).collect(),
            }
        }),
    );
    let endpoint = (vec(ip(), 0..3), conditions, option::of(name()), hints);
    let endpoints = vec(
        endpoint.prop_map(
            |(addresses, conditions, node_name, hints)| discovery::Endpoint {
                addresses,
                conditions,
                node_name,
                hints,
                zone: Some("zone-a".into()),
                ..Default::default()
            },
        ),
        0..6,
    );
    let port = (option::of(name()), protocol(), option::of(port()));
    let ports = vec(
        port.prop_map(|(name, protocol, port)| discovery::EndpointPort {
            name,
            protocol,
            port,
            ..Default::default()
        }),
        0..4,
    );
    let kind = option::of(text(&["IPv4", "IPv6", "FQDN", "IPX"]));
    (metadata(), kind, endpoints, ports).prop_map(|(metadata, address_type, endpoints, ports)| {
        discovery::EndpointSlice {
            metadata: Some(metadata),
            address_type,
            endpoints,
            ports,
        }
    })
}

fn endpoints() -> impl Strategy<Value = core::Endpoints> {
    let address = || {
        let address = (option::of(ip()), option::of(name()));
        address.prop_map(|(ip, node_name)| core::EndpointAddress {
            ip,
            node_name,
            ..Default::default()
        })
    };
    let port = (option::of(name()), protocol(), option::of(port()));
    let port = port.prop_map(|(name, protocol, port)| core::EndpointPort {
        name,
        port,
        protocol,
        app_protocol: None,
    });
    let subset = (vec(address(), 0..4), vec(address(), 0..3), vec(port, 0..3)).prop_map(
        |(addresses, not_ready_addresses, ports)| core::EndpointSubset {
            addresses,
            not_ready_addresses,
            ports,
        },
    );
    (metadata(), vec(subset, 0..3)).prop_map(|(metadata, subsets)| core::Endpoints {
        metadata: Some(metadata),
        subsets,
    })
}

fn node() -> impl Strategy<Value = core::Node> {
    let sort = text(&["InternalIP", "ExternalIP", "Hostname"]);
    let address =
        (option::of(sort), option::of(ip())).prop_map(|(sort, address)| core::NodeAddress {
            r#type: sort,
            address,
        });
    let key = text(&[
        "ToBeDeletedByClusterAutoscaler",
        "node.kubernetes.io/not-ready",
    ]);
    let taint = key.prop_map(|key| core::Taint {
        key: Some(key),
        ..Default::default()
    });
    let spec = (option::of(net()), vec(net(), 0..3), vec(taint, 0..3));
    (metadata(), vec(address, 0..4), spec).prop_map(|(metadata, addresses, spec)| core::Node {
        metadata: Some(metadata),
        spec: Some(core::NodeSpec {
            pod_cidr: spec.0,
            pod_cid_rs: spec.1,
            taints: spec.2,
            ..Default::default()
        }),
        status: Some(core::NodeStatus {
            addresses,
            ..Default::default()
        }),
    })
}

fn cidr() -> impl Strategy<Value = networking::ServiceCIDR> {
    (metadata(), vec(net(), 0..3)).prop_map(|(metadata, cidrs)| networking::ServiceCIDR {
        metadata: Some(metadata),
        spec: Some(networking::ServiceCIDRSpec { cidrs }),
        status: None,
    })
}

/// Any object.
pub(crate) fn object() -> impl Strategy<Value = Object> {
    prop_oneof![
        service().prop_map(Object::Service),
        slice().prop_map(Object::Slice),
        endpoints().prop_map(Object::Endpoints),
        node().prop_map(Object::Node),
        cidr().prop_map(Object::Cidr),
    ]
}
