//! Requests that are only wanted where their prompt is cached.

use endpoint_picker::pool::load::Load;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, destinations, rejection};

const IF_AVAILABLE: (&str, &str) = ("prefer", "if-available");

fn scorer() -> Value {
    json!({"plugins": [{"type": "prefix-cache-scorer"}]})
}

/// A prompt of eight blocks.
fn prompt(word: &str) -> String {
    word.repeat(2048 / word.len())
}

#[test]
fn a_prompt_that_its_endpoint_was_not_sent_before_is_answered_412_and_leaves_no_trace() {
    let mut fixture = Fixture::idle(&scorer(), 3);
    for _ in 0..2 {
        let decision = fixture.send(&prompt("cold"), &[IF_AVAILABLE]);
        let message = "no decode worker has the requested KV cache".to_owned();
        assert_eq!(rejection(&decision), (412, None, message));
        assert!(decision.records.changes.is_empty() && decision.headers.is_empty(), "{decision:?}");
        assert!(decision.reservations.is_empty() && decision.response_headers.is_empty(), "{decision:?}");
        assert_eq!(decision.runs.len(), 1, "the choice can be explained");
    }
}

#[test]
fn a_cached_prompt_goes_where_it_is_cached() {
    let mut fixture = Fixture::idle(&scorer(), 3);
    let first = destinations(&fixture.send(&prompt("warm"), &[]));
    for _ in 0..5 {
        assert_eq!(destinations(&fixture.send(&prompt("warm"), &[IF_AVAILABLE])), first);
    }
}

#[test]
fn the_picked_endpoint_counts_and_not_another_one_that_has_the_prompt() {
    let config = json!({"plugins": [
        {"type": "approx-prefix-cache-producer"},
        {"type": "active-request-scorer"},
    ], "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "active-request-scorer"}]}]});
    let mut fixture = Fixture::idle(&config, 2);
    let first = destinations(&fixture.send(&prompt("warm"), &[]))[0];
    fixture.in_flight = vec![Load::default(); 2];
    fixture.in_flight[first].requests = 5;
    assert_eq!(rejection(&fixture.send(&prompt("warm"), &[IF_AVAILABLE])).0, 412);
}

#[test]
fn only_the_matches_of_the_default_producer_count() {
    let config = json!({"plugins": [
        {"type": "approx-prefix-cache-producer", "name": "mine"},
        {"type": "prefix-cache-scorer", "parameters": {"prefixMatchInfoProducerName": "mine"}},
    ]});
    let mut fixture = Fixture::idle(&config, 1);
    fixture.send(&prompt("warm"), &[]);
    assert_eq!(rejection(&fixture.send(&prompt("warm"), &[IF_AVAILABLE])).0, 412);
}

#[test]
fn the_preference_is_found_among_others_in_any_case_and_any_header_of_the_name() {
    let mut fixture = Fixture::idle(&scorer(), 1);
    let wanted: [&[(&str, &str)]; 4] = [
        &[("Prefer", "IF-Available")],
        &[("prefer", "wait=10, if-available")],
        &[("prefer", "if-available; x=y , respond-async")],
        &[("prefer", "wait=10"), ("prefer", "if-available")],
    ];
    for headers in wanted {
        assert_eq!(rejection(&fixture.send(&prompt("cold"), headers)).0, 412, "{headers:?}");
    }
    let others = [
        "if-availables",
        "if-available=1",
        "if-available=\"\"",
        "wait=if-available",
        "x; if-available",
        "",
        "respond-async",
    ];
    for (n, other) in others.into_iter().enumerate() {
        let decision = fixture.send(&prompt(&format!("{n}")), &[("prefer", other)]);
        assert_eq!(destinations(&decision), [0], "{other}");
    }
}
