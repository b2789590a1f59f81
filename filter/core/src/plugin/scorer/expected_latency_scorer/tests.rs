use core::cell::OnceCell;
use core::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::plugin::Stage;
use crate::plugin::fixture::{Fixture, NOW, assert_near, prompt_of, records};
use crate::pool::load::Load;
use crate::pool::reading::Reading;
use crate::state::latency::{Expectation, Sent, adapter_key};
use crate::state::prefix::PrefixMatch;
use crate::state::{ChangedReadings, Observation, PluginStates};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// Milliseconds per token and per request before the first response.
const C: f64 = 0.125;
const B: f64 = 0.1;

/// Milliseconds for which a request keeps its place before the first response.
const REST: f64 = 1_030.0;

pub(super) fn state() -> LatencyState {
    LatencyState::new(C)
}

/// Requests and their tokens in flight at each endpoint, and a prompt of 128 tokens.
pub(super) fn fixture(in_flight: &[(u64, u64)]) -> Fixture {
    let mut fixture = Fixture::of(in_flight.len());
    fixture.in_flight = in_flight.iter().map(|&(requests, tokens)| Load { requests, tokens }).collect();
    fixture.request.prompt = Some(prompt_of(128));
    fixture
}

/// A state in which every endpoint has sent its last first output this many milliseconds ago.
fn answered_ago(endpoints: usize, ms: u64) -> PluginStates {
    let mut state = state();
    for endpoint in 0..endpoints {
        let sent = Sent { uncached: 0, prompt: 0, adapter: 0, is_alone: true, token_limit: None };
        state.apply(endpoint, NOW.saturating_sub(Duration::from_millis(ms)), &sent.words());
    }
    PluginStates::only(Box::new(state))
}

pub(super) fn expectation(adapter: u64) -> Expectation {
    Expectation {
        plugin: 0,
        endpoint: 0,
        prompt: 0,
        adapter,
        tokens: 0.0,
        requests: 0.0,
        milliseconds: 0.0,
        is_sample: false,
        is_prefill: false,
        has_media: false,
        predicted: None,
    }
}

pub(super) fn costs(fixture: &Fixture, scorer: &ExpectedLatencyScorer) -> Vec<f64> {
    fixture.scores(scorer).into_iter().map(|score| (1.0 / score - 1.0) * 1_000.0).collect()
}

pub(super) fn default_costs(fixture: &Fixture) -> Vec<f64> {
    costs(fixture, &ExpectedLatencyScorer::default())
}

#[test]
fn an_idle_endpoint_costs_what_it_has_to_read() {
    let mut fixture = fixture(&[(0, 0), (0, 0), (0, 0)]);
    fixture.prefix(PrefixMatch {
        matched: vec![0, 1, 2],
        total: 2,
        block_size: 64,
        ..PrefixMatch::default()
    });
    assert_near(&default_costs(&fixture), &[128.0 * C, 64.0 * C, 0.0]);
    let fast = ExpectedLatencyScorer { prefill_throughput: 16_000.0, ..ExpectedLatencyScorer::default() };
    assert_near(&costs(&fixture, &fast), &[8.0, 4.0, 0.0]);
}

#[test]
fn tokens_before_it_and_requests_that_it_delays_count() {
    let mut fixture = fixture(&[(1, 400), (3, 0)]);
    fixture.states = answered_ago(2, 0);
    // The state counted one arrival for each endpoint, in ten seconds.
    let arrivals = 0.2 / 2.0 * 128.0 * C / 1_000.0;
    let first = 528.0 * C * (1.0 + 1.0 / 3.0 + arrivals) + B;
    let second = 128.0 * C * (1.0 + 3.0 / 3.0 + arrivals) + 3.0 * B;
    assert_near(&default_costs(&fixture), &[(2.0 * first).round() / 2.0, (2.0 * second).round() / 2.0]);
}

#[test]
fn a_single_request_in_flight_does_not_make_its_endpoint_twice_as_dear_in_a_pool_of_any_size() {
    for endpoints in 1..=50 {
        let mut in_flight = vec![(0, 0); endpoints];
        in_flight[0].0 = 1;
        let cost = default_costs(&fixture(&in_flight))[0];
        assert!(cost <= 2.0 * 128.0 * C + B, "{endpoints} endpoints: {cost} ms");
    }
}

