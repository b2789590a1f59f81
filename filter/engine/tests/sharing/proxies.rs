//! Changes that proxies learn from one another.

use core::time::Duration;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::load::Load;
use endpoint_picker_engine::ledger::{Change, ChangeKind};
use endpoint_picker_engine::testing;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::changes::{Changes, Sync};

use crate::fixture::{AgentFeed, NONE, ONE, Proxy, START, TICK, key, message, round};

fn change(host: u16, kind: ChangeKind) -> Change {
    Change::Endpoint { endpoint: key(host), kind }
}

#[test]
fn a_prompt_of_one_proxy_is_warm_in_another() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    let mut now = START;
    round(&mut agent, &mut [&mut one, &mut two], now);
    let first = one.decide("a long prompt ", now);
    assert_eq!((first.matched, two.peer.ledger().requests_in_flight()), (0, 0));
    now += TICK;
    round(&mut agent, &mut [&mut one, &mut two], now);
    let second = two.decide("a long prompt ", now);
    assert!(second.matched > 0);
    assert_eq!(second.destination, first.destination);
    assert_eq!(two.peer.ledger().requests_in_flight(), 2, "the first is in flight in the other proxy");
    assert_eq!(two.peer.ledger().picks().iter().sum::<u64>(), 1, "picks are its own");
}

#[test]
fn a_session_that_began_at_one_proxy_is_continued_at_another() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    round(&mut agent, &mut [&mut one, &mut two], START);
    let turns = ["a turn of a conversation ", "a turn of a conversation a turn of a conversation "];
    let first = one.decide(turns[0], START).session.unwrap();
    let alone = two.decide("another conversation, from elsewhere ", START).session.unwrap();
    round(&mut agent, &mut [&mut one, &mut two], START + TICK);
    let second = two.decide(turns[1], START + TICK).session.unwrap();
    assert!(!first.is_continued && !alone.is_continued && second.is_continued);
    assert!(second.key == first.key && alone.key != first.key);
}

#[test]
fn changes_that_others_do_not_learn_from_are_not_sent() {
    let plugins = [("expected-latency-scorer", None)];
    let mut proxy = Proxy::with_pipeline(1, testing::pipeline(testing::picker_config(&plugins)));
    proxy.sync(START);
    proxy.answer(&AgentFeed::new(9).take(&Sync::default(), START), START);
    proxy.decide("a long prompt ", START);
    let message = message(&proxy.sync(START + TICK).unwrap());
    let prefixes = Pipeline::default();
    let prefixes =
        prefixes.plugins().iter().find(|it| it.plugin.type_name() == "approx-prefix-cache-producer");
    assert_eq!(message.plugins, [prefixes.unwrap().key()], "the scorer has recorded the request, too");
    assert_eq!(message.states.len(), 1);
}

#[test]
fn a_proxy_that_starts_learns_the_recent_prompts_at_once_also_their_beginnings() {
    let (mut one, mut agent) = (Proxy::new(1), AgentFeed::new(9));
    let mut now = START;
    round(&mut agent, &mut [&mut one], now);
    let first = one.decide("a shared beginning ", now);
    // Only new blocks are sent: the beginning is fresh.
    let more = "a shared beginning ".repeat(2);
    now += TICK;
    round(&mut agent, &mut [&mut one], now);
    one.decide(&more, now);
    now += TICK;
    round(&mut agent, &mut [&mut one], now);
    let mut two = Proxy::new(2);
    round(&mut agent, &mut [&mut two], now);
    let second = two.decide(&more, now);
    assert_eq!(second.destination, first.destination);
    assert!(second.matched > 0);
    // A third reads only what is sent after it has started: it requests a resync.
    let mut late = AgentFeed::new(10);
    let mut three = Proxy::new(3);
    now += Duration::from_secs(1);
    round(&mut late, &mut [&mut three, &mut one], now);
    now += TICK;
    round(&mut late, &mut [&mut three, &mut one], now);
    one.decide(&more, now);
    now += TICK;
    round(&mut late, &mut [&mut one, &mut three], now);
    let third = three.decide(&more, now);
    assert_eq!((third.destination, third.matched), (first.destination, second.matched));
}

