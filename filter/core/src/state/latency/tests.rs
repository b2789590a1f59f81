use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::plugin::fixture::assert_near;
use crate::pool::load::Load;
use crate::pool::reading::{Lora, Reading};
use crate::state::Words;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

const PRIOR: f64 = 0.125;

fn at(ms: u64) -> Duration {
    Duration::from_secs(1_000) + Duration::from_millis(ms)
}

/// An expectation of a request at endpoint 0, as the plugin has made it.
fn expectation(adapter: u64) -> Expectation {
    Expectation {
        plugin: 0,
        endpoint: 0,
        prompt: 100,
        adapter,
        tokens: 800.0,
        requests: 2.0,
        milliseconds: 100.0,
        is_sample: true,
        is_prefill: false,
        has_media: false,
        predicted: None,
    }
}

/// A stream whose last chunk came this many milliseconds after the first one.
fn stream(rest: u64, chunks: u64) -> CompleteResponse {
    let rest = Duration::from_millis(rest);
    CompleteResponse { whole: Duration::from_millis(100) + rest, rest: Some(rest), chunks, by: Some(0) }
}

fn send(state: &mut LatencyState, endpoint: usize, ms: u64, adapter: u64, is_alone: bool) {
    state.apply(
        endpoint,
        at(ms),
        &Sent { uncached: 60, prompt: 100, adapter, is_alone, token_limit: None }.words(),
    );
}

fn observe(state: &mut LatencyState, readings: &[Reading], requests: &[u64], others: &[Load]) {
    let in_flight: Vec<Load> = requests.iter().map(|&requests| Load { requests, tokens: 0 }).collect();
    let changed = ChangedReadings::All;
    state.observe(&Observation { readings, changed, in_flight: &in_flight, others });
}

fn reading(waiting: u64, running: u64, ms: u64) -> Reading {
    Reading { updated: Some(at(ms)), waiting: Some(waiting), running: Some(running), ..Reading::default() }
}

#[test]
fn a_request_is_read_then_answered_then_over() {
    let mut state = LatencyState::new(PRIOR);
    send(&mut state, 1, 10, 0, true);
    send(&mut state, 1, 20, 0, false);
    assert_eq!((state.at(1).context(), state.at(0).context()), (200, 0));
    assert_eq!(state.at(1).reads_since(), at(10), "the first one is read since it came");
    let first = expectation(0);
    state.apply(1, at(50), &first.answered(at(50), None).words);
    assert_eq!(state.at(1).reads_since(), at(50));
    state.apply(1, at(70), &first.ended(at(70), true, None).words);
    assert_eq!(state.at(1).context(), 100);
    state.apply(1, at(80), &first.ended(at(80), false, None).words);
    send(&mut state, 1, 90, 0, false);
    assert_eq!(state.at(1).reads_since(), at(90), "nothing was left to read");
}

#[test]
fn requests_of_a_worker_that_vanished_end_when_nothing_is_in_flight() {
    let mut state = LatencyState::new(PRIOR);
    for _ in 0..9 {
        send(&mut state, 0, 10, 7, false);
    }
    send(&mut state, 0, 99, 8, true);
    assert_eq!((state.at(0).context(), state.at(0).reads_since()), (100, at(99)));
    assert_eq!(state.at(0).adapters_in_flight(7), (false, 1));
}

