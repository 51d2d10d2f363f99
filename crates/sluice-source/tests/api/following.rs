//! A server is followed through whatever happens. Time is paused: what waits for minutes here
//! takes none.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_model::fact::Kind;
use sluice_source::api::{Access, AccessError, ApiSource, Encoding, Notice, Resource};

use crate::mirror::{Mirror, fact_of, facts_of, options};
use crate::objects::Object;
use crate::server::{Dice, Server, Trouble};

/// Soon: no waiting for a back-off or a watch's end.
const SOON: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// A service `name` at 192.0.2.`last`.
fn service(name: &str, last: u8) -> Object {
    let mut service = k8s_pb::api::core::v1::Service::default();
    let spec = service.spec.get_or_insert_default();
    spec.cluster_ip = Some(format!("192.0.2.{last}"));
    spec.ports.push(k8s_pb::api::core::v1::ServicePort {
        name: Some("http".into()),
        protocol: Some("TCP".into()),
        port: Some(80),
        ..Default::default()
    });
    named(Object::Service(service), name)
}

fn slice(name: &str, last: u8) -> Object {
    let endpoint = k8s_pb::api::discovery::v1::Endpoint {
        addresses: vec![format!("198.51.100.{last}")],
        ..Default::default()
    };
    let slice = k8s_pb::api::discovery::v1::EndpointSlice {
        address_type: Some("IPv4".into()),
        endpoints: vec![endpoint],
        ..Default::default()
    };
    named(Object::Slice(slice), name)
}

fn endpoints(name: &str, last: u8) -> Object {
    let mut object = k8s_pb::api::core::v1::Endpoints::default();
    object.subsets.push(k8s_pb::api::core::v1::EndpointSubset {
        addresses: vec![k8s_pb::api::core::v1::EndpointAddress {
            ip: Some(format!("198.51.100.{last}")),
            ..Default::default()
        }],
        ..Default::default()
    });
    named(Object::Endpoints(object), name)
}

fn named(mut object: Object, name: &str) -> Object {
    object.meta().name = Some(name.into());
    object.meta().namespace = Some("default".into());
    object
}

fn cluster_scoped(mut object: Object, name: &str) -> Object {
    object.meta().name = Some(name.into());
    object
}

/// A server with a few objects of each kind.
async fn server() -> Server {
    let server = Server::start().await;
    server.with(|store| {
        for number in 0..7 {
            store.put(service(&format!("web-{number}"), number));
            store.put(slice(&format!("web-{number}-x"), number));
        }
        store.put(cluster_scoped(Object::Node(Default::default()), "node-a"));
        store.put(cluster_scoped(
            Object::Cidr(Default::default()),
            "kubernetes",
        ));
    });
    server
}

