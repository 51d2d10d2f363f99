//! What files say, as facts and as complaints.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may end at the first surprise; clippy knows only #[test] functions as tests"
)]

use std::net::IpAddr;

use sluice_model::fact::{Conditions, Endpoint, Fact, Family, Protocol, Service, Slice};
use sluice_model::name::{Names, ObjectKey};
use sluice_source::manifest::{Outcome, Parsed, facts_from_str};

fn read(text: &str) -> Parsed {
    facts_from_str("web.yaml", text, &mut Names::default())
}

fn complaints(text: &str) -> Vec<String> {
    let parsed = read(text);
    parsed.problems.iter().map(ToString::to_string).collect()
}

fn service(parsed: &Parsed, at: usize) -> Service {
    match parsed.facts.get(at) {
        Some(Fact::Service(_, Some(service))) => (**service).clone(),
        other => panic!("no service at {at}: {other:?}"),
    }
}

fn slice(parsed: &Parsed, at: usize) -> Slice {
    match parsed.facts.get(at) {
        Some(Fact::Slice(_, Some(slice))) => (**slice).clone(),
        other => panic!("no slice at {at}: {other:?}"),
    }
}

fn keys(parsed: &Parsed) -> Vec<String> {
    let name = |fact: &Fact| match fact {
        Fact::Service(key, _) => format!("Service {key}"),
        Fact::Slice(key, _) => format!("EndpointSlice {key}"),
        Fact::Endpoints(key, _) => format!("Endpoints {key}"),
        Fact::Node(name, _) => format!("Node {name}"),
        Fact::Cidrs(name, _) => format!("ServiceCIDR {name}"),
        Fact::LocalAddresses(_) | Fact::Begin(_) | Fact::Synced(_) => panic!("{fact:?}"),
    };
    parsed.facts.iter().map(name).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn the_examples_have_no_problems() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let mut services = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let parsed = facts_from_str(&path.display().to_string(), &text, &mut Names::default());
        assert_eq!(parsed.problems, [], "{}", path.display());
        let is_service = |fact: &&Fact| matches!(fact, Fact::Service(..));
        services += parsed.facts.iter().filter(is_service).count();
    }
    assert_eq!(services, 9);
}

#[test]
fn a_service_as_kubectl_prints_it() {
    let parsed = read(
        r#"
apiVersion: v1
kind: Service
metadata:
  creationTimestamp: "2024-02-29T12:30:00Z"
  name: web
  namespace: shop
  resourceVersion: "1234"
spec:
  allocateLoadBalancerNodePorts: true
  clusterIP: 10.96.0.10
  clusterIPs:
  - 10.96.0.10
  - fd00:10:96::10
  externalIPs:
  - 192.0.2.50
  externalTrafficPolicy: Local
  healthCheckNodePort: 30999
  internalTrafficPolicy: Cluster
  ipFamilies:
  - IPv4
  - IPv6
  loadBalancerSourceRanges:
  - " 192.0.2.0/24 "
  ports:
  - name: http
    nodePort: 30080
    port: 80
    protocol: TCP
    targetPort: 8080
  selector: {app: web}
  sessionAffinity: ClientIP
  type: LoadBalancer
status:
  loadBalancer:
    ingress:
    - ip: 203.0.113.1
      ipMode: VIP
    - ip: 203.0.113.2
      ipMode: Proxy
    - hostname: lb.example
"#,
    );
    assert_eq!(parsed.problems, []);
    assert_eq!(keys(&parsed), ["Service shop/web"]);
    let service = service(&parsed, 0);
    assert_eq!(service.created, Some(1_709_209_800));
    assert_eq!(
        service.cluster_ips,
        [ip("10.96.0.10"), ip("fd00:10:96::10")]
    );
    assert_eq!(service.families, Family::ALL);
    assert_eq!(service.affinity_seconds, Some(10_800));
    assert_eq!(service.health_check_node_port, 30_999);
    assert_eq!(
        service.source_ranges.nets,
        ["192.0.2.0/24".parse().unwrap()]
    );
    let ingress: Vec<_> = service.ingress.iter().map(|i| (i.ip, i.proxied)).collect();
    let expected = [(ip("203.0.113.1"), false), (ip("203.0.113.2"), true)];
    assert_eq!(ingress, expected);
    let port = &service.ports[0];
    assert_eq!(
        (&*port.name, port.port, port.node_port),
        ("http", 80, 30_080)
    );
}

