//! Decisions and the reasons for them, as `explain` prints them.

use std::time::Duration;

use endpoint_picker_wire::report::{Band, FlowControl, Report};
use endpoint_picker_wire::{Message, REPORT_FORMAT};
use tokio::process::Command;

use super::fixture::{BODY, Fixture, explain, row};
use crate::harness::eventually;
use crate::reports::post_for_bytes;
use crate::scripted::{Behaviour, load};

#[tokio::test]
async fn the_pick_follows_from_the_scores_and_weights_that_are_printed() {
    let fixture = Fixture::with(&[5, 1, 3], None).await;
    let (table, code) = fixture.explain(&[]).await;
    assert_eq!(code, 0, "{table}");
    assert!(table.starts_with("pool default, POST /v1/chat/completions: model \"m\", "), "{table}");
    let header = table.lines().find(|line| line.starts_with("ENDPOINT")).unwrap();
    let weights: Vec<f64> =
        header.split_whitespace().filter_map(|word| word.strip_prefix('x')?.parse().ok()).collect();
    assert_eq!(weights, [2.0, 2.0, 3.0], "{header}");
    let mut totals = Vec::new();
    for server in 0..3 {
        let cells = row(&table, fixture.address(server));
        let numbers: Vec<f64> = cells.iter().map_while(|cell| cell.parse().ok()).collect();
        let (total, scores) = numbers.split_last().unwrap();
        let sum: f64 = scores.iter().zip(&weights).map(|(score, weight)| score * weight).sum();
        assert!((sum - total).abs() < 0.005, "{cells:?}");
        totals.push(*total);
    }
    // The shortest queue scores 1, the longest 0.
    let ahead = [totals[1] - totals[0], totals[2] - totals[0]];
    assert!((ahead[0] - 2.0).abs() < 0.005 && (ahead[1] - 1.0).abs() < 0.005, "{table}");
    assert_eq!(row(&table, fixture.address(1))[4..], ["100.0 %", "picked"], "{table}");
    assert!(table.contains(&format!("\nrouted to {}\n", fixture.address(1))), "{table}");
    assert!(table.contains("Nothing but the snapshot is known here."), "{table}");
}

#[tokio::test]
async fn terms_of_scores_are_printed_below_the_table() {
    let manifests = include_str!("../../../../examples/choosing/expected-latency.yaml");
    let fixture = Fixture::with(&[5, 1], Some(manifests)).await;
    // The rule counts less of a reading the older it is.
    fixture.set_ages(Duration::ZERO);
    let (table, _) = fixture.explain(&[]).await;
    let terms = |server| {
        let line = format!("expected-latency-scorer, default/{}: ", fixture.address(server));
        table
            .lines()
            .find_map(|it| it.strip_prefix(&line).map(str::to_owned))
            .unwrap_or_else(|| panic!("{table}"))
    };
    assert!(terms(0).contains(" n 5.0 ") && terms(1).contains(" n 1.0 "), "{table}");
    assert!(terms(1).ends_with(" r 1.00 c 0.1250 b 0.100 M unknown"), "{table}");
    assert_eq!(row(&table, fixture.address(1))[3..], ["picked"], "{table}");
}

#[tokio::test]
async fn a_live_agent_and_a_body_on_standard_input_give_the_same_result() {
    let fixture = Fixture::with(&[5, 1], None).await;
    let (recorded, _) = fixture.explain(&[]).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics-agent"));
    command.args(["explain", "--agent", &fixture.url(), "-"]);
    command.stdin(std::fs::File::open(fixture.path("body.json")).unwrap());
    let live = String::from_utf8(command.output().await.unwrap().stdout).unwrap();
    // The readings of the live agent are newer.
    let without_ages = |table: &str| -> Vec<String> {
        table
            .lines()
            .map(|line| {
                line.rsplit_once(", ")
                    .filter(|(_, age)| age.ends_with(" ms old"))
                    .map_or(line, |it| it.0)
                    .to_owned()
            })
            .collect()
    };
    assert_eq!(without_ages(&live), without_ages(&recorded));
}

#[tokio::test]
async fn a_live_agent_knows_what_waits_in_the_proxies() {
    let fixture = Fixture::with(&[5, 1], None).await;
    let band = Band { requests: 12, max_requests: 20, ..Band::default() };
    let queue = FlowControl { saturation: 1.2, bands: vec![band], ..FlowControl::default() };
    let proxy = "envoy-1".to_owned();
    let report = Report { format: REPORT_FORMAT, proxy, flow_control: Some(queue), ..Report::default() };
    let path = "/v1/pools/default/report";
    let kind = "application/x-protobuf";
    let (status, _) = post_for_bytes(&fixture.agent, path, kind, &report.encode_to_vec()).await;
    assert_eq!(status, 204);
    let (live, _) = explain(&["--agent", &fixture.url(), &fixture.path("body.json")]).await;
    assert!(live.contains("\nthe request would wait behind 12 of band 0, and then:\n"), "{live}");
    let (recorded, _) = fixture.explain(&[]).await;
    assert!(!recorded.contains("would wait"), "a snapshot has no queue: {recorded}");
}

