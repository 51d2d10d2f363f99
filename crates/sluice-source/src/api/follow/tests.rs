use sluice_model::fact::Kind;
use sluice_model::name::ObjectKey;

use super::*;

fn at(seconds: u64) -> Moment {
    Duration::from_secs(seconds)
}

fn status(code: u16) -> Status {
    Status {
        code,
        ..Status::default()
    }
}

fn change(name: &str, version: u64) -> Event {
    Event::Change {
        fact: gone(name),
        version: Version::Number(version),
    }
}

fn gone(name: &str) -> Fact {
    Fact::Service(ObjectKey::new("default", name), None)
}

fn bookmark(version: u64, list: ListState) -> Event {
    Event::Bookmark {
        version: Version::Number(version),
        list,
    }
}

fn page(version: u64, rest: Option<&str>) -> Page {
    Page {
        version: Version::Number(version),
        rest: rest.map(str::to_owned),
    }
}

fn services() -> Follower {
    Follower::new(Resource::Services, 7)
}

/// What the follower wants once its wait is over, and how long that was.
fn due(follower: &mut Follower, now: Moment) -> (Duration, Call) {
    let at = match follower.next(now) {
        Todo::Wait(at) => at,
        Todo::Call(call) => return (Duration::ZERO, call),
        Todo::Absent => panic!("nothing is due any more"),
    };
    match follower.next(at) {
        Todo::Call(call) => (at - now, call),
        other @ (Todo::Wait(_) | Todo::Absent) => panic!("{other:?} after the wait"),
    }
}

/// A follower whose list was complete at version 10, at second 0.
fn watching() -> Follower {
    let mut follower = services();
    let mut facts = Vec::new();
    due(&mut follower, at(0));
    follower.accepted(at(0), &mut facts);
    let flow = follower.event(at(0), bookmark(10, ListState::Complete), &mut facts);
    assert_eq!(flow, Flow::Go);
    follower
}

fn watch_from(call: &Call) -> u64 {
    let Call::Watch {
        from: Version::Number(from),
        ..
    } = call
    else {
        panic!("{call:?} instead of a watch");
    };
    *from
}

#[test]
fn a_list_is_streamed_and_then_watched_on_the_same_answer() {
    let mut follower = services();
    let (wait, call) = due(&mut follower, at(0));
    assert!(wait.is_zero() && matches!(call, Call::StreamList { .. }));
    let mut facts = Vec::new();
    follower.accepted(at(0), &mut facts);
    follower.event(at(0), change("b", 9), &mut facts);
    follower.event(at(0), change("a", 3), &mut facts);
    follower.event(at(0), bookmark(9, ListState::Unsaid), &mut facts);
    assert!(!follower.is_watching());
    follower.event(at(0), bookmark(10, ListState::Complete), &mut facts);
    assert!(follower.is_watching());
    follower.event(at(1), change("c", 11), &mut facts);
    let expected = [
        Fact::Begin(Kind::Services),
        gone("b"),
        gone("a"),
        Fact::Synced(Kind::Services),
        gone("c"),
    ];
    assert_eq!(facts, expected);
}

#[test]
fn requests_are_spelled_as_the_api_has_them() {
    let follower = services();
    let selectors = "labelSelector=%21service.kubernetes.io%2Fservice-proxy-name\
                     &fieldSelector=spec.clusterIP%21%3DNone";
    let cases = [
        (
            Call::StreamList { seconds: 400 },
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
             &allowWatchBookmarks=true&timeoutSeconds=400",
        ),
        (Call::Pages { rest: None }, "limit=500"),
        (
            Call::Pages {
                rest: Some("a+b=".into()),
            },
            "limit=500&continue=a%2Bb%3D",
        ),
        (Call::Probe, "limit=1"),
        (
            Call::Watch {
                from: Version::Number(12),
                seconds: 301,
            },
            "watch=true&resourceVersion=12&allowWatchBookmarks=true&timeoutSeconds=301",
        ),
    ];
    for (call, query) in cases {
        let expected = format!("/api/v1/services?{query}&{selectors}");
        assert_eq!(follower.target(&call, "node-a"), expected);
    }
    let cidrs = Follower::new(Resource::Cidrs, 1).target(&Call::Probe, "node-a");
    assert_eq!(cidrs, "/apis/networking.k8s.io/v1/servicecidrs?limit=1");
}