#[test]
fn the_backlog_is_read_as_time_passes_but_not_all_of_it() {
    let cost = |ms| {
        let mut fixture = fixture(&[(0, 800)]);
        fixture.states = answered_ago(1, ms);
        default_costs(&fixture)[0]
    };
    assert_near(&[cost(0), cost(40), cost(80), cost(3_600_000)], &[116.0, 76.0, 36.0, 36.0]);
}

#[test]
fn costs_that_differ_by_less_than_half_a_millisecond_are_equal() {
    let mut fixture = fixture(&[(0, 0), (0, 1), (0, 20)]);
    fixture.states = answered_ago(3, 0);
    let costs = default_costs(&fixture);
    assert_near(&[costs[0], costs[2]], &[costs[1], costs[1] + 2.5]);
}

#[test]
fn a_server_that_takes_longer_than_the_others_costs_more() {
    let mut fixture = fixture(&[(0, 800); 3]);
    let mut state = state();
    for endpoint in [0, 1, 2].into_iter().cycle().take(900) {
        let tokens = 1_000.0;
        let took = tokens * C * if endpoint == 1 { 2.0 } else { 1.0 };
        let expected = Expectation { tokens, requests: 3.0, is_sample: true, ..expectation(0) };
        let took = Duration::from_secs_f64(took / 1e3);
        state.apply(endpoint, NOW, &expected.answered(NOW, Some(took)).words);
    }
    let speeds = [0, 1, 2].map(|endpoint| state.at(endpoint).speed());
    assert!(speeds[1] > 1.4 && speeds[0] < 0.8, "{speeds:?}");
    let per_token = state.slopes(C).per_token;
    fixture.states = PluginStates::only(Box::new(state));
    // Nothing has been read since the last first output.
    let all = speeds.map(|speed| (2.0 * speed * 928.0 * per_token).round() / 2.0);
    assert_near(&default_costs(&fixture), &all);
    let text = fixture.with_cycle(|cycle| ExpectedLatencyScorer::default().explain(cycle, &[0, 1], 1));
    assert!(text.as_ref().unwrap().contains(&format!(" r {:.2} ", speeds[1])), "{text:?}");
    // Its times are expected to be longer, too.
    let expected = fixture.with_cycle(|cycle| {
        let nothing = OnceCell::new();
        let costs = Costs::new(ExpectedLatencyScorer::DEFAULT_PARAMETERS, cycle, &nothing);
        [0, 1].map(|endpoint| costs.first_chunk(endpoint) / speeds[endpoint])
    });
    assert_near(&expected[..1], &expected[1..]);
}

#[test]
fn without_a_place_a_request_waits_for_one() {
    let scorer = ExpectedLatencyScorer { max_running: 2, ..ExpectedLatencyScorer::default() };
    let fixture = fixture(&[(1, 0), (2, 0), (5, 0)]);
    let all = [1.0, 2.0, 5.0].map(|n: f64| {
        let wait = (n + 1.0 - 2.0).max(0.0) * REST / 2.0;
        (2.0 * (128.0 * C * (1.0 + n / (8.0 / 3.0 + 1.0)) + B * n + wait)).round() / 2.0
    });
    assert_near(&costs(&fixture, &scorer), &all);
}