#[test]
fn a_slice_keeps_conditions_hints_and_order() {
    let parsed = read(
        r#"
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-abc
  annotations: {endpoints.kubernetes.io/last-change-trigger-time: "1970-01-01T00:00:01.5Z"}
  labels: {kubernetes.io/service-name: web, service.kubernetes.io/headless: ""}
addressType: IPv6
ports:
- {name: "", port: 8080, protocol: UDP}
endpoints:
- addresses: ["fd00::2", "fd00::3"]
  conditions: {ready: false, serving: true, terminating: true}
  nodeName: node-a
  hints: {forZones: [{name: zone-a}], forNodes: [{name: node-a}]}
- addresses: ["fd00::1"]
"#,
    );
    assert_eq!(parsed.problems, []);
    let slice = slice(&parsed, 0);
    assert_eq!(slice.service.as_deref(), Some("web"));
    assert!(slice.headless);
    assert_eq!(slice.family, Some(Family::V6));
    assert_eq!(slice.triggered, Some(1_500_000_000));
    assert_eq!(slice.ports[0].protocol, Protocol::Udp);
    let [first, second] = &slice.endpoints[..] else {
        panic!("{:?}", slice.endpoints)
    };
    assert_eq!(first.ip, ip("fd00::2"));
    let terminating = Conditions {
        ready: false,
        serving: true,
        terminating: true,
    };
    assert_eq!(first.conditions, terminating);
    let hints = first.hints.as_ref().unwrap();
    assert_eq!((&*hints.zones[0], &*hints.nodes[0]), ("zone-a", "node-a"));
    assert_eq!(second.conditions, Conditions::new(None, None, None));
    assert_eq!(
        (second.node.as_deref(), second.hints.as_ref()),
        (None, None)
    );
}

#[test]
fn endpoints_become_one_slice_per_subset_and_family() {
    let parsed = read(
        r#"
apiVersion: v1
kind: Endpoints
metadata: {name: old}
subsets:
- addresses: [{ip: 198.51.100.1, nodeName: node-a}, {ip: "fd00::1"}]
  notReadyAddresses: [{ip: 198.51.100.2}]
  ports: [{name: http, port: 8080}]
"#,
    );
    assert_eq!(parsed.problems, []);
    let Some(Fact::Endpoints(key, Some(slices))) = parsed.facts.first() else {
        panic!("{:?}", parsed.facts)
    };
    assert_eq!(*key, ObjectKey::new("default", "old"));
    let shape: Vec<_> = slices
        .iter()
        .map(|s| {
            (
                s.family,
                s.endpoints
                    .iter()
                    .map(|e: &Endpoint| (e.ip, e.conditions.ready)),
            )
        })
        .map(|(family, endpoints)| (family, endpoints.collect::<Vec<_>>()))
        .collect();
    let v4 = vec![(ip("198.51.100.1"), true), (ip("198.51.100.2"), false)];
    let v6 = vec![(ip("fd00::1"), true)];
    assert_eq!(shape, [(Some(Family::V4), v4), (Some(Family::V6), v6)]);
    assert_eq!(slices[0].service.as_deref(), Some("old"));
}

#[test]
fn nodes_and_service_cidrs() {
    let parsed = read(
        r#"
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {topology.kubernetes.io/zone: z}}
spec:
  podCIDR: 198.51.100.0/25
  taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}]
