//! The engine's promises, stepped through without a kernel.

use std::time::Duration;

use sluice_dataplane::nftables;
use sluice_model::cluster::Cluster;
use sluice_model::fact::{
    Conditions, Endpoint, Fact, Family, Kind, Protocol, Service, ServicePort, Slice, SlicePort,
};
use sluice_model::name::ObjectKey;
use sluice_model::settings::Settings;

use super::*;

fn engine() -> Engine {
    let pace = Pace {
        min_sync_period: Duration::ZERO,
        sync_period: Duration::from_secs(30),
    };
    Engine::new(
        Cluster::new(Settings::for_node("node-a")),
        Compiler::Nftables(Box::new(nftables::Compiler::new(0x4000))),
        pace,
    )
}

fn service(last: u8) -> Fact {
    let port = ServicePort {
        name: "".into(),
        protocol: Protocol::Tcp,
        port: 80,
        node_port: 0,
    };
    let service = Service {
        cluster_ips: vec![[10, 96, 0, last].into()],
        ports: vec![port],
        ..Service::default()
    };
    Fact::Service(
        ObjectKey::new("default", &format!("s{last}")),
        Some(Box::new(service)),
    )
}

fn slice(service: u8, endpoint: u8) -> Fact {
    let endpoint = Endpoint {
        ip: [198, 51, 100, endpoint].into(),
        conditions: Conditions::new(None, None, None),
        node: None,
        hints: None,
    };
    let port = SlicePort {
        name: Some("".into()),
        protocol: Protocol::Tcp,
        port: Some(8080),
    };
    let slice = Slice {
        service: Some(format!("s{service}").as_str().into()),
        family: Some(Family::V4),
        ports: vec![port],
        endpoints: vec![endpoint],
        ..Slice::default()
    };
    Fact::Slice(
        ObjectKey::new("default", &format!("s{service}-x")),
        Some(Box::new(slice)),
    )
}

fn commits(effects: &[Effect]) -> Vec<&Tx> {
    effects
        .iter()
        .filter_map(|e| match e {
            Effect::Commit(tx) => Some(tx),
            Effect::Read | Effect::WakeAt(_) | Effect::Say(_) | Effect::Settled(_) => None,
        })
        .collect()
}

fn started() -> Engine {
    let mut engine = engine();
    let list = |kind, fact| vec![Fact::Begin(kind), fact, Fact::Synced(kind)];
    let services = Input::Facts(list(Kind::Services, service(1)));
    assert_eq!(engine.step(Moment(0), services), []);
    let slices = Input::Facts(list(Kind::Slices, slice(1, 1)));
    assert_eq!(engine.step(Moment(0), slices), [Effect::Read]);
    let effects = engine.step(
        Moment(1),
        Input::Observed(Ok(Box::new(Observed::Nftables(Default::default())))),
    );
    assert_eq!(commits(&effects).len(), 1);
    let effects = engine.step(Moment(2), Input::Committed(Ok(Report::default())));
    assert!(effects.iter().any(|e| matches!(e, Effect::Settled(_))));
    engine
}

#[test]
fn nothing_is_programmed_before_services_and_slices_are_both_known() {
    let engine = started();
    assert!(engine.is_settled());
}

#[test]
fn facts_gather_while_the_kernel_is_busy_and_leave_as_one_change() {
    let mut engine = started();
    let first = engine.step(Moment(10), Input::Facts(vec![slice(1, 2)]));
    assert_eq!(commits(&first).len(), 1);
    assert_eq!(engine.step(Moment(11), Input::Facts(vec![slice(1, 3)])), []);
    assert_eq!(engine.step(Moment(12), Input::Facts(vec![slice(1, 4)])), []);
    let next = engine.step(Moment(13), Input::Committed(Ok(Report::default())));
    assert_eq!(commits(&next).len(), 1, "one commit for both changes");
    // The slot's old value goes, the last one comes; the one in between is never written.
    assert_eq!(commits(&next)[0].len(), 2);
}

#[test]
fn a_fact_that_changes_nothing_writes_nothing() {
    let mut engine = started();
    let effects = engine.step(Moment(10), Input::Facts(vec![slice(1, 1), service(1)]));
    assert_eq!(commits(&effects), Vec::<&Tx>::new());
}

#[test]
fn a_failed_commit_is_read_back_and_retried_with_growing_pauses() {
    let mut engine = started();
    engine.step(Moment(10), Input::Facts(vec![slice(1, 2)]));
    let failure = Failure {
        text: "no space".into(),
    };
    let effects = engine.step(Moment(20), Input::Committed(Err(failure.clone())));
    assert_eq!(
        effects,
        [
            Effect::Say(Message::Failed {
                failure: failure.clone(),
                retry_ms: 50
            }),
            Effect::WakeAt(Moment(70)),
        ]
    );
    assert_eq!(engine.step(Moment(70), Input::Tick), [Effect::Read]);
    let effects = engine.step(Moment(71), Input::Observed(Err(failure.clone())));
    assert_eq!(
        effects[0],
        Effect::Say(Message::Failed {
            failure,
            retry_ms: 100
        })
    );
    assert_eq!(engine.step(Moment(171), Input::Tick), [Effect::Read]);
    let effects = engine.step(
        Moment(172),
        Input::Observed(Ok(Box::new(Observed::Nftables(Default::default())))),
    );
    assert_eq!(commits(&effects).len(), 1);
}

#[test]
fn somebody_elses_change_is_read_at_once_and_named() {
    let mut engine = started();
    let who = Intruder {
        pid: 7,
        process: "nft".into(),
    };
    assert_eq!(
        engine.step(Moment(10), Input::Foreign(who.clone())),
        [Effect::Read]
    );
    let effects = engine.step(
        Moment(11),
        Input::Observed(Ok(Box::new(Observed::Nftables(Default::default())))),
    );
    let named = effects.iter().any(|e| {
        matches!(e, Effect::Say(Message::Drifted { by: Some(by), drift, .. })
            if *by == who && drift.missing > 0)
    });
    assert!(named, "{effects:?}");
    assert_eq!(commits(&effects).len(), 1);
}

#[test]
fn a_change_during_a_read_is_read_again_after_the_repair() {
    let mut engine = started();
    let who = || Intruder {
        pid: 7,
        process: "nft".into(),
    };
    let nothing = || Input::Observed(Ok(Box::new(Observed::Nftables(Default::default()))));
    let foreign = engine.step(Moment(10), Input::Foreign(who()));
    assert_eq!(foreign, [Effect::Read]);
    assert_eq!(engine.step(Moment(11), Input::Foreign(who())), []);
    let effects = engine.step(Moment(12), nothing());
    assert_eq!(commits(&effects).len(), 1);
    let effects = engine.step(Moment(13), Input::Committed(Ok(Report::default())));
    assert!(!engine.is_settled());
    assert_eq!(effects.last(), Some(&Effect::Read));
}

#[test]
fn a_set_pace_is_kept_between_commits() {
    let pace = Pace {
        min_sync_period: Duration::from_secs(1),
        sync_period: Duration::from_secs(30),
    };
    let mut engine = started();
    engine.pace = pace;
    engine.step(Moment(100), Input::Facts(vec![slice(1, 2)]));
    engine.step(Moment(110), Input::Committed(Ok(Report::default())));
    let effects = engine.step(Moment(200), Input::Facts(vec![slice(1, 3)]));
    assert_eq!(effects, [Effect::WakeAt(Moment(1110))]);
    assert_eq!(commits(&engine.step(Moment(1110), Input::Tick)).len(), 1);
}