#[test]
fn first_chunks_teach_the_time_per_token_and_others_do_not() {
    let mut state = LatencyState::new(PRIOR);
    let before = state.slopes(PRIOR);
    state.apply(0, at(1), &expectation(0).answered(at(1), None).words);
    let waited = Expectation { is_sample: false, ..expectation(0) };
    state.apply(0, at(1), &waited.answered(at(1), Some(Duration::from_millis(9))).words);
    assert_eq!(state.slopes(PRIOR), before);
    for tokens in 0..500 {
        let tokens = f64::from(tokens % 40) * 20.0;
        let took = Duration::from_secs_f64(tokens * 0.05 / 1e3);
        let expected = Expectation { tokens, ..expectation(0) };
        state.apply(0, at(1), &expected.answered(at(1), Some(took)).words);
    }
    let learnt = state.slopes(PRIOR).per_token;
    assert!((0.048..0.056).contains(&learnt), "{learnt}");
    let mut other = LatencyState::new(PRIOR);
    for _ in 0..500 {
        let expected = Expectation { tokens: 700.0, ..expectation(0) };
        other.merge(3, at(1), &expected.answered(at(1), Some(Duration::from_millis(35))).words);
    }
    assert!(other.slopes(PRIOR).predict(700.0, 2.0) < 45.0, "another proxy's responses teach, too");
    assert_eq!(other.at(3).context(), 0);
}

/// The words of a first output that took this part of the expected time.
fn answered(state: &LatencyState, part: f64) -> Words {
    let expected = expectation(0);
    let took = part * state.slopes(PRIOR).predict(expected.tokens, expected.requests);
    expected.answered(at(1), Some(Duration::from_secs_f64(took / 1e3))).words
}

#[test]
fn a_server_that_takes_longer_than_the_others_is_known_here_and_in_other_proxies() {
    let (mut state, mut other) = (LatencyState::new(PRIOR), LatencyState::new(PRIOR));
    for endpoint in [0, 1, 2].into_iter().cycle().take(600) {
        let words = answered(&state, if endpoint == 1 { 1.6 } else { 0.8 });
        state.apply(endpoint, at(1), &words);
        other.merge(endpoint, at(1), &words);
    }
    let speeds = |state: &LatencyState| [0, 1, 2, 3].map(|endpoint| state.at(endpoint).speed());
    let [fast, slow, third, unknown] = speeds(&state);
    assert!((1.4..1.6).contains(&slow) && (0.7..0.8).contains(&fast), "{:?}", speeds(&state));
    assert!((third - fast).abs() < 0.01 && unknown.to_bits() == 1.0_f64.to_bits(), "{:?}", speeds(&state));
    assert_near(&speeds(&other), &speeds(&state));
    // The slow server gets another place, and one of the others leaves.
    state.remap(&[Some(2), Some(0), None]);
    assert_near(&speeds(&state), &[slow, 1.0, fast, 1.0]);
    let words = answered(&state, 1.0);
    state.apply(1, at(2), &words);
    assert_near(&[state.at(1).speed()], &[1.0]);
}

#[test]
fn the_order_in_which_samples_of_other_proxies_arrive_hardly_matters() {
    let samples: Vec<(usize, f64)> = (0..600).map(|n| (n % 3, if n % 3 == 1 { 1.6 } else { 0.8 })).collect();
    let speeds = |samples: &[(usize, f64)]| {
        let mut state = LatencyState::new(PRIOR);
        for &(endpoint, part) in samples {
            let took = Duration::from_secs_f64(part * 0.1);
            state.merge(endpoint, at(1), &expectation(0).answered(at(1), Some(took)).words);
        }
        [0, 1, 2].map(|endpoint| state.at(endpoint).speed())
    };
    let reversed: Vec<_> = samples.iter().rev().copied().collect();
    let late: Vec<_> = samples.chunks(40).flat_map(|part| part.iter().rev().copied()).collect();
    let in_order = speeds(&samples);
    for shuffled in [speeds(&reversed), speeds(&late)] {
        let is_near = in_order.iter().zip(shuffled).all(|(one, other)| (one - other).abs() < 0.1);
        assert!(is_near, "{in_order:?} {shuffled:?}");
    }
}

