//! A record that the model of servers made: their speeds are found again, and the recorded picks, replayed,
//! come within a tenth of the record.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod recorded;

use endpoint_picker_wire::NamedRules;
use metrics_agent_replay::fit::{self, Fit, Given};
use metrics_agent_replay::record::Record;
use metrics_agent_replay::replay::{Replay, Results};
use metrics_agent_replay::report::{Report, page};
use metrics_agent_replay::rules;
use metrics_agent_replay::simulation::pickers::Mechanism;
use metrics_agent_server_model::{Allocation, ServiceTimes};
use recorded::Recorded;
use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Servers like those of `make simulate`, one of which is 1.5 times slower.
const TIMES: ServiceTimes = ServiceTimes {
    max_running: 256,
    step: Duration::from_millis(9),
    step_per_sequence: Duration::from_micros(120),
    step_per_context_token: Duration::from_nanos(30),
    prefill_per_token: Duration::from_micros(60),
    doubling_context: None,
    reads_apart: false,
    max_batched_tokens: 8192,
    kv_blocks: 5_000,
    allocation: Allocation::AsNeeded,
    max_loras: 0,
    lora_load: Duration::ZERO,
    stream_interval: 1,
};

const SLOWNESS: [f64; 4] = [1.0, 1.0, 1.0, 1.5];

fn record() -> Record {
    Record::read(lines().as_bytes()).unwrap()
}

fn lines() -> String {
    Recorded { times: TIMES, slowness: &SLOWNESS, per_second: 15.0, requests: 4_000, seed: 1 }.lines()
}

fn fitted(record: &Record) -> Fit {
    fit::fit(record, &Given::default(), 8)
}

fn run(record: &Record, fit: &Fit, names: &[NamedRules]) -> (Results, Report) {
    let rule =
        |rules: &NamedRules| (rules.as_str().to_owned(), rules::mechanism(rules::named(*rules).unwrap()));
    run_rules(record, fit, names.iter().map(rule).collect())
}

fn run_rules(record: &Record, fit: &Fit, rules: Vec<(String, Mechanism)>) -> (Results, Report) {
    let replay = Replay {
        record,
        fit,
        fleet: fit.fleet.clone(),
        rules,
        seeds: 2,
        load: 1.0,
        limit: Some(Duration::from_millis(500)),
        threads: 2,
    };
    let sent = AtomicUsize::new(0);
    let count = || {
        sent.fetch_add(1, Ordering::Relaxed);
    };
    let results = replay.run(&count).unwrap();
    assert_eq!(sent.load(Ordering::Relaxed), replay.requests());
    let report = Report::new(&replay, &results);
    (results, report)
}

/// Asserts that a number is within this part of another one.
fn assert_near(name: &str, found: f64, true_one: f64, part: f64) {
    println!("{name}: {found:.6}, truly {true_one:.6}");
    assert!((found / true_one - 1.0).abs() <= part, "{name}: {found} for {true_one}");
}

#[test]
fn speeds_are_found_again_and_the_recorded_picks_come_within_a_tenth_of_the_record() {
    let record = record();
    let fit = fitted(&record);
    let found = fit.fleet.times;
    let prefill = found.prefill_per_token.as_secs_f64();
    assert_near("prefill", prefill, TIMES.prefill_per_token.as_secs_f64(), 0.1);
    assert!(!found.reads_apart);
    let typical = |times: &ServiceTimes| {
        (times.step + 12 * times.step_per_sequence + 18_000 * times.step_per_context_token).as_secs_f64()
    };
    assert_near("a step of 12 requests", typical(&found), typical(&TIMES), 0.1);
    for (server, name) in fit.servers.iter().zip(&record.servers) {
        let number: usize = name["10.0.0.".len()..].split(':').next().unwrap().parse().unwrap();
        assert_near(name, server.slowness, SLOWNESS[number - 1], 0.1);
        assert!(server.is_described(), "{server:?}");
    }
    assert!(fit.prefill_error.unwrap() <= 0.15 && fit.decode_error.unwrap() <= 0.1, "{fit:?}");
    let cached = f64::from(found.kv_blocks);
    assert_near("blocks of a cache", cached, TIMES.kv_blocks.into(), 0.35);

    let (results, report) = run(&record, &fit, &[NamedRules::ExpectedLatency, NamedRules::Epp]);
    println!("{report}");
    for difference in results.differences() {
        assert!(difference.is_trusted(), "{difference:?}");
    }
    assert_eq!(results.differences().len(), 3);
    let [ours, _, omniscient] = &results.rules[..] else { panic!("{report}") };
    assert!(omniscient.1[0].percentile(0.9) <= ours.1[0].percentile(0.9) * 1.1, "{report}");
    let page = page(&report).unwrap();
    assert!(page.contains("uPlot") && page.contains("expected-latency"));
}

