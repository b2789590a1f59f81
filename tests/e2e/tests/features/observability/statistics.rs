//! The filter's statistics as Prometheus reads them.

use endpoint_picker_e2e::fixture::{CHAT, TEXT, fresh_chat};
use endpoint_picker_e2e::policy_fixture::{PolicyFixture, rewriting};
use endpoint_picker_e2e::statistics::{ROUTED, complete_statistics, statistics};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use reqwest::StatusCode;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn pool_status_and_reason_are_labels() {
    let stack = Stack::builder().start().await;
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
    let rejected = format!("{CHAT}?rejected");
    assert_eq!(stack.post(&rejected, &json!([])).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(stack.logged(&rejected).await["details"], "endpoint_picker_rejected");
    let statistics = complete_statistics(&stack).await;
    let value = |series: &str| statistics.value::<u64>(series).unwrap();
    assert!(value(r#"routed{pool="default"}"#) > 0);
    assert_eq!(value(r#"rejected{pool="default",status="400"}"#), 1);
    assert_eq!(value(r#"abstained{pool="default",reason="body_too_large"}"#), 0);
    value(r#"in_flight{pool="default"}"#);
    assert_eq!(value(r#"served_elsewhere{pool="default"}"#), 0);
    let form = Filter::chosen().unwrap();
    let build =
        format!(r#"build_info{{pool="default",version="{}",form="{form}"}}"#, env!("CARGO_PKG_VERSION"));
    assert_eq!(value(&build), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_rise_while_requests_come() {
    let stack = Stack::builder().start().await;
    let before = statistics(&stack).await.count(ROUTED);
    eventually("more requests are counted", async || {
        assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
        let routed = statistics(&stack).await.count(ROUTED) - before;
        if routed > 20 { Ok(()) } else { Err(format!("{routed} are")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn picks_models_and_prompts_have_series_of_their_own_and_times_are_histograms() {
    const REQUESTS: u64 = 10;
    let stack = Stack::builder().start().await;
    // Four blocks of 64 tokens, at four bytes each.
    let prompt = "0123456789abcdef".repeat(64);
    let body = json!({"model": "counted-apart", "prompt": prompt, "max_tokens": 1});
    for _ in 0..REQUESTS {
        assert_eq!(stack.post(TEXT, &body).await.status(), StatusCode::OK);
    }
    eventually("all requests are statistics", async || {
        let statistics = statistics(&stack).await;
        let is = |what: &str, found: u64, expected: u64| {
            if found == expected {
                Ok(())
            } else {
                Err(format!("{what}: {found}, not {expected}; {statistics}"))
            }
        };
        let routed = statistics.value(r#"routed{pool="default"}"#)?;
        is("picks", statistics.sum("picks"), routed)?;
        // Those before the first snapshot took their time, too.
        let early: u64 = statistics.value(r#"abstained{pool="default",reason="no_snapshot"}"#)?;
        let decided = statistics.value(r#"decision_us_count{pool="default"}"#)?;
        is("decisions", decided, routed + early)?;
        is("first bytes", statistics.value(r#"first_byte_ms_count{pool="default"}"#)?, routed)?;
        let models = r#"model_name="counted-apart",target_model="counted-apart""#;
        is(
            "of the model",
            statistics.value(&format!(r#"model_requests{{pool="default",{models}}}"#))?,
            REQUESTS,
        )?;
        // All prompts but the first were cached, and no other request of this stack.
        let matched = statistics.value(r#"prompt_blocks_matched{pool="default"}"#)?;
        is("matched blocks", matched, 4 * (REQUESTS - 1))?;
        let blocks: u64 = statistics.value(r#"prompt_blocks{pool="default"}"#)?;
        is("blocks", blocks.min(4 * REQUESTS), 4 * REQUESTS)?;
        for server in stack.servers() {
            let endpoint = server.endpoint();
            let of = |name: &str| format!(r#"{name}{{pool="default",endpoint="{endpoint}"}}"#);
            is("requests in flight", statistics.value(&of("endpoint_in_flight"))?, 0)?;
            is("tokens in flight", statistics.value(&of("endpoint_in_flight_tokens"))?, 0)?;
        }
        let age: u64 = statistics.value(r#"snapshot_age_ms{pool="default"}"#)?;
        if age < 5_000 { Ok(()) } else { Err(format!("the snapshot is {age} ms old")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rewrites_are_counted_by_their_object_and_target() {
    let fixture = PolicyFixture::start(rewriting()).await;
    let body = json!({"model": "llama", "prompt": "hi", "max_tokens": 1}).to_string();
    let answer = fixture.post(&client::http1(), TEXT, body).await;
    assert_eq!(answer.status(), StatusCode::OK);
    eventually("the rewrite is statistics", async || {
        let statistics = statistics(&fixture.stack).await;
        let labels = r#"pool="default",model_rewrite_name="rewrite",target_model="llama-canary""#;
        match statistics.value(&format!("rewrites{{{labels}}}"))? {
            1 => Ok(()),
            count => Err(format!("{count} rewrites")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_model_cannot_forge_another_label() {
    let names = ["x.rejected|503", "x.abstained|no_snapshot", "x.routed", "a|x.rejected|503"];
    let stack = Stack::builder().start().await;
    for name in names {
        let body = json!({"model": name, "prompt": "hi", "max_tokens": 1});
        assert_eq!(stack.post(TEXT, &body).await.status(), StatusCode::OK);
    }
    eventually(
        "each model is statistics by its own name and has no label of another statistic",
        async || {
            let statistics = statistics(&stack).await;
            for name in names.map(|name| name.replace('|', "_")) {
                let labels = format!(r#"pool="default",model_name="{name}",target_model="{name}""#);
                statistics.value::<u64>(&format!("model_requests{{{labels}}}"))?;
            }
            Ok::<_, String>(())
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_may_have_any_name_and_clients_cannot_create_unlimited_series() {
    const NAMES: usize = 1_500;
    // Fewer than 1000 come to each worker.
    let stack = Stack::builder().workers(4).start().await;
    let client = client::http1();
    for number in 0..NAMES {
        let body = json!({"model": format!("m{number}|\n\"{{}}"), "prompt": "hi", "max_tokens": 1});
        let answer = client.post(stack.url(TEXT)).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
    }
    eventually("all names are statistics", async || {
        let statistics = statistics(&stack).await;
        let others = r#"model_requests{pool="default",model_name="other",target_model="other"}"#;
        let (series, others) = (statistics.series("model_requests"), statistics.count(others));
        // One more is for the others, and the stack's own first requests have a model too.
        let is_bounded = series <= 1_001 && others >= 499;
        if is_bounded { Ok(()) } else { Err(format!("{series} series, {others} others")) }
    })
    .await;
}