#[test]
fn loads_follow_those_of_the_other_proxy_and_vanish_with_it() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    let mut now = START;
    one.peer.apply([change(1, ChangeKind::Started(ONE)), change(2, ChangeKind::Started(ONE))]);
    two.peer.apply([change(2, ChangeKind::Started(ONE))]);
    round(&mut agent, &mut [&mut one, &mut two], now);
    assert_eq!(
        two.loads(),
        [
            ONE,
            {
                let mut both = ONE;
                both += ONE;
                both
            },
            NONE
        ]
    );
    assert_eq!(two.client.peers(now), 1);
    now += TICK;
    one.peer
        .apply([change(1, ChangeKind::Ended(ONE)), change(2, ChangeKind::Moved { to: key(3), load: ONE })]);
    round(&mut agent, &mut [&mut one, &mut two], now);
    assert_eq!(two.loads(), [NONE, ONE, ONE]);
    // The first proxy stays as long as it sends, and nothing changes.
    for _ in 0..100 {
        now += TICK;
        round(&mut agent, &mut [&mut one, &mut two], now);
        assert_eq!(two.loads(), [NONE, ONE, ONE]);
    }
    let killed = now;
    while two.loads() != [NONE, ONE, NONE] {
        now += TICK;
        round(&mut agent, &mut [&mut two], now);
        assert!(now - killed <= Duration::from_secs(2), "within 2 s");
    }
    assert!(now - killed >= Duration::from_secs(1), "a pause is not an end");
    assert_eq!(two.client.peers(now), 0);
}

#[test]
fn a_proxy_that_was_away_for_a_minute_counts_again_and_old_loads_do_not() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    one.peer.apply([change(1, ChangeKind::Started(ONE))]);
    round(&mut agent, &mut [&mut one, &mut two], START);
    let later = START + Duration::from_secs(60);
    // Messages of the minute before are read first.
    let sync = two.sync(later).unwrap();
    let feed = agent.take(&sync, later);
    two.answer(&feed, later);
    assert_eq!(two.loads(), [NONE; 3]);
    round(&mut agent, &mut [&mut one], later);
    // Alone, it syncs four times a second.
    round(&mut agent, &mut [&mut two], later + Duration::from_millis(250));
    assert_eq!(two.loads(), [ONE, NONE, NONE]);
}

#[test]
fn another_worker_of_the_proxy_that_goes_on_replaces_its_loads() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    one.peer.apply([change(1, ChangeKind::Started(ONE))]);
    round(&mut agent, &mut [&mut one, &mut two], START);
    one.client = crate::fixture::client(1, 2);
    one.peer.apply([change(1, ChangeKind::Ended(ONE)), change(2, ChangeKind::Started(ONE))]);
    round(&mut agent, &mut [&mut one, &mut two], START + TICK);
    assert_eq!(two.loads(), [NONE, ONE, NONE]);
}

#[test]
fn a_message_with_the_greatest_numbers_silences_the_proxy_of_that_name_until_its_heartbeat_is_over() {
    for (epoch, sequence) in [(u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
        let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
        let mut agent = AgentFeed::new(9);
        let mut now = START;
        one.peer.apply([change(1, ChangeKind::Started(ONE))]);
        let sync = one.sync(now).unwrap();
        let feed = agent.take(&sync, now);
        one.answer(&feed, now);
        round(&mut agent, &mut [&mut two], now);
        assert_eq!(two.loads(), [ONE, NONE, NONE]);
        let forged = Changes { epoch, sequence, loads: vec![], ..message(&sync) };
        let changes = Some(forged.encode_to_vec().into());
        agent.take(&Sync { sender: 3, positions: vec![], changes, ..sync }, now);
        let mut silent = 0;
        for _ in 0..200 {
            now += TICK;
            round(&mut agent, &mut [&mut one, &mut two], now);
            silent += u32::from(two.loads() == [NONE; 3]);
        }
        assert_eq!(two.loads(), [ONE, NONE, NONE], "{epoch} {sequence}");
        assert!((1500..2600).contains(&(silent * TICK).as_millis()), "{silent} ticks");
    }
}

#[test]
fn a_failure_in_one_proxy_is_avoided_in_the_other_and_a_recovery_in_either_ends_that() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    round(&mut agent, &mut [&mut one, &mut two], START);
    let now = START + TICK;
    one.peer.apply([change(2, ChangeKind::Failed { at: now })]);
    round(&mut agent, &mut [&mut one, &mut two], now);
    assert!(two.peer.ledger().is_failing(key(2)));
    assert!(two.peer.ledger().avoided()[1].contains(now));
    two.peer.apply([change(2, ChangeKind::Recovered { at: now + TICK })]);
    round(&mut agent, &mut [&mut two, &mut one], now + TICK);
    assert!(!two.peer.ledger().is_failing(key(2)));
    assert!(!one.peer.ledger().is_failing(key(2)), "clients of the other proxy show it too");
}

