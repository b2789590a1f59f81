//! When changes are exchanged, and what becomes of responses that are none.

use core::time::Duration;

use endpoint_picker_engine::agent::{AgentResponse, CallError};
use endpoint_picker_engine::ledger::{Change, ChangeKind};
use endpoint_picker_engine::metrics::SharingCounts;
use endpoint_picker_engine::sharing::{LocalPeer, SharingError, SyncOutcome};
use endpoint_picker_wire::changes::{Changes, Feed, Position};
use endpoint_picker_wire::{Bytes, CHANGES_FORMAT, Message};

use crate::fixture::{AgentFeed, NONE, ONE, Proxy, START, TICK, client, delivery, key, message, round};

fn status(proxy: &mut Proxy, status: u16, now: Duration) -> SyncOutcome {
    let answer = AgentResponse { status, body: b"reason".to_vec() };
    proxy.client.finish(Ok(answer), &mut proxy.peer, now)
}

fn started(host: u16) -> Change {
    Change::Endpoint { endpoint: key(host), kind: ChangeKind::Started(ONE) }
}

#[test]
fn changes_are_exchanged_every_20_ms_one_sync_after_another() {
    let mut proxy = Proxy::new(1);
    let first = proxy.sync(START).unwrap();
    assert_eq!((first.format, first.sender, first.proxy.as_str()), (CHANGES_FORMAT, 1, "envoy-1"));
    assert_eq!(message(&first).sequence, 1);
    assert_eq!(proxy.sync(START + 10 * TICK), None, "one is in flight");
    let feed = AgentFeed::new(9).take(&first, START);
    let now = START + TICK / 2;
    proxy.answer(&feed, now);
    assert_eq!((proxy.client.pause(now), proxy.sync(now)), (TICK / 2, None));
    let second = proxy.sync(START + TICK).unwrap();
    assert_eq!(second.changes, None, "nothing has changed");
    assert_eq!(second.positions, [Position { feed: 9, next: 1 }]);
    assert_eq!(proxy.client.take_counts(), SharingCounts { sent: 1, ..SharingCounts::default() });
}

#[test]
fn a_proxy_that_is_alone_syncs_four_times_a_second_until_another_sends_something() {
    let (mut one, mut agent) = (Proxy::new(1), AgentFeed::new(9));
    let rounds = |one: &mut Proxy, agent: &mut AgentFeed, from: Duration| {
        let times = (0..50).map(|tick| from + tick * TICK);
        let mut count = 0;
        for now in times {
            if let Some(sync) = one.sync(now) {
                count += 1;
                let feed = agent.take(&sync, now);
                one.answer(&feed, now);
            }
        }
        count
    };
    assert_eq!(rounds(&mut one, &mut agent, START), 50, "in the first second");
    let later = START + Duration::from_secs(10);
    rounds(&mut one, &mut agent, later);
    assert!((4..=5).contains(&rounds(&mut one, &mut agent, later + 50 * TICK)));
    let later = later + 100 * TICK;
    let sync = Proxy::new(2).sync(later).unwrap();
    agent.take(&sync, later);
    assert!(rounds(&mut one, &mut agent, later) > 35, "after at most 250 ms");
}

#[test]
fn nothing_is_exchanged_before_the_endpoints_are_known() {
    let mut client = client(1, 1);
    assert!(client.next_sync(&mut LocalPeer::default(), START).is_none());
}

#[test]
fn a_message_is_sent_again_until_the_agent_has_taken_it() {
    let mut proxy = Proxy::new(1);
    let first = proxy.sync(START).unwrap();
    let lost = Err(CallError::NoResponse("reset".to_owned()));
    let outcome = proxy.client.finish(lost.clone(), &mut proxy.peer, START);
    let error = SharingError::Call(CallError::NoResponse("reset".to_owned()));
    assert_eq!(outcome, SyncOutcome::Failed { error: error.clone(), is_new: true });
    proxy.peer.apply([started(1)]);
    assert_eq!(proxy.sync(START + TICK), None, "a pause follows");
    let now = START + 10 * TICK;
    let again = proxy.sync(now).unwrap();
    assert_eq!((&again.changes, again.age_ms), (&first.changes, 200));
    let outcome = proxy.client.finish(lost, &mut proxy.peer, now);
    assert_eq!(outcome, SyncOutcome::Failed { error, is_new: false });
    let now = now + 10 * TICK;
    let again = proxy.sync(now).unwrap();
    let feed = AgentFeed::new(9).take(&again, now);
    proxy.answer(&feed, now);
    let next = message(&proxy.sync(now + TICK).unwrap());
    assert_eq!((next.sequence, next.loads.len()), (2, 1));
    assert_eq!(proxy.client.take_counts(), SharingCounts { sent: 1, failed: 2, ..SharingCounts::default() });
}