#[test]
fn of_the_changes_of_a_request_only_the_sample_is_shared() {
    let mut state = LatencyState::new(PRIOR);
    let sent = Sent { uncached: 60, prompt: 100, adapter: 7, is_alone: true, token_limit: None }.words();
    let sample = expectation(0).answered(at(1), Some(Duration::from_millis(35))).words;
    let answered = expectation(0).answered(at(1), None).words;
    let ended = expectation(7).ended(at(1), true, Some(&stream(9_000, 3))).words;
    let shared = [&sent, &sample, &answered, &ended].map(|words| state.is_shared(words));
    assert_eq!(shared, [false, true, false, false]);
    // An older proxy sends the others, too.
    for words in [&sent, &answered, &ended] {
        state.merge(0, at(1), words);
    }
    assert_near(&[state.rest(), state.arrivals(at(1)), state.uncached()], &[1_030.0, 0.0, 0.0]);
    assert!(!state.at(0).is_recent(7, 9));
}

#[test]
fn an_adapter_that_a_reading_has_shown_to_run_is_recent_there() {
    let running = |name: &str, ms| Reading {
        lora: Some(Lora { running: vec![name.to_owned()], waiting: vec!["other".to_owned()], max: 2 }),
        ..reading(1, 1, ms)
    };
    let mut state = LatencyState::new(PRIOR);
    send(&mut state, 0, 5, adapter_key("own"), true);
    observe(&mut state, &[running("sql", 10), reading(0, 0, 10)], &[1, 0], &[]);
    observe(&mut state, &[running("legal", 60), reading(0, 0, 60)], &[1, 0], &[]);
    let recent = |endpoint, count| {
        ["own", "sql", "legal", "other"].map(|name| state.at(endpoint).is_recent(adapter_key(name), count))
    };
    assert_eq!(recent(0, 2), [false, true, true, false], "the two newest");
    assert_eq!((recent(0, 9), recent(1, 9)), ([true, true, true, false], [false; 4]));
}

#[test]
fn the_time_to_the_end_and_arrivals_are_means() {
    let mut state = LatencyState::new(PRIOR);
    assert_near(&[state.rest()], &[1_030.0]);
    state.apply(0, at(1), &expectation(0).ended(at(1), true, Some(&stream(3_000, 1))).words);
    assert_near(&[state.rest()], &[1_050.0]);
    for request in 0..10_000 {
        send(&mut state, 0, request * 20, 0, true);
    }
    let now = at(200_000);
    assert!((48.0..51.0).contains(&state.arrivals(now)), "{}", state.arrivals(now));
    assert_near(&[state.uncached()], &[60.0]);
    assert!(state.arrivals(now + Duration::from_secs(60)) < 0.2);
}

/// An expectation of a request whose times were predicted.
fn predicted(is_whole: bool, requests: f64) -> Expectation {
    let predicted = Some(PredictedTimes { is_whole, token_limit: 0 });
    Expectation { predicted, requests, milliseconds: 100.0, ..expectation(0) }
}

#[test]
fn streams_teach_the_time_of_a_token_and_how_well_times_are_predicted() {
    let mut state = LatencyState::new(PRIOR);
    assert_near(&[state.calibration().token_time(5.0)], &[0.5]);
    let rest = Duration::from_secs(1);
    for number in 0..2_000_u64 {
        let requests = (number % 20) as f64;
        let expected = predicted(false, requests);
        // 10 ms for each token, and 0.5 ms for each other request.
        let rest = rest.mul_f64(1.0 + 0.05 * requests);
        let response = CompleteResponse { whole: rest, rest: Some(rest), chunks: 101, by: Some(0) };
        let took = Some(Duration::from_millis(60 + 20 * (number % 5)));
        state.apply(0, at(1), &expected.answered(at(1), took).words);
        state.apply(0, at(1), &expected.ended(at(1), true, Some(&response)).words);
    }
    for requests in [0.0, 10.0, 19.0] {
        let time = state.calibration().token_time(requests);
        assert!((time - 10.0 - 0.5 * requests).abs() < 0.5, "{requests}: {time}");
    }
    // One of five takes 1.4 times as long as predicted, and tokens take as long as predicted.
    let margins = [state.calibration().margin(), state.calibration().token_margin()];
    assert!((1.35..1.45).contains(&margins[0]) && (0.9..1.1).contains(&margins[1]), "{margins:?}");
}

