//! Bytes to facts.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;
use sluice_model::fact::{
    Conditions, Endpoint, Fact, Family, Hints, Ingress, Node, Problem, Protocol, Service,
    ServicePort, ServiceType, Slice, SlicePort, SourceRanges, TrafficPolicy,
};
use sluice_model::name::{Names, ObjectKey};
use sluice_source::api::decode::{
    DecodeError, Event, Fault, ListState, Page, Status, Version, event, page, status,
};
use sluice_source::api::{Encoding, Resource};

use crate::draws::object;
use crate::objects::{
    Object, bookmark, envelope, event_json, event_protobuf, list_json, list_protobuf, status_json,
    status_protobuf,
};

fn read_page(
    resource: Resource,
    encoding: Encoding,
    body: &[u8],
) -> Result<(Page, Vec<Fact>), DecodeError> {
    let mut facts = Vec::new();
    let page = page(resource, encoding, body, &mut Names::default(), &mut facts)?;
    Ok((page, facts))
}

fn read_event(
    resource: Resource,
    encoding: Encoding,
    frame: &[u8],
) -> Result<Option<Event>, DecodeError> {
    event(resource, encoding, frame, &mut Names::default())
}

fn both(sort: &str, object: &Object) -> [Result<Option<Event>, DecodeError>; 2] {
    let resource = object.resource();
    let json = event_json(sort, &object.json()).to_string();
    [
        read_event(
            resource,
            Encoding::Protobuf,
            &event_protobuf(sort, object.protobuf()),
        ),
        read_event(resource, Encoding::Json, json.as_bytes()),
    ]
}

proptest! {
    #[test]
    fn both_encodings_of_an_object_give_the_same_event(object in object()) {
        let object = object.at_version(77);
        for sort in ["ADDED", "MODIFIED", "DELETED"] {
            let [protobuf, json] = both(sort, &object);
            prop_assert!(protobuf.is_ok(), "{protobuf:?}");
            prop_assert_eq!(protobuf, json);
        }
    }

    #[test]
    fn both_encodings_of_a_list_give_the_same_facts(objects in vec(object(), 0..12)) {
        for resource in Resource::ALL {
            let of_kind = |object: &&Object| object.resource() == resource;
            let items: Vec<Object> = objects.iter().filter(of_kind).cloned().collect();
            let body = list_protobuf(resource, &items, 42, "next");
            let protobuf = read_page(resource, Encoding::Protobuf, &body).unwrap();
            let body = list_json(resource, &items, 42, "next").to_string();
            let json = read_page(resource, Encoding::Json, body.as_bytes()).unwrap();
            prop_assert_eq!(&protobuf, &json);
            prop_assert_eq!(protobuf.1.len(), items.len());
            prop_assert_eq!(protobuf.0, Page {
                version: Version::Number(42),
                rest: Some("next".into()),
            });
        }
    }

    #[test]
    fn garbage_is_refused_or_read_but_never_ends_the_process(bytes in vec(any::<u8>(), 0..200)) {
        for resource in Resource::ALL {
            for encoding in [Encoding::Protobuf, Encoding::Json] {
                let read = read_page(resource, encoding, &bytes);
                prop_assert!(read.is_err());
                read_event(resource, encoding, &bytes).ok();
                prop_assert_eq!(status(encoding, &bytes), None);
            }
            let enveloped = envelope(&format!("{}List", resource.kind()), bytes.clone());
            read_page(resource, Encoding::Protobuf, &enveloped).ok();
            let object = envelope(resource.kind(), bytes.clone());
            let frame = event_protobuf("ADDED", object);
            read_event(resource, Encoding::Protobuf, &frame).ok();
        }
    }

    #[test]
    fn a_byte_that_is_damaged_never_ends_the_process(
        object in object(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let resource = object.resource();
        let mut frame = event_protobuf("MODIFIED", object.protobuf());
        let mut json = event_json("MODIFIED", &object.json()).to_string().into_bytes();
        for (index, byte) in damage {
            let at = index.index(frame.len());
            frame[at] = byte;
            let at = index.index(json.len());
            json[at] = byte;
        }
        read_event(resource, Encoding::Protobuf, &frame).ok();
        read_event(resource, Encoding::Json, &json).ok();
    }
}

proptest! {
    // Each case reads its frame once for every byte of it.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_frame_that_is_cut_anywhere_is_refused(object in object()) {
        let resource = object.resource();
        let frame = event_protobuf("ADDED", object.protobuf());
        let json = event_json("ADDED", &object.json()).to_string();
        for end in 0..frame.len() {
            prop_assert!(read_event(resource, Encoding::Protobuf, &frame[..end]).is_err());
        }
        for end in 0..json.len() {
            prop_assert!(read_event(resource, Encoding::Json, &json.as_bytes()[..end]).is_err());
        }
    }
}