#[test]
fn servers_that_read_prompts_apart_from_decoding_are_found() {
    let times = ServiceTimes { reads_apart: true, ..TIMES };
    let servers = Recorded { times, slowness: &[1.0; 3], per_second: 8.0, requests: 2_000, seed: 3 };
    let record = Record::read(servers.lines().as_bytes()).unwrap();
    let fit = fitted(&record);
    assert!(fit.fleet.times.reads_apart, "{fit:?}");
    let (results, report) = run(&record, &fit, &[]);
    for difference in results.differences() {
        assert!(difference.is_trusted(), "{difference:?} {report}");
    }
    assert!(report.to_string().contains("tokens/s, apart from decoding"), "{report}");
}

#[test]
fn a_server_that_the_model_does_not_describe_is_named() {
    const STRANGE: &str = "10.0.0.2:8000";
    let strange = |(number, line): (usize, &str)| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["endpoint"] == STRANGE {
            // Times that follow from nothing in the record.
            let factor = [0.2, 1.0, 5.0][number * 7 % 3];
            for time in ["first_token_ms", "end_ms"] {
                line[time] = (line[time].as_f64().unwrap() * factor).into();
            }
        }
        line.to_string()
    };
    let lines: Vec<String> = lines().lines().enumerate().map(strange).collect();
    let record = Record::read(lines.join("\n").as_bytes()).unwrap();
    let fit = fitted(&record);
    for (name, server) in record.servers.iter().zip(&fit.servers) {
        assert_eq!(server.is_described(), name != STRANGE, "{name}: {server:?}");
    }
    let report = run(&record, &fit, &[]).1.to_string();
    assert!(report.contains("10.0.0.2:8000 is not described by this: its error is"), "{report}");
}

/// Rules by which each server has one request at a time, and the others wait in the proxy for at most this
/// long.
fn one_at_a_time(wait: &str) -> (String, Mechanism) {
    let yaml = format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\nplugins:\n\
         - {{type: queue-scorer}}\n- {{type: concurrency-detector, parameters: {{maxConcurrency: 1}}}}\n\
         flowControl:\n  saturationDetector: {{pluginRef: concurrency-detector}}\n  defaultRequestTTL: {wait}\n"
    );
    let policy = rules::read("queue.yaml".as_ref(), yaml.as_bytes()).unwrap().unwrap();
    (wait.to_owned(), rules::mechanism(policy))
}

#[test]
fn requests_wait_in_the_queue_of_rules_with_flow_control_and_are_refused_when_their_time_is_over() {
    let record = Recorded { times: TIMES, slowness: &SLOWNESS, per_second: 2.0, requests: 600, seed: 1 };
    let record = Record::read(record.lines().as_bytes()).unwrap();
    let fit = fitted(&record);
    let (results, report) = run_rules(&record, &fit, vec![one_at_a_time("1000s"), one_at_a_time("100ms")]);
    println!("{report}");
    let measured = record.requests.len() - record.requests.len() / 5;
    let [(_, patient), (_, hasty), (_, omniscient)] = &results.rules[..] else { panic!("{report}") };
    for (patient, (hasty, omniscient)) in patient.iter().zip(hasty.iter().zip(omniscient)) {
        assert_eq!((patient.requests(), patient.share_refused()), (measured, 0.0));
        // Alone at its server, a request shares no step; its context adds a little.
        let alone = (fit.fleet.times.step + fit.fleet.times.step_per_sequence).as_secs_f64() * 1e3;
        let mean = SLOWNESS.iter().sum::<f64>() / SLOWNESS.len() as f64;
        assert!(patient.token_time() < 1.05 * mean * alone, "{report}");
        assert!(patient.percentile(0.9) > 2.0 * omniscient.percentile(0.9), "the wait counts: {report}");
        assert!(hasty.share_refused() > 0.01 && hasty.percentile(0.9) < patient.percentile(0.9), "{report}");
    }
    assert!(report.to_string().contains("% refused"), "{report}");
}