#[test]
fn a_prompt_that_is_read_in_front_of_a_queue_for_a_place_delays_those_that_come() {
    let scorer = ExpectedLatencyScorer { max_running: 2, ..ExpectedLatencyScorer::default() };
    let costs = |arrivals| {
        // The second server has the shorter queue, the first one has the prompt cached.
        let mut fixture = fixture(&[(5, 0), (4, 0)]);
        fixture.prefix(PrefixMatch {
            matched: vec![2, 0],
            total: 2,
            block_size: 64,
            ..PrefixMatch::default()
        });
        let mut state = state();
        let sent = Sent { uncached: 100, prompt: 100, adapter: 0, is_alone: true, token_limit: None };
        (0..arrivals).for_each(|_| state.apply(0, NOW, &sent.words()));
        fixture.states = PluginStates::only(Box::new(state));
        costs(&fixture, &scorer)
    };
    let (idle, busy) = (costs(1), costs(1_000));
    assert!(idle[1] < idle[0], "{idle:?}");
    assert!(busy[0] < busy[1], "{busy:?}");
    let (queue, meanwhile) = (3.0 * REST / 2.0, 100.0 / 2.0 * 128.0 * C / 1_000.0);
    let cost = 128.0 * C * (1.0 + 4.0 / 5.5 + meanwhile) + meanwhile * queue + 4.0 * B + queue;
    assert_near(&busy[1..], &[(2.0 * cost).round() / 2.0]);
}

pub(super) fn observe(state: &mut LatencyState, readings: &[Reading], in_flight: &[Load]) {
    state.observe(&Observation { readings, changed: ChangedReadings::All, in_flight, others: &[] });
}

#[test]
fn requests_that_only_the_reading_shows_count() {
    let mut fixture = fixture(&[(2, 0), (2, 0)]);
    let reading = Reading { updated: Some(NOW), waiting: Some(1), running: Some(5), ..Reading::default() };
    fixture.readings[1] = reading;
    let mut state = state();
    let then = [Load { requests: 1, tokens: 0 }; 2];
    observe(&mut state, &fixture.readings, &then);
    fixture.states = PluginStates::only(Box::new(state));
    // Six at the server, and one that came since: seven at the second, two at the first.
    let cost = |n: f64| (2.0 * (128.0 * C * (1.0 + n / (4.5 + 1.0)) + B * n)).round() / 2.0;
    assert_near(&default_costs(&fixture), &[cost(2.0), cost(7.0)]);
}

#[test]
fn proxies_that_share_nothing_each_correct_by_their_own_part() {
    let mut fixture = fixture(&[(2, 0), (2, 0)]);
    let mut state = state();
    // Of three requests at the servers one is known.
    for n in (0..200).rev() {
        let updated = Some(NOW.saturating_sub(Duration::from_millis(50 * n)));
        fixture.readings =
            [4, 8].map(|running| Reading { updated, running: Some(running), ..Reading::default() }).to_vec();
        observe(&mut state, &fixture.readings, &[Load { requests: 2, tokens: 0 }; 2]);
    }
    fixture.states = PluginStates::only(Box::new(state));
    let [few, many] = [2.0 + 2.0 / 3.0, 2.0 + 6.0 / 3.0];
    let mean = f64::midpoint(few, many);
    let cost = |n: f64| (2.0 * (128.0 * C * (1.0 + n / (mean + 1.0)) + B * n)).round() / 2.0;
    assert_near(&default_costs(&fixture), &[cost(few), cost(many)]);
}

#[test]
fn requests_that_wait_and_are_not_known_have_a_backlog() {
    let mut fixture = fixture(&[(0, 0), (0, 0)]);
    fixture.readings[1] = Reading { updated: Some(NOW), waiting: Some(4), ..Reading::default() };
    let mut state = state();
    let sent = Sent { uncached: 100, prompt: 100, adapter: 0, is_alone: true, token_limit: None };
    state.apply(1, NOW, &sent.words());
    observe(&mut state, &fixture.readings, &[]);
    fixture.states = PluginStates::only(Box::new(state));
    let arrivals = 0.1 / 2.0 * 128.0 * C / 1_000.0;
    let second = (300.0 + 128.0) * C * (1.0 + 4.0 / (2.0 + 1.0) + arrivals) + 4.0 * B;
    assert_near(&default_costs(&fixture), &[16.0, (2.0 * second).round() / 2.0]);
}