#[tokio::test]
async fn the_metrics_that_kv_usage_is_read_from_are_printed() {
    let fixture = Fixture::with(&[0, 0, 0], None).await;
    let usage = |name: &str| load(0, 0) + &format!("# TYPE {name} gauge\n{name} 0.5\n");
    let names = ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "vllm:gpu_cache_usage_perc"];
    for (server, name) in fixture.servers.iter().zip(names) {
        server.set_behaviour(Behaviour::Text(usage(name)));
    }
    let read = |reading: &endpoint_picker_wire::v1::Reading| reading.kv_usage == Some(0.5);
    fixture.agent.snapshot_where("all read", |snapshot| snapshot.readings.iter().all(read)).await;
    fixture.save().await;
    let (table, _) = fixture.explain(&[]).await;
    let expected = "\nKV usage is read from vllm:gpu_cache_usage_perc (2 endpoints), vllm:kv_cache_usage_perc (1 endpoint).\n";
    assert!(table.contains(expected), "{table}");
    let status = fixture.agent.get("/v1/pools/default").await.text();
    assert!(status.contains(r#""kv_usage_metric":"vllm:gpu_cache_usage_perc""#), "{status}");
}

#[tokio::test]
async fn a_tie_is_printed_with_its_chances_and_the_seed_decides_it() {
    let fixture = Fixture::with(&[0, 0], None).await;
    let mut picked = std::collections::BTreeSet::new();
    for seed in 0..8 {
        let (table, _) = fixture.explain(&["--seed", &seed.to_string()]).await;
        assert_eq!(fixture.explain(&["--seed", &seed.to_string()]).await.0, table);
        let tie = format!("a tie: {}, {} have the highest total", fixture.address(0), fixture.address(1));
        assert!(
            table.contains(&tie)
                && table.contains(&format!("max-score-picker drew one of them (--seed {seed})")),
            "{table}"
        );
        for server in 0..2 {
            let cells = row(&table, fixture.address(server));
            let chance: f64 = cells[4].trim_end_matches(" %").parse().unwrap();
            assert!((40.0..60.0).contains(&chance), "{table}");
            if cells.last().unwrap() == "picked" {
                picked.insert(server);
            }
        }
    }
    assert_eq!(picked.len(), 2, "eight seeds choose both");
}

#[tokio::test]
async fn excluded_endpoints_are_listed_with_the_reason() {
    let mut fixture = Fixture::with(&[0, 1, 2], None).await;
    fixture.servers[0].stop().await;
    eventually("not ready", async || {
        let snapshot = fixture.agent.snapshot("").await.ok()?;
        (!snapshot.readings[0].ready).then_some(())
    })
    .await;
    fixture.save().await;
    let subset = format!("{}, {}", fixture.address(0), fixture.address(2));
    let (table, code) = fixture.explain(&["--subset", &subset]).await;
    assert_eq!(code, 0);
    assert_eq!(row(&table, fixture.address(0)).last().unwrap(), "not ready", "{table}");
    assert_eq!(row(&table, fixture.address(1)).last().unwrap(), "outside the subset hint", "{table}");
    assert_eq!(row(&table, fixture.address(2)).last().unwrap(), "picked", "{table}");
    let (table, code) = fixture.explain(&["--subset", &fixture.address(0).to_string()]).await;
    assert_eq!(code, 3, "{table}");
    assert!(table.contains("the client is answered 503 ServiceUnavailable: "), "{table}");
    assert!(table.contains("x-llm-d-request-dropped-reason: rejected-no-endpoints"), "{table}");
}

#[tokio::test]
async fn the_prompt_of_an_earlier_body_is_remembered_at_its_endpoint() {
    let fixture = Fixture::with(&[0, 1], None).await;
    let long = BODY.replace("hello", &"The same long beginning. ".repeat(200));
    fixture.write("long.json", &long);
    assert_eq!(
        row(&fixture.explain_body("long.json", &[]).await.0, fixture.address(0)).last().unwrap(),
        "picked"
    );
    let after = format!("{}={}", fixture.path("long.json"), fixture.address(1));
    let (table, _) = fixture.explain_body("long.json", &["--after", &after]).await;
    let cells = row(&table, fixture.address(1));
    assert_eq!((cells[2].as_str(), cells.last().unwrap().as_str()), ("1.000", "picked"), "{table}");
}

const POLICIES: &str = r"
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: batch}
spec: {priority: -10, poolRef: {name: default}}
---
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: {name: canary}
spec:
  poolRef: {name: default}
  rules:
  - matches: [{model: {type: Exact, value: m}}]
    targets: [{modelRewrite: m-2}]
";

#[tokio::test]
async fn policies_apply_as_in_the_filter() {
    let fixture = Fixture::with(&[100, 100], Some(POLICIES)).await;
    let (table, code) = fixture.explain(&[]).await;
    assert_eq!(code, 0, "{table}");
    assert!(
        table.contains(
            "the request to the server has model \"m-2\"; the client's request and its response have \"m\""
        ),
        "{table}"
    );
    let (table, code) = fixture.explain(&["--header", "X-LLM-D-Inference-Objective: batch"]).await;
    assert_eq!(code, 3, "{table}");
    assert!(table.contains("priority -10") && table.contains("answered 429 ResourceExhausted: "), "{table}");
}
