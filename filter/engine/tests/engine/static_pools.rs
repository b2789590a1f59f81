//! Pools without an agent, whose endpoints the filter's configuration lists.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::config::Config;
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_wire::statistics::MetricKind;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Request, START, TEXT, address};

/// A time at which readings of the start would be stale.
const LATER: Duration = START.saturating_add(Duration::from_secs(3600));

/// Words of a prompt of many blocks.
const LONG: usize = 500;

/// The configuration of a pool of these endpoints.
fn listing(endpoints: &[u8], rules: &str) -> Value {
    let endpoints: Vec<_> = endpoints.iter().map(|number| address(*number)).collect();
    json!({"endpoints": endpoints, "rules": rules})
}

/// A pool of these endpoints.
fn pool_of(endpoints: &[u8], rules: &str) -> Fixture {
    let mut fixture = Fixture::without_snapshot(&listing(endpoints, rules));
    let pool = fixture.pool.config.static_pool().unwrap();
    fixture.pool.adopt(Arc::new(pool.view(&PoolView::default()).unwrap()));
    fixture
}

/// A request with a prompt of this length that no other text begins like, and the number of its endpoint.
fn ask(fixture: &mut Fixture, text: &str, words: usize) -> (Request, u8) {
    let prompt = format!("{text}: {}", "prompt ".repeat(words));
    let mut request = fixture.request(TEXT, &[]);
    request.proxy.now.set(LATER);
    request.head(fixture);
    request.body(fixture, json!({"model": "m", "prompt": prompt}).to_string().as_bytes(), true);
    let destination = request.destination().expect("a pick");
    let number = (1..=9).find(|number| address(*number) == destination).unwrap();
    (request, number)
}

/// The number of the endpoint that serves a prompt.
fn served(fixture: &mut Fixture, text: &str) -> u8 {
    let (mut request, number) = ask(fixture, text, LONG);
    request.answer(fixture, number, &[(":status", "200"), ("content-type", "application/json")]);
    request.chunk(fixture, "{\"choices\":[]}", true);
    number
}

#[test]
fn prompts_repeat_at_their_server_and_a_server_that_fails_is_avoided() {
    for rules in ["expected-latency", "epp"] {
        let mut fixture = pool_of(&[1, 2, 3], rules);
        for text in ["one", "two", "three", "four"] {
            let first = served(&mut fixture, text);
            for _ in 0..10 {
                assert_eq!(served(&mut fixture, text), first, "{rules}");
            }
        }
        let (mut request, failing) = ask(&mut fixture, "one", LONG);
        request.answer(&mut fixture, failing, &[(":status", "500")]);
        for _ in 0..10 {
            assert_ne!(ask(&mut fixture, "one", LONG).1, failing, "{rules}");
        }
        assert_eq!(fixture.counted("routed_stale"), 0, "{rules}: there are no readings that age");
        fixture.pool.publish_metrics(true, LATER + LATER);
        assert_eq!(fixture.sink.values(MetricKind::Gauge)["snapshot_age_ms"], [0]);
    }
}

#[test]
fn other_endpoints_keep_the_state_of_those_that_stay() {
    let mut fixture = pool_of(&[1, 2, 3], "expected-latency");
    let first = served(&mut fixture, "one");
    let (_in_flight, busy) = ask(&mut fixture, "two", 1);
    let other = |endpoints: &[u8], rules| {
        let mut config = listing(endpoints, rules);
        config["pool"] = "p".into();
        Config::parse(config.to_string().as_bytes()).unwrap().static_pool().unwrap()
    };
    for (new, rules) in [(vec![4], "expected-latency"), (vec![5, 6], "epp")] {
        // Both may be one.
        let kept = if busy == first { vec![first] } else { vec![busy, first] };
        let endpoints = [new, kept].concat();
        let view = other(&endpoints, rules).view(&fixture.pool.view()).unwrap();
        assert!(fixture.pool.adopt(Arc::new(view)), "they are new");
        let again = other(&endpoints, rules).view(&fixture.pool.view()).unwrap();
        assert!(!fixture.pool.adopt(Arc::new(again)), "the same ones do not compile again");
        let index = fixture.pool.view().pool().index_at(address(busy).parse().unwrap()).unwrap();
        assert_eq!(fixture.in_flight()[index], 1, "{rules}");
        assert_eq!(served(&mut fixture, "one"), first, "{rules}");
    }
}