#[test]
fn the_older_a_reading_the_less_it_corrects_loads() {
    let cost = |age_ms| {
        let mut fixture = fixture(&[(0, 0), (0, 0)]);
        let updated = Some(NOW.saturating_sub(Duration::from_millis(age_ms)));
        fixture.readings[1] = Reading { updated, waiting: Some(4), running: Some(4), ..Reading::default() };
        let mut state = state();
        let sent = Sent { uncached: 100, prompt: 100, adapter: 0, is_alone: true, token_limit: None };
        state.apply(1, NOW, &sent.words());
        observe(&mut state, &fixture.readings, &[]);
        fixture.states = PluginStates::only(Box::new(state));
        default_costs(&fixture)[1]
    };
    // Three waiting requests that are not known, of 100 tokens each, and eight in flight; the mean of both
    // endpoints is half of these.
    let expected = |share: f64| {
        let arrivals = 0.1 / 2.0 * 128.0 * C / 1_000.0;
        let requests = 8.0 * share;
        let delayed = 1.0 + requests / (requests / 2.0 + 1.0) + arrivals;
        let cost = (300.0 * share + 128.0) * C * delayed + requests * B;
        (2.0 * cost).round() / 2.0
    };
    let all = [0, 50, 200, 1_000].map(cost);
    assert_near(&all, &[1.0, 16.0 / 17.0, 0.5, 1.0 / 26.0].map(expected));
}

#[test]
fn a_request_waits_for_memory() {
    let with_usage = |kv_usage, blocks| {
        let mut fixture = fixture(&[(0, 0)]);
        fixture.readings[0] = Reading {
            kv_usage: Some(kv_usage),
            block_size: Some(16),
            num_blocks: Some(blocks),
            ..Reading::default()
        };
        default_costs(&fixture)[0] - 16.0
    };
    assert_near(&[with_usage(0.5, 8_000), with_usage(0.95, 800)], &[0.0, 206.0]);
    assert_near(&[with_usage(0.98, 1_000_000), with_usage(7.0, 0)], &[618.0, 4.0 * REST]);
    for odd in [f64::NAN, f64::NEG_INFINITY, -3.0] {
        assert_near(&[with_usage(odd, 8_000)], &[0.0]);
    }
}

#[test]
fn a_servers_own_count_of_tokens_is_its_memory() {
    let wait = |cache_tokens| {
        let mut fixture = fixture(&[(0, 0)]);
        // A model with several kinds of attention, whose blocks hold more tokens than their size.
        fixture.readings[0] = Reading {
            kv_usage: Some(0.95),
            block_size: Some(16),
            num_blocks: Some(800),
            cache_tokens,
            ..Reading::default()
        };
        default_costs(&fixture)[0] - 16.0
    };
    assert_near(&[wait(None), wait(Some(12_800)), wait(Some(16_000_000))], &[206.0, 206.0, 0.0]);
}

#[test]
fn a_routed_request_is_recorded_and_its_first_chunk_expected() {
    let fixture = fixture(&[(3, 400), (0, 0)]);
    let stage = Stage { profile: "default", picked: &[0] };
    let routed = Routed { stages: &[stage], primary: &stage, rated: None, hashes: None, matches: None };
    let scorer = ExpectedLatencyScorer::default();
    let Records { changes, expectations: expected, .. } =
        fixture.with_cycle(|cycle| records(&scorer, cycle, &routed));
    assert_eq!(changes.len(), 1);
    assert_eq!(
        changes[0].words,
        Sent {
            uncached: 128,
            prompt: 128,
            adapter: adapter_key(fixture.request.model),
            is_alone: false,
            token_limit: None
        }
        .words()
    );
    // A fifth of 400 tokens is left after a long time.
    assert_near(&[expected[0].milliseconds()], &[(80.0 + 128.0) * C + 3.0 * B]);
    assert!(expected[0].is_sample);
    let prefill = Stage { profile: "prefill", picked: &[1] };
    let routed =
        Routed { stages: &[prefill, stage], primary: &stage, rated: None, hashes: None, matches: None };
    let expected = fixture.with_cycle(|cycle| records(&scorer, cycle, &routed)).expectations;
    assert_eq!(expected.iter().map(|expected| expected.is_sample).collect::<Vec<_>>(), [false, false]);
}