status:
  addresses:
  - {type: Hostname, address: node-a}
  - {type: ExternalIP, address: 203.0.113.5}
  - {type: InternalIP, address: 192.0.2.11}
---
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/16]}
"#,
    );
    assert_eq!(parsed.problems, []);
    let Some(Fact::Node(_, Some(node))) = parsed.facts.first() else {
        panic!("{:?}", parsed.facts)
    };
    assert_eq!(node.addresses, [ip("192.0.2.11"), ip("203.0.113.5")]);
    assert_eq!(node.pod_cidrs, ["198.51.100.0/25".parse().unwrap()]);
    assert_eq!(node.zone.as_deref(), Some("z"));
    assert!(node.leaving);
    let cidrs = vec!["10.96.0.0/16".parse().unwrap()];
    assert_eq!(
        parsed.facts[1],
        Fact::Cidrs("kubernetes".into(), Some(cidrs))
    );
}

#[test]
fn lists_of_both_sorts_and_json_are_read() {
    let parsed = read(
        r#"
apiVersion: v1
items:
- {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}
kind: List
---
items:
- {metadata: {name: b}, spec: {clusterIP: None}}
kind: ServiceList
apiVersion: v1
"#,
    );
    assert_eq!(parsed.problems, []);
    assert_eq!(keys(&parsed), ["Service default/a", "Service default/b"]);
    assert!(service(&parsed, 0).headless);
    let json = "{\n\t\"apiVersion\": \"v1\", \"kind\": \"Service\",\n\t\"metadata\": {\"name\": \"j\", \
                \"annotations\": {\"a/b\": \"\\ud83d\\ude00\\/\"}},\n\t\"spec\": {\"clusterIP\": \"None\"}}\n";
    assert_eq!(keys(&read(json)), ["Service default/j"]);
}

#[test]
fn what_the_api_server_would_refuse_is_named_with_its_place_and_the_rest_counts() {
    let text = "apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.10
  ports:
  - {name: http, port: 0}
  - {name: a, port: 80}
  - {name: a, port: 81}
  externalIPs: [300.1.1.1, 010.0.0.1, 127.0.0.1]
";
    assert_eq!(
        complaints(text),
        [
            "web.yaml:7:24: Service default/web: spec.ports[0].port: 0: must be a whole number \
             from 1 to 65535",
            "web.yaml:9:5: Service default/web: spec.ports[2]: a mapping: has the name \"a\" of a \
             port before it: names must differ",
            "web.yaml:10:17: Service default/web: spec.externalIPs[0]: \"300.1.1.1\": must be an \
             IP address such as 192.0.2.1 or 2001:db8::1",
            "web.yaml:10:39: Service default/web: spec.externalIPs[2]: \"127.0.0.1\": must not be \
             a loopback address",
        ]
    );
    let service = service(&read(text), 0);
    assert_eq!(service.ports.len(), 1);
    assert_eq!(service.external_ips, [ip("10.0.0.1")]);
}

#[test]
fn what_manifests_do_not_get_allocated_is_said() {
    let text = "apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  ports: [{port: 80}]
";
    assert_eq!(
        complaints(text),
        [
            "web.yaml:5:3: Service default/web: spec.clusterIP: missing: nothing is served: \
             manifests get no address allocated, write one",
            "web.yaml:6:11: Service default/web: spec.ports[0].nodePort: missing: no node port is \
             served: manifests get none allocated, write one",
        ]
    );
    assert_eq!(service(&read(text), 0).cluster_ips, [] as [IpAddr; 0]);
}