/// Reads JSON; the tests above show that protobuf reads the same.
fn fact(resource: Resource, object: serde_json::Value) -> Fact {
    let frame = event_json("ADDED", &object).to_string();
    match read_event(resource, Encoding::Json, frame.as_bytes()) {
        Ok(Some(Event::Change { fact, .. })) => fact,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_service_says_what_its_fields_say() {
    let read = fact(
        Resource::Services,
        serde_json::json!({
            "kind": "Service",
            "metadata": {
                "name": "web", "namespace": "shop", "resourceVersion": "7",
                "creationTimestamp": "1970-01-02T00:00:00Z",
            },
            "spec": {
                "type": "LoadBalancer", "clusterIP": "192.0.2.10",
                "clusterIPs": ["192.0.2.10", "2001:db8::10"], "ipFamilies": ["IPv4", "IPv6"],
                "externalIPs": ["198.51.100.7", "", "fe80::1"],
                "loadBalancerSourceRanges": ["203.0.113.0/24", "everywhere"],
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 30123,
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080,
                    "targetPort": "web"}],
            },
            "status": {"loadBalancer": {"ingress": [
                {"ip": "203.0.113.9", "ipMode": "Proxy"}, {"hostname": "lb.example"},
            ]}},
        }),
    );
    let expected = Service {
        created: Some(86_400),
        service_type: ServiceType::LoadBalancer,
        families: vec![Family::V4, Family::V6],
        cluster_ips: vec![
            "192.0.2.10".parse().unwrap(),
            "2001:db8::10".parse().unwrap(),
        ],
        external_ips: vec!["198.51.100.7".parse().unwrap()],
        ingress: vec![Ingress {
            ip: "203.0.113.9".parse().unwrap(),
            proxied: true,
        }],
        source_ranges: SourceRanges {
            given: true,
            nets: vec!["203.0.113.0/24".parse().unwrap()],
        },
        external_policy: TrafficPolicy::Local,
        affinity_seconds: Some(60),
        health_check_node_port: 30123,
        ports: vec![ServicePort {
            name: "http".into(),
            protocol: Protocol::Tcp,
            port: 80,
            node_port: 30080,
        }],
        problems: vec![
            Problem::new(
                "spec.externalIPs[2]",
                "fe80::1",
                "must not be a link-local address",
            ),
            Problem::new(
                "spec.loadBalancerSourceRanges",
                "everywhere",
                "must be a range such as 192.0.2.0/24 or 2001:db8::/64",
            ),
        ],
        ..Service::default()
    };
    let key = ObjectKey::new("shop", "web");
    assert_eq!(read, Fact::Service(key, Some(Box::new(expected))));
}

#[test]
fn a_slice_says_what_its_fields_say() {
    let read = fact(
        Resource::Slices,
        serde_json::json!({
            "kind": "EndpointSlice",
            "metadata": {
                "name": "web-1", "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "web"},
                "annotations": {
                    "endpoints.kubernetes.io/last-change-trigger-time": "1970-01-01T00:00:01Z",
                },
            },
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["198.51.100.5", "198.51.100.6"], "conditions": {"ready": false},
                 "nodeName": "node-a", "hints": {"forZones": [{"name": "zone-a"}]}},
                {"addresses": ["2001:db8::5"], "conditions": {}},
            ],
            "ports": [{"name": "", "protocol": "UDP", "port": 53}, {"port": null}],
        }),
    );
    let expected = Slice {
        service: Some("web".into()),
        headless: false,
        family: Some(Family::V4),
        ports: vec![
            SlicePort {
                name: Some("".into()),
                protocol: Protocol::Udp,
                port: Some(53),
            },
            SlicePort {
                name: None,
                protocol: Protocol::Tcp,
                port: None,
            },
        ],
        endpoints: vec![Endpoint {
            ip: "198.51.100.5".parse().unwrap(),
            conditions: Conditions::new(Some(false), None, None),
            node: Some("node-a".into()),
            hints: Some(Box::new(Hints {
                zones: vec!["zone-a".into()],
                nodes: Vec::new(),
            })),
        }],
        triggered: Some(1_000_000_000),
        problems: vec![Problem::new(
            "endpoints[1].addresses[0]",
            "2001:db8::5",
            "must be of the slice's addressType",
        )],
    };
    let key = ObjectKey::new("shop", "web-1");
    assert_eq!(read, Fact::Slice(key, Some(Box::new(expected))));
}