#[test]
fn the_terms_are_explained() {
    let fixture = fixture(&[(3, 400), (0, 0)]);
    let text = fixture.with_cycle(|cycle| ExpectedLatencyScorer::default().explain(cycle, &[0, 1], 0));
    let expected = "57.5 ms: p 80 U 128 n 3.0 L 0 E 0 W 0 q 0.000 r 1.00 c 0.1250 b 0.100 M unknown";
    assert_eq!(text.as_deref(), Some(expected));
}

#[test]
fn parameters_out_of_range_are_refused() {
    for prefill_throughput in [0.0, -1.0, 1e10, f64::NAN] {
        let scorer = ExpectedLatencyScorer { prefill_throughput, ..ExpectedLatencyScorer::default() };
        assert!(scorer.check().unwrap_err().starts_with("prefillThroughput is "), "{prefill_throughput}");
    }
    for lora_load_ms in [-1.0, 600_001.0] {
        let scorer = ExpectedLatencyScorer { lora_load_ms, ..ExpectedLatencyScorer::default() };
        assert!(scorer.check().unwrap_err().starts_with("loraLoadMs is "), "{lora_load_ms}");
    }
    assert_eq!(ExpectedLatencyScorer::default().check(), Ok(()));
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..100_u64, 1 => 0..1_000_000_u64, 1 => Just(u64::MAX)]
}

/// A number of requests or tokens in flight, as sums have it.
fn in_flight() -> impl Strategy<Value = u64> {
    number().prop_map(|number| number.min(Load::MAX))
}

fn readings(count: usize) -> impl Strategy<Value = Vec<Reading>> {
    let odd = prop_oneof![4 => 0.0..1.0, 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => -1e300..1e300];
    let size = || prop::option::of(prop_oneof![Just(0_u32), Just(16), Just(u32::MAX)]);
    let values =
        (prop::option::of(number()), prop::option::of(number()), prop::option::of(odd), size(), size());
    let reading = values.prop_map(|(waiting, running, kv_usage, block_size, num_blocks)| {
        let updated = Some(NOW);
        Reading { updated, waiting, running, kv_usage, block_size, num_blocks, ..Reading::default() }
    });
    vec(reading, count)
}

proptest! {
    #[test]
    fn scores_are_shares_whatever_is_read_and_in_flight(
        readings in readings(4),
        loads in vec((in_flight(), in_flight()), 4),
        then in vec(in_flight(), 4),
        prompt in number(),
    ) {
        let mut fixture = fixture(&loads);
        fixture.request.prompt = Some(prompt_of(prompt));
        let mut state = state();
        let then: Vec<Load> = then.into_iter().map(|requests| Load { requests, tokens: requests }).collect();
        let changed = ChangedReadings::All;
        state.observe(&Observation { readings: &readings, changed, in_flight: &then, others: &then });
        fixture.readings = readings;
        fixture.states = PluginStates::only(Box::new(state));
        let scores = fixture.scores(&ExpectedLatencyScorer::default());
        prop_assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
    }

    #[test]
    fn more_tokens_before_it_never_make_an_endpoint_cheaper(
        loads in vec((0..20_u64, 0..10_000_u64), 3),
        more in 0..10_000_u64,
        ms in 0..2_000_u64,
    ) {
        let mut fixture = fixture(&loads);
        fixture.states = answered_ago(3, ms);
        let before = default_costs(&fixture);
        fixture.in_flight[0].tokens += more;
        let after = default_costs(&fixture);
        prop_assert!(after[0] >= before[0] - 1e-6, "{before:?} {after:?}");
        prop_assert_eq!(&after[1..], &before[1..]);
    }

    #[test]
    fn time_that_passes_never_makes_a_backlog_dearer(
        loads in vec((0..20_u64, 0..10_000_u64), 2),
        ms in 0..2_000_u64,
        more in 0..2_000_u64,
    ) {
        let mut fixture = fixture(&loads);
        fixture.states = answered_ago(2, ms);
        let before = default_costs(&fixture);
        fixture.states = answered_ago(2, ms + more);
        let after = default_costs(&fixture);
        prop_assert!(after.iter().zip(&before).all(|(after, before)| *after <= before + 0.5 + 1e-6));
    }
}