#[test]
fn a_slice_of_another_family_or_of_no_service_is_named() {
    let text = "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s}
addressType: IPv4
endpoints:
- addresses: [\"fd00::1\"]
";
    assert_eq!(
        complaints(text),
        [
            "web.yaml:1:1: EndpointSlice default/s: metadata.labels: incomplete: belongs to no \
             service: give it the label kubernetes.io/service-name",
            "web.yaml:6:15: EndpointSlice default/s: endpoints[0].addresses[0]: \"fd00::1\": must \
             be IPv4, as addressType says: use another slice for it",
        ]
    );
}

#[test]
fn other_kinds_are_skipped_with_one_notice() {
    let text = "apiVersion: apps/v1
kind: Deployment
metadata: {name: x}
---
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: x}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: y}
";
    assert_eq!(
        complaints(text),
        [
            "web.yaml:1:1: kinds a service proxy has no use for are skipped: apps/v1 Deployment (2 \
          times), serving.knative.dev/v1 Service"
        ]
    );
}

#[test]
fn what_is_no_object_does_not_hide_what_is() {
    let text = "hello
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None}
---
a: b
---
apiVersion: v1
kind: Service
metadata: {name: Web}
---
apiVersion: discovery.k8s.io/v1beta1
kind: EndpointSlice
metadata: {name: web-1}
";
    assert_eq!(
        complaints(text),
        [
            "web.yaml:1:1: cannot be read: invalid type: string \"hello\", expected a Kubernetes \
             object, which is a mapping with apiVersion, kind and metadata",
            "web.yaml:8:1: is no Kubernetes object: apiVersion and kind must say what it is",
            "web.yaml:12:18: Service: metadata.name: \"Web\": must be lower-case letters, digits, \
             - and ., at most 253 of them",
            "web.yaml:14:1: EndpointSlice: apiVersion \"discovery.k8s.io/v1beta1\" is not served: \
             use v1 of that group",
        ]
    );
    assert_eq!(keys(&read(text)), ["Service default/web"]);
}

#[test]
fn broken_yaml_is_named_with_line_and_column_of_the_file() {
    let text = "apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: None}
---
apiVersion: v1
kind: Service
metadata: {name: other}
  bad: indent
";
    let parsed = read(text);
    assert_eq!(parsed.outcome, Outcome::Broken);
    assert_eq!(keys(&parsed), ["Service default/web"]);
    assert_eq!(
        complaints(text),
        ["web.yaml:9:3: cannot be read: while parsing a block mapping, did not find expected key"]
    );
}

#[test]
fn an_object_given_twice_counts_as_last_written() {
    let text = "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}
---
{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: 10.0.0.1, ports: [{port: 1}]}}
";
    assert_eq!(
        complaints(text),
        ["web.yaml:3:2: Service default/a: is also at line 1; this one counts: remove one of them"]
    );
    assert!(!service(&read(text), 0).headless);
    assert_eq!(read(text).facts.len(), 1);
}

#[test]
fn a_key_given_twice_is_named_and_the_last_counts() {
    let text = "apiVersion: v1
kind: Service
metadata: {name: a}
spec:
  clusterIP: 10.0.0.1
  clusterIP: 10.0.0.2
  ports: [{port: 80}]
";
    assert_eq!(
        complaints(text),
        [
            "web.yaml:6:3: Service default/a: clusterIP: given twice: the last one counts: remove \
          the other"
        ]
    );
    assert_eq!(service(&read(text), 0).cluster_ips, [ip("10.0.0.2")]);
}

#[test]
fn an_empty_file_says_nothing() {
    for text in ["", "\n# only a comment\n---\n", "\u{feff}---\n...\n"] {
        assert_eq!(read(text), Parsed::default(), "{text:?}");
    }
}

#[test]
fn junk_is_never_a_panic() {
    for text in [
        "\0",
        "{",
        "[",
        "- - -",
        "&a [*a]",
        "*x",
        "--- !!binary x",
        "a: &a [*a, *a]",
        "? ? ?",
        "items: 5",
        "{items: [null], kind: List, apiVersion: v1}",
    ] {
        let parsed = read(text);
        assert_eq!(parsed.facts, [], "{text:?}");
        assert!(!parsed.problems.is_empty(), "{text:?}");
    }
}