#[test]
fn a_message_that_is_refused_is_dropped() {
    let mut proxy = Proxy::new(1);
    proxy.sync(START).unwrap();
    let SyncOutcome::Failed { error, is_new: true } = status(&mut proxy, 413, START) else {
        panic!("a failure");
    };
    assert_eq!(error.to_string(), "the agent answered 413: \"reason\"");
    let now = START + Duration::from_secs(1);
    assert_eq!(message(&proxy.sync(now).unwrap()).sequence, 2);
    status(&mut proxy, 503, now);
    let again = proxy.sync(now + Duration::from_secs(1)).unwrap();
    assert_eq!(message(&again).sequence, 2, "a full agent may have room later");
}

#[test]
fn an_agent_that_does_not_share_is_asked_again_after_five_seconds() {
    let mut proxy = Proxy::new(1);
    proxy.sync(START).unwrap();
    assert_eq!(status(&mut proxy, 404, START), SyncOutcome::Off);
    proxy.decide("a long prompt ", START);
    let now = START + Duration::from_secs(5);
    assert_eq!(proxy.sync(now - TICK), None);
    let sync = proxy.sync(now).unwrap();
    assert_eq!(sync.changes, None);
    let feed = AgentFeed::new(9).take(&sync, now);
    proxy.answer(&feed, now);
    let decided = proxy.decide("a long prompt ", now);
    let next = message(&proxy.sync(now + TICK).unwrap());
    assert_eq!(next.states.len(), 1);
    assert_eq!(
        next.states[0].words.len() - 1,
        usize::try_from(decided.matched).unwrap(),
        "in full, also fresh blocks"
    );
}

#[test]
fn changes_of_other_versions_are_passed_over_and_the_rest_is_applied() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    one.peer.apply([started(1)]);
    let good = one.sync(START).unwrap().changes.unwrap();
    let newer = Changes { format: 9, ..Changes::decode(good.clone()).unwrap() };
    let messages = [Bytes::from_static(b"\xff\xff"), newer.encode_to_vec().into(), good];
    let deliveries = messages.map(|changes| delivery(changes, TICK)).into();
    let position = Some(Position { feed: 9, next: 3 });
    let feed = Feed { format: CHANGES_FORMAT, position, deliveries, ..Feed::default() };
    two.sync(START).unwrap();
    let SyncOutcome::Synced { passed_over: Some(reason) } = two.answer(&feed, START) else {
        panic!("the first is malformed");
    };
    assert!(reason.contains("malformed"), "{reason}");
    assert_eq!(two.peer.ledger().requests_in_flight(), 1);
    let counts = SharingCounts { sent: 1, received: 3, unreadable: 2, failed: 0 };
    assert_eq!(two.client.take_counts(), counts);
    let now = START + TICK;
    two.sync(now).unwrap();
    let again = SyncOutcome::Synced { passed_over: None };
    assert_eq!(two.answer(&feed, now), again, "each reason is returned once");
}

#[test]
fn a_message_with_a_change_that_its_plugin_cannot_read_changes_nothing() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    round(&mut AgentFeed::new(9), &mut [&mut one], START);
    one.decide("a prompt", START);
    let good = Changes::decode(one.sync(START + TICK).unwrap().changes.unwrap()).unwrap();
    assert_eq!((good.plugins.len(), good.states.len()), (1, 1));
    let mut without_words = good.clone();
    without_words.states[0].words.clear();
    let without_plugin = Changes { plugins: vec![], ..good.clone() };
    let mut now = START;
    for (message, text) in [(without_words, "cannot read"), (without_plugin, "at place 0")] {
        let deliveries = vec![delivery(message.encode_to_vec().into(), TICK)];
        let feed = Feed { format: CHANGES_FORMAT, deliveries, ..Feed::default() };
        let SyncOutcome::Synced { passed_over: Some(reason) } = two.answer(&feed, now) else {
            panic!("{text}");
        };
        assert!(reason.contains(text), "{reason}");
        assert_eq!(two.loads(), [NONE; 3]);
        now += TICK;
    }
    let deliveries = vec![delivery(good.encode_to_vec().into(), TICK)];
    two.answer(&Feed { format: CHANGES_FORMAT, deliveries, ..Feed::default() }, now);
    assert_eq!(two.peer.ledger().requests_in_flight(), 1, "it was not taken for a repetition");
    assert!(two.decide("a prompt", now).matched > 0);
}

#[test]
fn a_feed_of_another_version_is_a_failure() {
    let mut proxy = Proxy::new(1);
    for (body, text) in [
        (Feed { format: 9, ..Feed::default() }.encode_to_vec(), "format 9"),
        (b"\xff\xff".to_vec(), "malformed"),
    ] {
        let answer = AgentResponse { status: 200, body };
        let outcome = proxy.client.finish(Ok(answer), &mut proxy.peer, START);
        let SyncOutcome::Failed { error, .. } = outcome else { panic!("{outcome:?}") };
        assert!(error.to_string().contains(text), "{error}");
    }
}