#[test]
fn a_streamed_list_that_is_cut_leaves_nothing_synced_and_is_made_anew() {
    let mut follower = services();
    let mut facts = Vec::new();
    due(&mut follower, at(0));
    follower.accepted(at(0), &mut facts);
    follower.event(at(0), change("a", 3), &mut facts);
    follower.lost(at(0), Loss::Broken);
    assert_eq!(facts, [Fact::Begin(Kind::Services), gone("a")]);
    let (wait, call) = due(&mut follower, at(0));
    assert!(matches!(call, Call::StreamList { .. }));
    assert!(wait >= Duration::from_millis(800) && wait <= Duration::from_millis(1600));
}

#[test]
fn two_cut_streams_lead_to_pages_and_those_back_to_streams() {
    let mut follower = services();
    let mut calls = Vec::new();
    for _ in 0..4 {
        let (_, call) = due(&mut follower, at(0));
        follower.accepted(at(0), &mut Vec::new());
        follower.lost(at(0), Loss::Broken);
        calls.push(matches!(call, Call::StreamList { .. }));
    }
    assert_eq!(calls, [true, true, false, true]);
}

#[test]
fn a_server_without_streaming_lists_is_paged_at_once_and_for_an_hour() {
    let mut follower = Follower::new(Resource::Slices, 7);
    let mut facts = Vec::new();
    due(&mut follower, at(0));
    follower.refused(at(0), &status(422));
    let (wait, call) = due(&mut follower, at(0));
    assert_eq!((wait, call), (Duration::ZERO, Call::Pages { rest: None }));
    follower.accepted(at(0), &mut facts);
    follower.page(at(0), page(20, Some("more")), &mut facts);
    let rest = Some("more".to_owned());
    assert_eq!(due(&mut follower, at(0)).1, Call::Pages { rest });
    follower.accepted(at(0), &mut facts);
    follower.page(at(0), page(20, None), &mut facts);
    assert_eq!(
        facts,
        [Fact::Begin(Kind::Slices), Fact::Synced(Kind::Slices)]
    );
    assert_eq!(watch_from(&due(&mut follower, at(0)).1), 20);
    for (now, streams) in [(60, false), (4000, true)] {
        follower.refused(at(now), &status(410));
        let call = due(&mut follower, at(now)).1;
        assert_eq!(matches!(call, Call::StreamList { .. }), streams);
        follower.accepted(at(now), &mut facts);
        follower.page(at(now), page(20, None), &mut facts);
        due(&mut follower, at(now));
    }
}

#[test]
fn an_expired_page_starts_the_list_over() {
    let mut follower = services();
    let mut facts = Vec::new();
    follower.stream_from = at(10_000);
    follower.list(at(0));
    due(&mut follower, at(0));
    follower.accepted(at(0), &mut facts);
    follower.page(at(0), page(20, Some("more")), &mut facts);
    due(&mut follower, at(0));
    follower.refused(at(0), &status(410));
    let (wait, call) = due(&mut follower, at(0));
    assert_eq!(call, Call::Pages { rest: None });
    assert!(wait >= Duration::from_millis(800));
    assert_eq!(facts, [Fact::Begin(Kind::Services)]);
}

#[test]
fn an_old_server_without_the_field_selector_is_asked_without_it() {
    let mut follower = services();
    let call = due(&mut follower, at(0)).1;
    follower.refused(at(0), &status(400));
    assert_eq!(due(&mut follower, at(0)), (Duration::ZERO, call));
    let target = follower.target(&Call::Probe, "node-a");
    assert_eq!(
        target,
        "/api/v1/services?limit=1&labelSelector=%21service.kubernetes.io%2Fservice-proxy-name"
    );
    // Whatever else it dislikes is the streaming.
    follower.refused(at(0), &status(400));
    assert_eq!(due(&mut follower, at(0)).1, Call::Pages { rest: None });
}