#[test]
fn endpoints_of_two_families_become_two_slices() {
    let read = fact(
        Resource::Endpoints,
        serde_json::json!({
            "kind": "Endpoints",
            "metadata": {"name": "web", "namespace": "shop"},
            "subsets": [{
                "addresses": [{"ip": "198.51.100.5", "nodeName": "node-a"}],
                "notReadyAddresses": [{"ip": "2001:db8::5"}],
                "ports": [{"port": 8080}],
            }],
        }),
    );
    let slice = |family, ip: &str, ready, node: Option<&str>| Slice {
        service: Some("web".into()),
        family: Some(family),
        ports: vec![SlicePort {
            name: Some("".into()),
            protocol: Protocol::Tcp,
            port: Some(8080),
        }],
        endpoints: vec![Endpoint {
            ip: ip.parse().unwrap(),
            conditions: Conditions {
                ready,
                serving: ready,
                terminating: false,
            },
            node: node.map(Into::into),
            hints: None,
        }],
        ..Slice::default()
    };
    let expected = vec![
        slice(Family::V4, "198.51.100.5", true, Some("node-a")),
        slice(Family::V6, "2001:db8::5", false, None),
    ];
    let key = ObjectKey::new("shop", "web");
    assert_eq!(read, Fact::Endpoints(key, Some(expected)));
}