#[test]
fn failures_and_recoveries_of_one_message_have_one_order() {
    for (kinds, is_failing) in [("FR", false), ("RF", true), ("FRF", true), ("FRFR", false), ("RRFF", true)] {
        let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
        let mut agent = AgentFeed::new(9);
        round(&mut agent, &mut [&mut one, &mut two], START);
        // All in one millisecond.
        let at = START + TICK;
        let kind =
            |letter| if letter == 'F' { ChangeKind::Failed { at } } else { ChangeKind::Recovered { at } };
        one.peer.apply(kinds.chars().map(|letter| change(2, kind(letter))));
        round(&mut agent, &mut [&mut one, &mut two], at);
        let failing = [&one, &two].map(|proxy| proxy.peer.ledger().is_failing(key(2)));
        assert_eq!(failing, [is_failing; 2], "{kinds}");
    }
}

#[test]
fn what_a_server_was_sent_before_it_restarted_is_not_learnt() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    round(&mut agent, &mut [&mut one], START);
    let first = one.decide("a long prompt ", START);
    round(&mut agent, &mut [&mut one], START + TICK);
    let since = START + Duration::from_secs(1);
    let host = u16::try_from(first.destination + 1).unwrap();
    two.peer.apply([change(host, ChangeKind::Restarted { since })]);
    let now = since + TICK;
    round(&mut agent, &mut [&mut two], now);
    assert_eq!(two.decide("a long prompt ", now).matched, 0);
}

#[test]
fn prompts_and_restarts_are_compared_by_the_clock_of_the_agent() {
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    agent.ahead = Duration::from_secs(3600);
    round(&mut agent, &mut [&mut one], START);
    let first = one.decide("a long prompt ", START);
    round(&mut agent, &mut [&mut one], START + TICK);
    let since = START + agent.ahead - Duration::from_secs(1);
    let host = u16::try_from(first.destination + 1).unwrap();
    two.peer.apply([change(host, ChangeKind::Restarted { since })]);
    let now = START + 2 * TICK;
    round(&mut agent, &mut [&mut two], now);
    assert!(
        two.decide("a long prompt ", now).matched > 0,
        "the server restarted before it was sent the prompt"
    );
}

#[test]
fn changes_of_another_proxys_loads_are_deferred_for_a_while_and_none_is_without_one() {
    let started = |requests| Load { requests, tokens: 0 };
    let (mut one, mut two) = (Proxy::new(1), Proxy::new(2));
    let mut agent = AgentFeed::new(9);
    let mut now = START;
    let mut round = |proxies: &mut [&mut Proxy]| {
        now += TICK;
        round(&mut agent, proxies, now);
        now
    };
    let deferred = |proxy: &Proxy| {
        let view = proxy.peer.ledger().input(&[], START);
        view.deferred.iter().map(|load| load.requests).collect::<Vec<_>>()
    };
    one.peer.apply([change(1, ChangeKind::Started(started(10)))]);
    round(&mut [&mut one, &mut two]);
    assert!(deferred(&two).is_empty(), "what a proxy has when it is first read from");
    one.peer.apply([change(1, ChangeKind::Started(started(10)))]);
    two.peer.apply([change(2, ChangeKind::Started(started(10)))]);
    round(&mut [&mut one, &mut two]);
    let before = deferred(&two)[0];
    assert!((5.0..10.0).contains(&before) && deferred(&two).len() == 1, "{:?}", deferred(&two));
    (0..35).for_each(|_| _ = round(&mut [&mut one, &mut two]));
    let after = deferred(&two)[0];
    assert!((after - before / 2.0).abs() < 1e-6, "half of it after 700 ms: {after}");
    assert_eq!(two.peer.ledger().loads()[0], started(20));
    (0..80).for_each(|_| _ = round(&mut [&mut two]));
    assert_eq!((two.loads()[0], deferred(&two)), (NONE, vec![]), "the other proxy has vanished");
    two.peer.apply([change(2, ChangeKind::Started(started(10)))]);
    round(&mut [&mut two]);
    assert!(deferred(&two).is_empty());
}
