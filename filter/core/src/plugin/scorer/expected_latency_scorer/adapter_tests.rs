use core::time::Duration;

use super::tests::{costs, default_costs, expectation, fixture, observe, state};
use super::*;
use crate::plugin::fixture::{Fixture, NOW, assert_near};
use crate::pool::reading::{Lora, Reading};
use crate::state::latency::{CompleteResponse, Sent, adapter_key};
use crate::state::{PluginState, PluginStates};
use crate::test;

#[test]
fn an_adapter_costs_its_loading_unless_it_is_in_use_there() {
    let lora = |running: &[&str]| Reading {
        updated: Some(NOW),
        lora: Some(Lora {
            running: running.iter().map(|&name| name.to_owned()).collect(),
            waiting: vec![],
            max: 2,
        }),
        ..Reading::default()
    };
    let mut fixture = fixture(&[(0, 0); 5]);
    fixture.request.model = "sql";
    // Runs there; in flight there; sent there lately; never used there; two others are in flight there.
    fixture.readings = vec![lora(&["sql"]), lora(&[]), lora(&[]), lora(&[]), lora(&["a", "b"])];
    let mut state = state();
    observe(&mut state, &fixture.readings, &[]);
    let [sql, a, b] = ["sql", "a", "b"].map(|name| state.adapter(name).unwrap());
    let sent = |adapter| Sent { uncached: 0, prompt: 0, adapter, is_alone: false, token_limit: None }.words();
    for (endpoint, adapter) in [(1, sql), (2, sql), (2, a), (4, a), (4, b)] {
        state.apply(endpoint, NOW, &sent(adapter));
    }
    state.apply(2, NOW, &expectation(sql).ended(NOW, false, None).words);
    fixture.states = PluginStates::only(Box::new(state));
    // The five requests that the state counts as arrivals make waiting a little dearer.
    let rounded: Vec<f64> = default_costs(&fixture).iter().map(|cost| (cost / 2.0).round() * 2.0).collect();
    assert_near(&rounded, &[16.0, 16.0, 16.0, 56.0, 612.0]);
    fixture.request.model = "base";
    assert_near(&default_costs(&fixture), &[16.0; 5]);
    let instant = ExpectedLatencyScorer { lora_load_ms: 0.0, ..ExpectedLatencyScorer::default() };
    fixture.request.model = "sql";
    assert_near(&costs(&fixture, &instant)[3..4], &[16.0]);
}

#[test]
fn an_adapter_takes_the_place_that_was_not_used_for_longest() {
    let lora = Lora { running: vec![], waiting: vec!["sql".to_owned()], max: 2 };
    let mut fixture = fixture(&[(0, 0); 4]);
    fixture.request.model = "sql";
    fixture.readings = vec![Reading { updated: Some(NOW), lora: Some(lora), ..Reading::default() }; 4];
    let mut state = state();
    observe(&mut state, &fixture.readings, &[]);
    let send = |state: &mut LatencyState, endpoint, adapter, ago| {
        let sent = Sent { uncached: 0, prompt: 0, adapter, is_alone: false, token_limit: None };
        let at = NOW.saturating_sub(Duration::from_secs(ago));
        state.apply(endpoint, at, &sent.words());
        state.apply(endpoint, at, &expectation(adapter).ended(at, false, None).words);
    };
    // Six seconds, two, none because the other one is in flight, and an empty place.
    for (endpoint, adapter, ago) in
        [(0, 1, 6), (0, 2, 1), (1, 3, 2), (1, 4, 1), (2, 5, 9), (2, 6, 0), (3, 7, 0)]
    {
        send(&mut state, endpoint, adapter, ago);
    }
    let sent = Sent { uncached: 0, prompt: 0, adapter: 5, is_alone: false, token_limit: None };
    state.apply(2, NOW, &sent.words());
    fixture.states = PluginStates::only(Box::new(state));
    // The eight requests that the state counts as arrivals make waiting a little dearer.
    let rounded: Vec<f64> = default_costs(&fixture).iter().map(|cost| (cost / 2.0).floor() * 2.0).collect();
    // 40 ms for the adapter, and for the one that it evicts 40 · 6 / (6 + 6), 40 · 6 / (6 + 2), 40, nothing.
    assert_near(&rounded, &[76.0, 86.0, 96.0, 56.0]);
    let scorer = ExpectedLatencyScorer::default();
    let terms = fixture.with_cycle(|cycle| scorer.explain(cycle, &[0, 1, 2, 3], 1)).unwrap();
    assert!(terms.contains(" L 40 E 30 W 0 "), "{terms}");
    // The request itself waits for its adapter alone.
    let first = fixture.with_cycle(|cycle| {
        let nothing = OnceCell::new();
        Costs::new(ExpectedLatencyScorer::DEFAULT_PARAMETERS, cycle, &nothing).first_chunk(1)
    });
    assert_near(&[first.round()], &[56.0]);
}

#[test]
fn without_readings_a_model_costs_its_loading_where_others_run() {
    let mut fixture = fixture(&[(0, 0); 4]);
    let mut state = state();
    let [sql, legal, law] = ["sql", "legal", "law"].map(adapter_key);
    let send = |state: &mut LatencyState, endpoint, adapter| {
        let sent = Sent { uncached: 0, prompt: 0, adapter, is_alone: false, token_limit: None };
        state.apply(endpoint, Duration::ZERO, &sent.words());
    };
    let answer = |state: &mut LatencyState, endpoint| {
        state.apply(endpoint, Duration::ZERO, &expectation(0).answered(Duration::ZERO, None).words);
    };
    let end = |state: &mut LatencyState, endpoint, adapter| {
        let response = CompleteResponse { rest: Some(Duration::from_secs(1)), ..CompleteResponse::default() };
        let ended = expectation(adapter).ended(Duration::ZERO, true, Some(&response));
        state.apply(endpoint, Duration::ZERO, &ended.words);
    };
    for _ in 0..100 {
        for adapter in [sql, legal] {
            send(&mut state, 3, adapter);
            answer(&mut state, 3);
            end(&mut state, 3, adapter);
        }
    }
    // In flight; the last one there; another in flight; the last one there is another, which loses its place.
    send(&mut state, 0, sql);
    send(&mut state, 1, sql);
    answer(&mut state, 1);
    end(&mut state, 1, sql);
    send(&mut state, 2, legal);
    let costs_of = |state: LatencyState, fixture: &mut Fixture| {
        fixture.states = PluginStates::only(Box::new(state));
        default_costs(fixture)
    };
    fixture.request.model = "sql";
    let rest = state.rest();
    let waits = 16.0 + 40.0 + rest / 2.0 + 40.0;
    let all = costs_of(state, &mut fixture);
    assert_near(&all, &[16.0, 16.0, (2.0 * waits).round() / 2.0, 76.0]);
    // Two run at once there: a third does not wait, unless more are in flight.
    let mut state = tests::state();
    for _ in 0..100 {
        for adapter in [sql, legal] {
            send(&mut state, 3, adapter);
        }
        answer(&mut state, 3);
        answer(&mut state, 3);
        for adapter in [sql, legal] {
            end(&mut state, 3, adapter);
        }
    }
    send(&mut state, 2, legal);
    send(&mut state, 1, legal);
    send(&mut state, 1, law);
    let all = costs_of(state, &mut fixture);
    assert_near(&all, &[56.0, (2.0 * waits).round() / 2.0, 56.0, 16.0]);
}
