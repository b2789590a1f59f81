//! Token counts from the usage of responses.

use anyhow::{Context, ensure};
use endpoint_picker_e2e::fixture::{CHAT, TEXT};
use endpoint_picker_e2e::policy_fixture::{PolicyFixture, rewriting};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::{Config, EDS_FILE, EDS_FOLDER, Places};
use endpoint_picker_harness::endpoint_files::write_eds;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{BEHAVE, Behaviour, CLAIM_ENCODING};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

fn counting() -> Builder {
    Stack::builder().picker_field("countTokens", true)
}

/// Sends it, and gives the response.
async fn answer(stack: &Stack, path: &str, body: &Value, headers: &[(&str, &str)]) -> String {
    let mut request = client::http1().post(stack.url(path)).json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.text().await.unwrap()
}

/// The series of a name for this model.
fn series(name: &str, model: &str, target: &str) -> String {
    format!(r#"{name}{{pool="default",model_name="{model}",target_model="{target}"}}"#)
}

/// Waits until the statistics count exactly these tokens and responses of this model.
async fn until_counted(stack: &Stack, model: &str, target: &str, answers: u64, tokens: [(&str, u64); 3]) {
    eventually(&format!("the tokens of {model} are counted"), async || {
        let statistics = statistics(stack).await;
        for (kind, expected) in tokens {
            let total =
                statistics.value(&series(&format!("{kind}_tokens_total"), model, target)).unwrap_or(0);
            let count =
                statistics.value(&series(&format!("{kind}_tokens_count"), model, target)).unwrap_or(0);
            let answers = if expected > 0 { answers } else { 0 };
            if (total, count) != (expected, answers) {
                let expected = format!("not {expected} in {answers}; {statistics}");
                return Err(format!("{total} {kind} tokens in {count} answers, {expected}"));
            }
            if expected > 0 {
                // Envoy keeps two digits of each value.
                let sum: f64 = statistics.value(&series(&format!("{kind}_tokens_sum"), model, target))?;
                let off = (sum / expected as f64 - 1.0).abs();
                assert!(off < 0.06, "the histogram of {kind} tokens sums up to {sum}, not {expected}");
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_apis_answers_are_counted_plain_and_streamed_however_they_are_cut() {
    let stack = counting().start().await;
    let message = json!([{"role": "user", "content": "The quick brown fox jumps over the lazy dog."}]);
    let details = |usage: &Value| usage["input_tokens_details"]["cached_tokens"].as_u64();
    for (path, prompt) in
        [(TEXT, "prompt"), (CHAT, "messages"), ("/v1/responses", "input"), ("/v1/messages", "messages")]
    {
        let mut body = json!({"model": path, "max_tokens": 5, "stream_options": {"include_usage": true}});
        body[prompt] = if path == TEXT { "hello, hello".into() } else { message.clone() };
        let mut expected = [0, 0, 0];
        let mut answers = 0;
        for size in [usize::MAX, 1, 7] {
            for server in stack.servers() {
                server.behave(Behaviour::Pieces(size, Duration::from_micros(200)));
            }
            body["stream"] = false.into();
            let plain: Value = serde_json::from_str(&answer(&stack, path, &body, &[]).await).unwrap();
            body["stream"] = true.into();
            let streamed = answer(&stack, path, &body, &[]).await;
            assert!(streamed.starts_with("data: ") || streamed.starts_with("event: "), "{streamed}");

            let usage = &plain["usage"];
            let either = |one: &str, other: &str| usage[one].as_u64().or(usage[other].as_u64()).unwrap();
            let cached = usage["cache_read_input_tokens"].as_u64().or(details(usage)).unwrap_or(0);
            let once = [
                either("prompt_tokens", "input_tokens"),
                either("completion_tokens", "output_tokens"),
                cached,
            ];
            for (sum, once) in expected.iter_mut().zip(once) {
                *sum += 2 * once;
            }
            answers += 2;
        }
        let [input, output, cached] = expected;
        let tokens = [("input", input), ("output", output), ("cached", cached)];
        until_counted(&stack, path, path, answers, tokens).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_rewritten_model_are_counted_under_both_names_and_the_client_reads_its_own() {
    let fixture = PolicyFixture::build(rewriting(), counting()).await;
    for server in fixture.stack.servers() {
        server.behave(Behaviour::Pieces(7, Duration::from_micros(200)));
    }
    let usage = json!({"include_usage": true});
    let body =
        json!({"model": "llama", "prompt": "four", "max_tokens": 3, "stream": true, "stream_options": usage});
    let answer = answer(&fixture.stack, TEXT, &body, &[]).await;
    assert!(
        !answer.contains("llama-canary") && answer.matches(r#""model":"llama""#).count() == 5,
        "{answer}"
    );
    assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}");
    let tokens = [("input", 1), ("output", 3), ("cached", 0)];
    until_counted(&fixture.stack, "llama", "llama-canary", 1, tokens).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_answer_passes_untouched_and_uncounted() {
    let stack = counting().start().await;
    let body = json!({"model": "m", "prompt": "four", "max_tokens": 3});
    let plain = answer(&stack, TEXT, &body, &[]).await;
    assert_eq!(answer(&stack, TEXT, &body, &[(CLAIM_ENCODING, "gzip")]).await, plain);
    // One more that is counted; if the compressed one were counted, the statistics would have it by then.
    assert_eq!(answer(&stack, TEXT, &body, &[(CLAIM_ENCODING, "identity")]).await, plain);
    until_counted(&stack, "m", "m", 2, [("input", 2), ("output", 6), ("cached", 0)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_counted_per_token_and_time_to_first_token_of_streamed_answers_only() {
    const TOKENS: u32 = 8;
    let stack = counting().start().await;
    let options = json!({"include_usage": true});
    let body = json!({"model": "m", "prompt": "hi", "max_tokens": TOKENS, "stream": true, "stream_options": options});
    answer(&stack, TEXT, &body, &[(BEHAVE, "slow")]).await;
    answer(&stack, TEXT, &json!({"model": "m", "prompt": "hi", "max_tokens": TOKENS}), &[]).await;
    eventually("the times are counted", async || {
        let statistics = statistics(&stack).await;
        let of = |name: &str| statistics.value::<f64>(&series(name, "m", "m"));
        let (all, streamed) = (of("ntpot_us_count")?, of("streaming_tpot_us_count")?);
        if (all, streamed) != (2.0, 1.0) {
            return Err(format!("{all} times, {streamed} of streamed answers"));
        }
        // Each of the tokens, the end, the usage and the last line came 10 ms after the one before; 6 % is
        // Envoy's sum.
        let least = 0.94 * 10_000.0;
        let (all, streamed) = (of("ntpot_us_sum")?, of("streaming_tpot_us_sum")?);
        assert!(all >= least * 11.0 / f64::from(TOKENS), "{all} us a token");
        assert!(streamed >= least * 10.0 / f64::from(TOKENS - 1), "{streamed} us a further token");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_not_counted_without_the_option() {
    let stack = Stack::builder().start().await;
    answer(&stack, TEXT, &json!({"model": "m", "prompt": "hi", "max_tokens": 3}), &[]).await;
    eventually("the request is counted", async || {
        let statistics = statistics(&stack).await;
        statistics.value::<u64>(&series("model_requests", "m", "m"))?;
        // Histograms are the last to show.
        statistics.value::<u64>(r#"first_byte_ms_count{pool="default"}"#)?;
        for name in ["input_tokens", "output_tokens", "cached_tokens", "ntpot", "streaming_tpot"] {
            assert!(!statistics.to_string().contains(name), "{statistics}");
        }
        Ok::<_, String>(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_value_of_the_option_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(EDS_FOLDER)).unwrap();
    write_eds(&dir.path().join(EDS_FILE), &["127.0.0.1:1".parse().unwrap()]).unwrap();
    let places = Places { port: 0, admin_port: 0, agent_port: 1, folder: dir.path() };
    let filter = Filter::chosen().unwrap();
    let mut config = Config::shipped("envoy.yaml", filter, places).unwrap();
    config.set_picker_module(&filter.module().unwrap()).unwrap();
    config.set_picker_field("countTokens", "yes".into()).unwrap();
    let refused = Envoy::start(&config, dir.path(), 1).await.map(drop).unwrap_err();
    let message = r#"countTokens is "yes"; allowed are true and false"#;
    assert!(format!("{refused:?}").contains(message), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_tokens_are_compared_with_those_that_the_index_predicted() {
    const REQUESTS: u64 = 6;
    let stack = counting().start().await;
    let agent = async |path: &str| -> anyhow::Result<String> {
        let url = format!("http://{}{path}", stack.agent_address());
        Ok(client::http1().get(url).send().await?.error_for_status()?.text().await?)
    };
    eventually("the proxy reports", async || {
        let pool: Value = serde_json::from_str(&agent("/v1/pools/default").await?)?;
        pool["proxies"][0]["routed"].as_u64().context(pool)
    })
    .await;
    // The server counts a token for each byte, and half of them as cached.
    let body = json!({"model": "m", "input": "x".repeat(4_000), "stream": false});
    let mut cached = 0;
    for _ in 0..REQUESTS {
        let whole: Value = serde_json::from_str(&answer(&stack, "/v1/responses", &body, &[]).await).unwrap();
        cached += whole["usage"]["input_tokens_details"]["cached_tokens"].as_u64().unwrap();
    }
    eventually("the agent has the cached tokens", async || {
        let metrics = agent("/metrics").await?;
        let sum = |name: &str| -> u64 {
            let lines = metrics
                .lines()
                .filter(|line| line.starts_with(&format!("endpoint_picker_index_{name}_tokens_total{{")));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
        };
        ensure!(sum("cached") == cached, "{metrics}");
        // All but the first request of each server found the whole prompt.
        let whole = 2 * cached / REQUESTS;
        let found = sum("predicted") / whole;
        ensure!(
            (1..REQUESTS).contains(&found) && sum("predicted").is_multiple_of(whole),
            "{found} of {metrics}"
        );
        let pool = agent("/v1/pools/default").await?;
        ensure!(pool.contains(r#""cached_of_predicted":"#), "{pool}");
        ensure!(pool.contains(r#""predictions_by_prompts":"#), "{pool}");
        ensure!(metrics.contains("endpoint_picker_index_wrong_responses_total{"), "{metrics}");
        // A model's prompts that the index had not, and those that it had, were off by half of the prompt.
        let wrong = statistics(&stack).await.value::<u64>(
            r#"model_index_wrong_responses{pool="default",model_name="m",target_model="m",source="prompts"}"#,
        );
        ensure!(wrong == Ok(REQUESTS), "{wrong:?}");
        Ok(())
    })
    .await;
}