#[test]
fn a_watch_that_ends_in_time_is_followed_by_the_next_at_once() {
    let mut follower = watching();
    follower.event(at(100), change("a", 15), &mut Vec::new());
    follower.ended(at(600));
    let (wait, call) = due(&mut follower, at(600));
    assert!(wait.is_zero());
    assert_eq!(watch_from(&call), 15);
}

#[test]
fn watches_last_between_five_and_ten_minutes() {
    for seed in 0..50 {
        let mut follower = Follower::new(Resource::Node, seed);
        let Call::StreamList { seconds } = due(&mut follower, at(0)).1 else {
            panic!("no streaming list");
        };
        assert!((300..600).contains(&seconds), "{seconds}");
    }
}

#[test]
fn a_watch_that_ends_early_or_is_cut_is_resumed_after_a_probe() {
    let endings: [fn(&mut Follower); 2] = [
        |follower| follower.ended(at(100)),
        |follower| follower.lost(at(100), Loss::Broken),
    ];
    for end in endings {
        let mut follower = watching();
        end(&mut follower);
        let (wait, call) = due(&mut follower, at(100));
        assert_eq!(call, Call::Probe);
        assert!(wait >= Duration::from_millis(800));
        let mut facts = Vec::new();
        follower.accepted(at(102), &mut facts);
        follower.page(at(102), page(12, Some("more")), &mut facts);
        assert_eq!(watch_from(&due(&mut follower, at(102)).1), 10);
        assert_eq!(facts, []);
    }
}

#[test]
fn a_server_that_went_back_is_listed_anew() {
    let mut follower = watching();
    follower.lost(at(100), Loss::Broken);
    due(&mut follower, at(100));
    follower.accepted(at(102), &mut Vec::new());
    follower.page(at(102), page(9, None), &mut Vec::new());
    let (wait, call) = due(&mut follower, at(102));
    assert!(wait.is_zero() && matches!(call, Call::StreamList { .. }));
}

#[test]
fn an_expired_version_leads_to_a_new_list() {
    let reasons: [fn(&mut Follower); 3] = [
        |follower| {
            let flow = follower.event(at(9), Event::Error(status(410)), &mut Vec::new());
            assert_eq!(flow, Flow::Stop);
        },
        |follower| {
            let expired = Status {
                reason: "Expired".into(),
                ..Status::default()
            };
            follower.event(at(9), Event::Error(expired), &mut Vec::new());
        },
        |follower| follower.refused(at(9), &status(410)),
    ];
    for reason in reasons {
        let mut follower = watching();
        reason(&mut follower);
        let call = due(&mut follower, at(9)).1;
        assert!(matches!(call, Call::StreamList { .. }));
    }
}

#[test]
fn any_other_error_event_is_followed_by_a_probe() {
    let mut follower = watching();
    follower.event(at(9), Event::Error(status(500)), &mut Vec::new());
    assert_eq!(due(&mut follower, at(9)).1, Call::Probe);
}

#[test]
fn events_out_of_order_lead_to_a_new_list_and_repeated_ones_do_not() {
    let mut follower = watching();
    let mut facts = Vec::new();
    assert_eq!(follower.event(at(1), change("a", 12), &mut facts), Flow::Go);
    assert_eq!(follower.event(at(1), change("a", 12), &mut facts), Flow::Go);
    assert_eq!(
        follower.event(at(1), change("b", 11), &mut facts),
        Flow::Stop
    );
    assert_eq!(facts, [gone("a"), gone("a")]);
    let call = due(&mut follower, at(1)).1;
    assert!(matches!(call, Call::StreamList { .. }));
}

#[test]
fn bookmarks_move_the_version_on() {
    let mut follower = watching();
    follower.event(at(60), bookmark(50, ListState::Unsaid), &mut Vec::new());
    follower.ended(at(600));
    assert_eq!(watch_from(&due(&mut follower, at(600)).1), 50);
}