async fn synced(server: &Server) -> Mirror {
    let mut mirror = Mirror::of(server).await;
    mirror.until_same(server, MINUTE).await;
    mirror
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_listed_and_then_watched() {
    let server = server().await;
    let mut mirror = synced(&server).await;
    let mut lists = mirror.lists.clone();
    lists.sort();
    let expected = [
        (Kind::Services, 7),
        (Kind::Slices, 7),
        (Kind::Nodes, 1),
        (Kind::Cidrs, 1),
    ];
    assert_eq!(lists, expected);
    server.with(|store| {
        store.put(service("web-3", 33));
        store.put(service("new", 40));
        store.delete(&slice("web-1-x", 1));
    });
    mirror.until_same(&server, SOON).await;
    assert_eq!(mirror.lists.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn json_gives_the_same() {
    let server = server().await;
    let mut options = options(Access::Server(server.url()), 1);
    options.encoding = Encoding::Json;
    let mut mirror = Mirror::with(options).await;
    mirror.until_same(&server, MINUTE).await;
    server.with(|store| store.put(service("new", 40)));
    mirror.until_same(&server, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn without_streaming_lists_pages_do() {
    let server = server().await;
    server.with(|store| store.no_streaming = true);
    let mut mirror = synced(&server).await;
    assert!(mirror.troubles(Resource::Services).is_empty());
    let pages = server.with(|store| {
        let services = store
            .requests
            .iter()
            .filter(|path| path.starts_with("/api/v1/services"));
        services.filter(|path| path.contains("limit=500")).count()
    });
    assert_eq!(pages, 3);
    server.with(|store| store.put(service("new", 40)));
    mirror.until_same(&server, SOON).await;
}

#[tokio::test(start_paused = true)]
async fn requests_say_who_asks_for_what() {
    let server = server().await;
    synced(&server).await;
    let requests = server.with(|store| store.requests.clone());
    let expected = "/api/v1/nodes?watch=true&sendInitialEvents=true\
                    &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=";
    let nodes: Vec<_> = requests
        .iter()
        .filter(|path| path.contains("nodes"))
        .collect();
    assert_eq!(nodes.len(), 1);
    assert!(nodes[0].starts_with(expected), "{}", nodes[0]);
    assert!(nodes[0].ends_with("&fieldSelector=metadata.name%3Dnode-a"));
}

#[tokio::test(start_paused = true)]
async fn watches_are_renewed_for_hours_without_a_new_list() {
    let server = server().await;
    let mut mirror = synced(&server).await;
    for hour in 0..5 {
        tokio::time::sleep(HOUR).await;
        server.with(|store| store.put(service("new", hour)));
        mirror.until_same(&server, MINUTE).await;
    }
    assert_eq!(mirror.lists.len(), 4);
    assert!(mirror.troubles(Resource::Services).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cut_connection_is_resumed_where_it_was() {
    let server = server().await;
    let mut mirror = synced(&server).await;
    server.with(|store| {
        store.restart();
        store.put(service("new", 40));
        store.delete(&service("web-0", 0));
    });
    mirror.until_same(&server, MINUTE).await;
    assert_eq!(mirror.lists.len(), 4);
    let recovered = Notice::Recovered {
        resource: Resource::Services,
    };
    mirror
        .until(MINUTE, |mirror| mirror.notices.contains(&recovered))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_compacted_history_leads_to_a_new_list() {
    let server = server().await;
    let mut mirror = synced(&server).await;
    server.with(|store| {
        store.restart();
        store.delete(&service("web-0", 0));
        store.put(service("web-1", 77));
        store.compact();
    });
    mirror.until_same(&server, MINUTE).await;
    let lists = mirror
        .lists
        .iter()
        .filter(|(kind, _)| *kind == Kind::Services);
    assert_eq!(lists.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lost_its_memory_is_noticed() {
    let server = server().await;
    let mut mirror = synced(&server).await;
    server.with(|store| {
        store.wipe();
        store.put(service("afterwards", 50));
        store.put(cluster_scoped(Object::Node(Default::default()), "node-a"));
    });
    mirror.until_same(&server, MINUTE).await;
    assert_eq!(mirror.facts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_replaced() {
    let server = server().await;
    let mut mirror = synced(&server).await;
    server.with(|store| {
        store.mute = true;
        store.restart();
    });
    // All four watches run again, and will never say a word.
    mirror
        .until(MINUTE, |mirror| {
            let recovered = |notice: &&Notice| matches!(notice, Notice::Recovered { .. });
            mirror.notices.iter().filter(recovered).count() == 4
        })
        .await;
    server.with(|store| {
        store.mute = false;
        store.put(service("new", 40));
    });
    mirror.until_same(&server, MINUTE * 11).await;
    let troubles = mirror.troubles(Resource::Services);
    assert!(troubles.contains(&"the watch fell silent".to_owned()));
    assert_eq!(mirror.lists.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn no_trouble_at_the_start_is_fatal_or_serves_half_a_list() {
    let troubles = [
        Trouble::Cut(0),
        Trouble::Cut(3),
        Trouble::Cut(500),
        Trouble::Garbage,
        Trouble::Oversized,
        Trouble::WrongType,
        Trouble::Refuse(429),
        Trouble::Refuse(503),
        Trouble::Refuse(410),
        Trouble::Refuse(401),
        Trouble::ErrorEvent(410),
        Trouble::ErrorEvent(500),
        Trouble::Silent,
        Trouble::Deaf,
        Trouble::Double,
        Trouble::Swap,
        Trouble::Json,
    ];
    for streaming in [true, false] {
        for trouble in troubles {
            let server = server().await;
            server.with(|store| {
                store.no_streaming = !streaming;
                store.troubles.extend([trouble; 8]);
            });
            let mut mirror = Mirror::of(&server).await;
            mirror.stable = facts_of(&server).into_keys().collect();
            mirror.until_same(&server, MINUTE * 20).await;
            server.with(|store| store.put(service("new", 40)));
            mirror.until_same(&server, MINUTE * 20).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_cut_at_any_byte_leaves_no_half_list() {
    for at in 0..150 {
        let server = server().await;
        server.with(|store| {
            store.no_streaming = at % 2 == 0;
            store.troubles.extend([Trouble::Cut(at * 8); 6]);
        });
        let mut mirror = Mirror::of(&server).await;
        mirror.stable = facts_of(&server).into_keys().collect();
        mirror.until_same(&server, MINUTE * 5).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_waited_for() {
    let server = server().await;
    server.with(|store| store.troubles.extend([Trouble::Refuse(503); 60]));
    let mut mirror = synced_within(&server, HOUR).await;
    let troubles = mirror.troubles(Resource::Services);
    assert_eq!(troubles[0], "the server answers 503: as the test wants it");
    mirror.until_same(&server, MINUTE).await;
}

async fn synced_within(server: &Server, limit: Duration) -> Mirror {
    let mut mirror = Mirror::of(server).await;
    mirror.until_same(server, limit).await;
    mirror
}

#[tokio::test(start_paused = true)]
async fn a_resource_without_permission_is_named_and_the_rest_works() {
    let server = server().await;
    server.with(|store| store.forbidden = Some(Resource::Cidrs));
    let mut mirror = Mirror::of(&server).await;
    mirror
        .until(MINUTE, |mirror| mirror.synced.len() == 3)
        .await;
    mirror
        .until(MINUTE, |mirror| {
            !mirror.troubles(Resource::Cidrs).is_empty()
        })
        .await;
    let text = mirror
        .notices
        .iter()
        .find(|n| matches!(n, Notice::Trouble { .. }))
        .unwrap();
    let text = text.to_string();
    assert!(
        text.starts_with("servicecidrs.networking.k8s.io: the server answers 403"),
        "{text}"
    );
    assert!(!mirror.synced.contains(&Kind::Cidrs));
    server.with(|store| store.forbidden = None);
    mirror.until_same(&server, MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_stand_in_for_slices_until_those_are_served() {
    let server = server().await;
    server.with(|store| {
        store.absent = vec![Resource::Slices];
        store.put(endpoints("web-1", 1));
    });
    let mut mirror = Mirror::of(&server).await;
    mirror
        .until(MINUTE, |mirror| mirror.synced.contains(&Kind::Slices))
        .await;
    // The slices' empty list comes after the endpoints that replace them.
    let order: Vec<Kind> = mirror.lists.iter().map(|(kind, _)| *kind).collect();
    let at = |kind| order.iter().position(|other| *other == kind).unwrap();
    assert!(at(Kind::Endpoints) < at(Kind::Slices));
    assert!(mirror.lists.contains(&(Kind::Endpoints, 1)));
    server.with(|store| store.absent.clear());
    mirror
        .until(HOUR, |mirror| mirror.lists.contains(&(Kind::Slices, 7)))
        .await;
    assert_eq!(mirror.lists.last(), Some(&(Kind::Endpoints, 0)));
}

#[tokio::test(start_paused = true)]
async fn ranges_in_beta_and_no_ranges_both_do() {
    let server = server().await;
    server.with(|store| store.absent = vec![Resource::Cidrs]);
    let mirror = synced(&server).await;
    assert!(mirror.lists.contains(&(Kind::Cidrs, 1)));
    server.with(|store| store.absent = vec![Resource::Cidrs, Resource::CidrsBeta]);
    let mut mirror = Mirror::of(&server).await;
    mirror
        .until(MINUTE, |mirror| mirror.synced.len() == 4)
        .await;
    assert!(mirror.lists.contains(&(Kind::Cidrs, 0)));
    let absent = Notice::Absent {
        resource: Resource::Cidrs,
    };
    mirror
        .until(MINUTE, |mirror| mirror.notices.contains(&absent))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_take_facts_slows_the_source_and_loses_nothing() {
    let server = server().await;
    server.with(|store| {
        for number in 0..9000 {
            store.put(service(&format!("many-{number}"), 1));
        }
    });
    let mut mirror = Mirror::of(&server).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    mirror.until_same(&server, MINUTE).await;
    assert_eq!(
        mirror
            .lists
            .iter()
            .filter(|(kind, _)| *kind == Kind::Services)
            .count(),
        1
    );
}

/// Every trouble at random, on every request, while objects come and go.
#[tokio::test(start_paused = true)]
async fn after_a_soak_of_troubles_the_facts_are_those_of_the_server() {
    for seed in 1..=12u64 {
        let server = server().await;
        let mut dice = Dice(seed * 0x9e37_79b9);
        server.with(|store| {
            store.random = Some(Dice(seed));
            store.no_streaming = seed % 3 == 0;
        });
        let mut mirror = Mirror::with(options(Access::Server(server.url()), seed)).await;
        mirror.stable = server.with(|store| {
            store
                .objects
                .values()
                .map(|o| fact_of(o).0)
                .collect::<BTreeSet<_>>()
        });
        for _ in 0..60 {
            server.with(|store| {
                let number = u8::try_from(dice.roll(20)).unwrap();
                match dice.roll(8) {
                    0..=2 => store.put(service(&format!("extra-{number}"), number)),
                    3 => store.delete(&service(&format!("extra-{number}"), 0)),
                    4 => store.put(slice(&format!("extra-{number}"), number)),
                    5 => store.delete(&slice(&format!("extra-{number}"), 0)),
                    6 => store.compact(),
                    _ => store.restart(),
                }
            });
            let pause = Duration::from_millis(u64::try_from(dice.roll(20_000)).unwrap());
            mirror.during(pause).await;
        }
        server.with(|store| store.random = None);
        mirror.until_same(&server, MINUTE * 30).await;
    }
}

#[tokio::test]
async fn credentials_that_do_not_do_end_the_start_with_a_reason() {
    let start = |access| async move { ApiSource::start(options(access, 1)).await.unwrap_err() };
    let error = start(Access::Server("not a url".into())).await;
    assert!(matches!(error, AccessError::Server { .. }), "{error}");
    let path = "/nonexistent/kubeconfig".into();
    let error = start(Access::Kubeconfig { path, server: None }).await;
    assert!(
        error
            .to_string()
            .starts_with("kubeconfig /nonexistent/kubeconfig: "),
        "{error}"
    );
}