#[test]
fn a_node_has_its_internal_addresses_first() {
    let read = fact(
        Resource::Node,
        serde_json::json!({
            "kind": "Node",
            "metadata": {"name": "node-a", "labels": {"topology.kubernetes.io/zone": "zone-a"}},
            "spec": {"podCIDR": "198.51.100.0/26",
                "taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]},
            "status": {"addresses": [
                {"type": "ExternalIP", "address": "203.0.113.1"},
                {"type": "Hostname", "address": "node-a"},
                {"type": "InternalIP", "address": "192.0.2.1"},
            ]},
        }),
    );
    let expected = Node {
        addresses: vec!["192.0.2.1".parse().unwrap(), "203.0.113.1".parse().unwrap()],
        pod_cidrs: vec!["198.51.100.0/26".parse().unwrap()],
        zone: Some("zone-a".into()),
        leaving: true,
        problems: Vec::new(),
    };
    assert_eq!(read, Fact::Node("node-a".into(), Some(Box::new(expected))));
}

#[test]
fn a_headless_service_has_no_addresses() {
    let object = serde_json::json!({
        "kind": "Service", "metadata": {"name": "db", "namespace": "shop"},
        "spec": {"clusterIP": "None", "clusterIPs": ["None"]},
    });
    let Fact::Service(_, Some(service)) = fact(Resource::Services, object) else {
        panic!("no service");
    };
    assert!(service.headless && service.cluster_ips.is_empty() && service.problems.is_empty());
}

fn named(resource: Resource) -> Object {
    let mut object = bookmark(resource, 5, false);
    object.meta().name = Some("thing".into());
    object.meta().namespace = Some("shop".into());
    object
}

#[test]
fn a_deleted_object_is_gone_by_its_key() {
    let [protobuf, json] = both("DELETED", &named(Resource::Slices));
    let expected = Event::Change {
        fact: Fact::Slice(ObjectKey::new("shop", "thing"), None),
        version: Version::Number(5),
    };
    assert_eq!(protobuf, Ok(Some(expected)));
    assert_eq!(protobuf, json);
}

#[test]
fn bookmarks_tell_the_end_of_a_streamed_list() {
    for (complete, list) in [(false, ListState::Unsaid), (true, ListState::Complete)] {
        for resource in Resource::ALL {
            let expected = Event::Bookmark {
                version: Version::Number(9),
                list,
            };
            for read in both("BOOKMARK", &bookmark(resource, 9, complete)) {
                assert_eq!(read, Ok(Some(expected.clone())));
            }
        }
    }
}

#[test]
fn an_error_event_carries_its_status() {
    let expected = Status {
        code: 410,
        reason: "Expired".into(),
        message: "too old resource version: 1 (2)".into(),
        ..Status::default()
    };
    let (code, reason, message) = (410, "Expired", "too old resource version: 1 (2)");
    let frame = event_protobuf("ERROR", status_protobuf(code, reason, message));
    let read = read_event(Resource::Node, Encoding::Protobuf, &frame);
    assert_eq!(read, Ok(Some(Event::Error(expected.clone()))));
    let frame = event_json("ERROR", &status_json(code, reason, message)).to_string();
    let read = read_event(Resource::Node, Encoding::Json, frame.as_bytes());
    assert_eq!(read, Ok(Some(Event::Error(expected.clone()))));
    let body = status_protobuf(code, reason, message);
    assert_eq!(status(Encoding::Protobuf, &body), Some(expected.clone()));
    let body = status_json(code, reason, message).to_string();
    assert_eq!(status(Encoding::Json, body.as_bytes()), Some(expected));
}

#[test]
fn an_unknown_sort_of_event_is_passed_over() {
    for read in both("RENAMED", &named(Resource::Services)) {
        assert_eq!(read, Ok(None));
    }
}

#[test]
fn fields_that_are_not_known_yet_are_skipped() {
    let object = named(Resource::Services);
    let mut raw = object.bare();
    let expected = both("ADDED", &object)[0].clone();
    prost::encoding::uint64::encode(900, &7, &mut raw);
    prost::encoding::fixed32::encode(901, &7, &mut raw);
    prost::encoding::fixed64::encode(902, &7, &mut raw);
    prost::encoding::string::encode(903, &"new".to_owned(), &mut raw);
    let frame = event_protobuf("ADDED", envelope("Service", raw));
    assert_eq!(
        read_event(Resource::Services, Encoding::Protobuf, &frame),
        expected
    );
}

#[test]
fn odd_bytes_in_an_annotation_do_not_make_an_object_unreadable() {
    let mut object = named(Resource::Services);
    let expected = both("ADDED", &object)[0].clone();
    object
        .meta()
        .annotations
        .insert("note".into(), "abcd".into());
    let mut frame = event_protobuf("ADDED", object.protobuf());
    let at = frame.windows(4).position(|bytes| bytes == b"abcd").unwrap();
    frame[at..at + 4].copy_from_slice(&[0xff, 0xfe, 0x80, 0xc0]);
    assert_eq!(
        read_event(Resource::Services, Encoding::Protobuf, &frame),
        expected
    );
}

#[test]
fn an_error_names_the_object_the_field_and_the_place() {
    let mut object = named(Resource::Slices);
    let Object::Slice(slice) = &mut object else {
        panic!("no slice");
    };
    slice.address_type = Some("IPv4".into());
    slice.endpoints.push(k8s_pb::api::discovery::v1::Endpoint {
        addresses: vec!["zzzz".into()],
        ..Default::default()
    });
    let mut frame = event_protobuf("ADDED", object.protobuf());
    let at = frame.windows(4).position(|bytes| bytes == b"zzzz").unwrap();
    frame[at] = 0xff;
    let error = read_event(Resource::Slices, Encoding::Protobuf, &frame).unwrap_err();
    let expected = DecodeError {
        kind: "EndpointSlice",
        object: "shop/thing".into(),
        field: "endpoints.addresses",
        offset: at,
        fault: Fault::NotUtf8,
    };
    assert_eq!(error, expected);
    assert_eq!(
        error.to_string(),
        format!("EndpointSlice shop/thing: endpoints.addresses at byte {at}: is not UTF-8")
    );
}

#[test]
fn an_object_of_another_kind_is_refused() {
    let object = named(Resource::Services);
    let frame = event_protobuf("ADDED", object.protobuf());
    let error = read_event(Resource::Slices, Encoding::Protobuf, &frame).unwrap_err();
    assert_eq!(error.fault, Fault::OtherKind);
    let body = list_protobuf(Resource::Services, &[object], 1, "");
    let error = read_page(Resource::Node, Encoding::Protobuf, &body).unwrap_err();
    assert_eq!(error.fault, Fault::OtherKind);
}

#[test]
fn an_object_without_a_name_is_refused() {
    for read in both("ADDED", &bookmark(Resource::Node, 1, false)) {
        assert_eq!(read.unwrap_err().fault, Fault::Missing);
    }
}

#[test]
fn a_kept_event_costs_no_more_than_its_facts() {
    // Names are shared: a thousand endpoints on one node hold one copy of its name.
    let endpoint = k8s_pb::api::discovery::v1::Endpoint {
        addresses: vec!["198.51.100.5".into()],
        node_name: Some("node-a".into()),
        ..Default::default()
    };
    let mut object = named(Resource::Slices);
    if let Object::Slice(slice) = &mut object {
        slice.address_type = Some("IPv4".into());
        slice.endpoints = vec![endpoint; 1000];
        assert!(slice.encoded_len() > 1000);
    }
    let [Ok(Some(Event::Change { fact, .. })), _] = both("ADDED", &object) else {
        panic!("no change");
    };
    let Fact::Slice(_, Some(slice)) = fact else {
        panic!("no slice");
    };
    let first = slice.endpoints[0].node.as_deref().unwrap().as_ptr();
    let shared = |e: &Endpoint| e.node.as_deref().unwrap().as_ptr() == first;
    assert!(slice.endpoints.len() == 1000 && slice.endpoints.iter().all(shared));
}