#[test]
fn whole_responses_teach_how_long_they_last() {
    let mut state = LatencyState::new(PRIOR);
    for _ in 0..1_000 {
        let response = CompleteResponse {
            whole: Duration::from_millis(400),
            by: Some(0),
            ..CompleteResponse::default()
        };
        state.apply(0, at(1), &predicted(true, 0.0).ended(at(1), true, Some(&response)).words);
    }
    assert!((state.time_to_end() - 300.0).abs() < 1.0, "{}", state.time_to_end());
    assert!((0.9..1.1).contains(&state.calibration().margin()), "{:?}", state.calibration());
}

#[test]
fn responses_of_other_endpoints_and_those_that_break_off_teach_no_predictor() {
    let mut state = LatencyState::new(PRIOR);
    let other = CompleteResponse { by: Some(9), ..stream(3_000, 100) };
    for response in [None, Some(&other), Some(&stream(3_000, 1))] {
        state.apply(0, at(1), &predicted(false, 2.0).ended(at(1), true, response).words);
        state.apply(0, at(1), &predicted(false, 2.0).answered(at(1), None).words);
    }
    assert_near(&[state.calibration().token_time(2.0), state.calibration().token_margin()], &[0.2, 1.0]);
    assert_near(&[state.calibration().margin()], &[1.0]);
}

#[test]
fn token_limits_are_those_of_requests_in_flight() {
    let mut state = LatencyState::new(PRIOR);
    let send = |state: &mut LatencyState, limit, is_alone| {
        let sent = Sent { uncached: 1, prompt: 1, adapter: 0, is_alone, token_limit: Some(limit) };
        state.apply(0, at(1), &sent.words());
    };
    let end = |state: &mut LatencyState, token_limit| {
        let predicted = Some(PredictedTimes { is_whole: false, token_limit });
        let expected = Expectation { predicted, ..expectation(0) };
        state.apply(0, at(2), &expected.ended(at(2), true, None).words);
    };
    send(&mut state, 40_000, true);
    send(&mut state, 20_000, false);
    assert_eq!(state.at(0).least_token_limit(), Some(Duration::from_millis(20)));
    send(&mut state, 0, false);
    assert_eq!(state.at(0).least_token_limit(), None);
    end(&mut state, 0);
    end(&mut state, 20_000);
    assert_eq!(state.at(0).least_token_limit(), Some(Duration::from_millis(40)));
    send(&mut state, 50_000, true);
    assert_eq!(state.at(0).least_token_limit(), Some(Duration::from_millis(50)), "the others have ended");
}

#[test]
fn adapters_are_known_from_readings_and_kept_in_the_order_of_their_use() {
    let mut state = LatencyState::new(PRIOR);
    assert_eq!(state.adapter("sql"), None);
    let lora = Lora { running: vec!["sql".to_owned()], waiting: vec!["legal".to_owned()], max: 2 };
    observe(&mut state, &[Reading { lora: Some(lora), ..reading(0, 1, 0) }], &[0], &[]);
    let [sql, legal] = ["sql", "legal"].map(|name| state.adapter(name).unwrap());
    assert_eq!((state.adapter("base"), state.max_adapters()), (None, 2));
    for adapter in [sql, legal, sql, 9] {
        send(&mut state, 0, 1, adapter, false);
    }
    assert_eq!(state.at(0).adapters_in_flight(sql), (true, 3));
    assert_eq!([sql, legal, 9].map(|adapter| state.at(0).is_recent(adapter, 2)), [true, false, true]);
    for is_in_flight in [true, false] {
        state.apply(0, at(2), &expectation(sql).ended(at(2), true, None).words);
        assert_eq!(state.at(0).adapters_in_flight(sql).0, is_in_flight);
    }
}