#[test]
fn a_watch_that_is_silent_past_its_time_is_replaced() {
    let mut follower = watching();
    // Without bookmarks, only the time that was asked for counts.
    follower.page(at(0), page(10, None), &mut Vec::new());
    let Call::Watch { seconds, .. } = due(&mut follower, at(0)).1 else {
        panic!("no watch");
    };
    assert_eq!(follower.deadline(), at(30));
    follower.accepted(at(1), &mut Vec::new());
    assert_eq!(follower.deadline(), at(seconds + 30));
    follower.lost(at(seconds + 30), Loss::Silent);
    let (wait, call) = due(&mut follower, at(seconds + 30));
    assert_eq!((wait, call), (Duration::ZERO, Call::Probe));
}

#[test]
fn where_bookmarks_come_three_silent_minutes_are_too_many() {
    let mut follower = watching();
    follower.heard(at(70));
    follower.event(at(70), bookmark(50, ListState::Unsaid), &mut Vec::new());
    assert_eq!(follower.deadline(), at(250));
    follower.heard(at(100));
    assert_eq!(follower.deadline(), at(280));
}

#[test]
fn a_list_that_pauses_for_half_a_minute_is_given_up() {
    let mut follower = services();
    due(&mut follower, at(5));
    assert_eq!(follower.deadline(), at(35));
    follower.accepted(at(10), &mut Vec::new());
    assert_eq!(follower.deadline(), at(40));
    follower.heard(at(20));
    assert_eq!(follower.deadline(), at(50));
}

#[test]
fn failures_wait_longer_each_time_and_an_event_starts_over() {
    let mut follower = watching();
    let mut now = at(100);
    let mut waits = Vec::new();
    follower.lost(now, Loss::Broken);
    for _ in 0..8 {
        let (wait, _) = due(&mut follower, now);
        now += wait;
        waits.push(wait);
        follower.lost(now, Loss::Connect);
    }
    assert!(waits[0] <= Duration::from_millis(1600), "{waits:?}");
    assert!(waits[7] >= at(15) && waits[7] <= at(30), "{waits:?}");
    let (wait, _) = due(&mut follower, now);
    now += wait;
    follower.accepted(now, &mut Vec::new());
    follower.page(now, page(10, None), &mut Vec::new());
    due(&mut follower, now);
    follower.accepted(now, &mut Vec::new());
    follower.event(now, change("a", 11), &mut Vec::new());
    follower.lost(now, Loss::Broken);
    assert!(due(&mut follower, now).0 <= Duration::from_millis(1600));
}

#[test]
fn the_server_may_ask_for_a_longer_wait_but_not_for_hours() {
    for (asked, least, most) in [(20, 20, 20), (90_000, 300, 300)] {
        let mut follower = services();
        due(&mut follower, at(0));
        let busy = Status {
            code: 429,
            retry_after: Some(asked),
            ..Status::default()
        };
        follower.refused(at(0), &busy);
        let (wait, call) = due(&mut follower, at(0));
        assert!(matches!(call, Call::StreamList { .. }));
        assert!((at(least)..=at(most)).contains(&wait), "{wait:?}");
    }
}

#[test]
fn what_is_not_found_three_times_is_absent() {
    let mut follower = Follower::new(Resource::Cidrs, 3);
    for _ in 0..3 {
        due(&mut follower, at(0));
        follower.refused(at(0), &status(404));
    }
    assert_eq!(follower.next(at(1000)), Todo::Absent);
}

#[test]
fn what_was_listed_once_never_counts_as_absent() {
    let mut follower = watching();
    follower.lost(at(1), Loss::Broken);
    for _ in 0..5 {
        assert_eq!(due(&mut follower, at(1)).1, Call::Probe);
        follower.refused(at(1), &status(404));
    }
}

#[test]
fn a_forbidden_resource_is_asked_for_again() {
    let mut follower = services();
    for _ in 0..5 {
        let call = due(&mut follower, at(0)).1;
        assert!(matches!(call, Call::StreamList { .. }));
        follower.refused(at(0), &status(403));
    }
}