#[test]
fn a_reading_keeps_what_was_in_flight_when_it_arrived() {
    let mut state = LatencyState::new(PRIOR);
    assert_eq!(state.at(0).at_reading(), None);
    send(&mut state, 0, 0, 0, true);
    observe(&mut state, &[reading(0, 0, 5)], &[1], &[]);
    let then = state.at(0).at_reading().unwrap();
    assert_near(&[then.requests, then.context, then.unanswered], &[1.0, 100.0, 1.0]);
    send(&mut state, 0, 10, 0, false);
    observe(&mut state, &[reading(0, 0, 7)], &[2], &[]);
    assert!(state.at(0).at_reading().unwrap().requests < 1.5, "the same reading in the next snapshot");
    let others = Load { requests: 5, tokens: 180 };
    observe(&mut state, &[reading(0, 0, 55)], &[2], &[others]);
    let then = state.at(0).at_reading().unwrap();
    assert_near(&[then.requests, then.unanswered], &[2.0, 2.0 + 180.0 / 60.0]);
}

#[test]
fn only_changed_readings_are_taken_in_unless_all_rows_differ() {
    let mut state = LatencyState::new(PRIOR);
    let mut take = |readings: &[Reading], changed, of_others| {
        let in_flight = [Load { requests: 9, tokens: 0 }; 3];
        let others = [Load { requests: of_others, tokens: 0 }; 3];
        state.observe(&Observation { readings, changed, in_flight: &in_flight, others: &others });
        [0, 1, 2].map(|endpoint| state.columns().row(endpoint).unwrap())
    };
    let readings = |ms| [reading(0, 5, ms), reading(0, 6, ms), reading(0, 7, ms)];
    let first = take(&readings(0), ChangedReadings::At(&[]), 0);
    assert!(first.iter().all(|row| row.since > 0.0), "none was known: {first:?}");
    let second = take(&readings(50), ChangedReadings::At(&[1]), 0);
    let age = second[1].taken - first[1].taken;
    assert_eq!((second[0], second[2]), (first[0], first[2]));
    assert_near(&[age], &[50e6]);
    // Other proxies are seen, with which the speed of every server is unknown.
    let last = (2..200).map(|n| take(&readings(50 * n), ChangedReadings::At(&[1]), 8)).last().unwrap();
    assert!(last[0].taken > first[0].taken && last[0].taken < last[1].taken, "{last:?}");
}

#[test]
fn ages_are_exact_to_the_nanosecond_however_long_the_proxy_runs() {
    let mut state = LatencyState::new(PRIOR);
    for days in [0, 40, 60, 100, 20_000, 3] {
        let taken = at(0) + Duration::from_secs(days * 86_400) + Duration::from_nanos(123_456_789);
        let reading = Reading { updated: Some(taken), ..Reading::default() };
        observe(&mut state, &[reading], &[0], &[]);
        let columns = state.columns();
        let now = columns.nanoseconds(taken + Duration::from_nanos(987_654_321));
        assert_near(&[now - columns.row(0).unwrap().taken], &[987_654_321.0]);
    }
}

#[test]
fn requests_at_the_servers_that_are_not_known_show_other_proxies() {
    let mut state = LatencyState::new(PRIOR);
    for n in 0..200 {
        observe(&mut state, &[reading(1, 9, 50 * n), reading(0, 20, 50 * n)], &[5, 5], &[]);
    }
    assert!((state.elsewhere() - 3.0).abs() < 0.01, "{}", state.elsewhere());
    for n in 200..600 {
        observe(&mut state, &[reading(0, 6, 50 * n), reading(0, 5, 50 * n)], &[5, 5], &[]);
    }
    assert!((state.elsewhere() - 1.0).abs() < 0.01, "{}", state.elsewhere());
    for n in 600..900 {
        observe(&mut state, &[reading(u64::MAX, 6, 50 * n)], &[5], &[]);
    }
    assert!((state.elsewhere() - 16.0).abs() < 0.01, "{}", state.elsewhere());
}

#[test]
fn the_arrivals_at_other_proxies_follow_from_their_requests_in_flight() {
    let mut state = LatencyState::new(PRIOR);
    send(&mut state, 0, 0, 0, true);
    assert_near(&[state.arrivals(at(0))], &[0.1]);
    assert!(!state.is_one_of_several());
    for n in 0..200 {
        let others = Load { requests: 6, tokens: 0 };
        observe(&mut state, &[reading(0, 8, 50 * n)], &[8], &[others]);
    }
    assert!((state.arrivals(at(0)) - 0.4).abs() < 0.001, "two of eight are its own");
    assert!(state.is_one_of_several());
    assert_near(&[state.elsewhere()], &[1.0]);
}

#[test]
fn the_state_follows_the_pool() {
    let mut state = LatencyState::new(PRIOR);
    send(&mut state, 0, 1, 0, true);
    send(&mut state, 2, 2, 0, true);
    state.remap(&[None, Some(0), Some(1)]);
    assert_eq!([0, 1, 2].map(|endpoint| state.at(endpoint).context()), [0, 100, 0]);
}

proptest! {
    #[test]
    fn whatever_the_words_all_numbers_are_finite(
        changes in vec((0..4_usize, 0..9_000_u64, vec(prop_oneof![0..6_u64, any::<u64>()], 0..6)), 0..80),
        mine in any::<bool>(),
    ) {
        let mut state = LatencyState::new(PRIOR);
        for (endpoint, ms, words) in changes {
            if state.can_read(&words) && mine {
                state.apply(endpoint, at(ms), &words);
            } else {
                state.merge(endpoint, at(ms), &words);
            }
            let Slopes { per_token, per_request, intercept } = state.slopes(PRIOR);
            let calibration = state.calibration();
            let margins = [calibration.margin(), calibration.token_margin(), calibration.token_time(1e5)];
            prop_assert!(margins.iter().all(|number| number.is_finite() && *number >= 0.0), "{margins:?}");
            let numbers = [per_token, per_request, intercept, state.rest(), state.uncached(), state.arrivals(at(ms))];
            prop_assert!(numbers.iter().all(|number| number.is_finite()), "{numbers:?}");
            prop_assert!(per_token > 0.0 && state.uncached() >= 0.0 && state.rest() >= 0.0);
        }
        prop_assert!(state.endpoints.iter().all(|endpoint| endpoint.recent.len() <= endpoint::MAX_RECENT));
        prop_assert!(state.endpoints.iter().all(|endpoint| (0.25..=4.0).contains(&endpoint.speed())));
    }
}

#[test]
fn tokens_that_no_server_can_have_read_in_the_time_teach_nothing_here_and_in_other_proxies() {
    let mut state = LatencyState::new(PRIOR);
    for n in 0..300 {
        let tokens = f64::from(n % 40) * 50.0;
        let expected = Expectation { tokens, ..expectation(0) };
        let took = Duration::from_secs_f64((5.0 + tokens * 0.1) / 1e3);
        state.apply(0, at(1), &expected.answered(at(1), Some(took)).words);
    }
    let learnt = state.slopes(PRIOR);
    assert!((0.09..0.11).contains(&learnt.per_token), "{learnt:?}");
    for tokens in [1e4, 2e5, 1e7, 1e9] {
        let claimed = Expectation { tokens, ..expectation(0) };
        let change = claimed.answered(at(1), Some(Duration::from_millis(20)));
        state.apply(0, at(1), &change.words);
        state.merge(1, at(1), &change.words);
        // As a proxy of an older version may send it.
        let words = [2, 10_000_000, 2_000, 20_000];
        state.merge(1, at(1), &words);
    }
    assert_eq!(state.slopes(PRIOR), learnt);
}
