//! The agent follows the KV-cache events of servers, and requests go where their prompts are cached: agent
//! and module together.

use anyhow::{Context, ensure};
use endpoint_picker_e2e::fixture::{CHAT, TEXT};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::{eventually, within};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::MODEL;
use endpoint_picker_model_server::kv_events::{Publisher, cleared, stored, tokenizer};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

const TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";

/// Cached prompts decide; without one, the first server is the best. A prompt that was just sent soon counts
/// no more.
const RULES: &str = r"
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - { type: precise-prefix-cache-producer, parameters: { speculativeTTL: 1ms } }
  - { type: prefix-cache-scorer, parameters: { prefixMatchInfoProducerName: precise-prefix-cache-producer } }
  - { type: queue-scorer }
  - { type: max-score-picker }
schedulingProfiles:
  - name: default
    plugins:
      - { pluginRef: prefix-cache-scorer, weight: 10 }
      - { pluginRef: queue-scorer, weight: 1 }
      - { pluginRef: max-score-picker }
";

/// A server's events count again within this time after its publisher can be reached.
const RECOVERY: Duration = Duration::from_secs(5);

/// A prompt that begins with this letter.
struct Prompt(String);

impl Prompt {
    fn of(letter: char) -> Self {
        Self(format!("{letter} {}", "All happy families are alike. ".repeat(60)))
    }

    /// The text that its server tokenizes.
    fn text(&self) -> String {
        format!("[user] {}\n[assistant]", self.0)
    }
}

/// Three servers with publishers.
struct Fleet {
    stack: Stack,
    /// The publishers of the first server's ranks, then of the second's and of the third's.
    publishers: Vec<Publisher>,
    _tokenizer: Option<TempDir>,
}

impl Fleet {
    /// Servers of this number of data-parallel ranks each, which do not share their caches.
    async fn start(ranks: usize, rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer.json"), tokenizer().to_string()).unwrap();
        fs::write(folder.path().join("chat_template.jinja"), TEMPLATE).unwrap();
        let tokenizer = format!("{MODEL}={}", folder.path().display());
        Self::start_with(ranks, rules, &["--tokenizer", &tokenizer], Some(folder)).await
    }

    /// The same for an agent with these flags.
    async fn start_with(ranks: usize, rules: &str, flags: &[&str], tokenizer: Option<TempDir>) -> Self {
        let flags = [&["--kv-events", "discover"], flags].concat();
        let stack = Stack::builder().picker_field("countTokens", true).manifests(rules).agent_flags(&flags);
        let stack = stack.start().await;
        let count = ranks * stack.servers().len();
        let publishers: Vec<_> = (0..count).map(|_| Publisher::start().unwrap()).collect();
        // The agent knows the contents of a cache from its first message on.
        for publisher in &publishers {
            publisher.publish_events(&[cleared()]);
        }
        for (at, (server, publishers)) in stack.servers().iter().zip(publishers.chunks(ranks)).enumerate() {
            server.update_metrics(|metrics| metrics.waiting = 5 * at as u64);
            server.set_kv_event_publishers(&publishers.iter().collect::<Vec<_>>());
        }
        let fleet = Self { stack, publishers, _tokenizer: tokenizer };
        fleet.wait_for_streams(3).await;
        fleet
    }

    /// Waits until the events of this number of servers are complete.
    async fn wait_for_streams(&self, complete: usize) {
        const STATES: &str = r#"metrics_agent_kv_event_states{pool="default",state="complete"}"#;
        eventually("the agent follows the events", async || {
            let servers = self.stack.agent().context("no agent")?.metric(STATES).await?;
            ensure!((servers - complete as f64).abs() < 0.5, "{servers} servers");
            anyhow::Ok(())
        })
        .await;
    }

    /// The server that a chat with this prompt goes to.
    async fn send(&self, prompt: &Prompt) -> usize {
        self.post(CHAT, &client::chat(&prompt.0)).await
    }

    /// The server that a request with this body goes to.
    async fn post(&self, path: &str, body: &Value) -> usize {
        let response = self.stack.post(path, body).await;
        assert!(response.status().is_success(), "{response:?}");
        self.stack.served_by(&response)
    }

    /// Publishes these events of a rank until a chat with this prompt goes to this server: until a publisher
    /// knows of the agent's subscription it drops messages, and the next one shows the gap.
    async fn publish_until(&self, publisher: usize, events: &[Value], prompt: &Prompt, server: usize) {
        eventually("the events decide, and not what was sent", async || {
            self.publishers[publisher].publish_events(events);
            self.goes_to(prompt, server).await
        })
        .await;
    }

    /// An error unless a chat with this prompt goes to this server.
    async fn goes_to(&self, prompt: &Prompt, expected: usize) -> Result<(), String> {
        let server = self.send(prompt).await;
        if server == expected { Ok(()) } else { Err(format!("server {server}")) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_to_the_server_whose_events_show_its_prompt() {
    let mut fleet = Fleet::start(1, RULES).await;
    let [a, b, c, d] = ['a', 'b', 'c', 'd'].map(Prompt::of);
    eventually("without a cached prompt the queues decide", async || fleet.goes_to(&a, 0).await).await;

    fleet.publish_until(2, &[stored(&b.text()), stored(&a.text())], &a, 2).await;
    assert_eq!(fleet.send(&b).await, 2, "no server was sent this prompt before");
    assert_eq!(fleet.send(&c).await, 0, "no server has this prompt");

    fleet.publishers[2].publish_events(&[cleared()]);
    eventually("the server has cleared its cache", async || fleet.goes_to(&a, 0).await).await;
    assert_eq!(fleet.send(&b).await, 0);

    fleet.publishers[2].publish_events(&[stored(&a.text())]);
    eventually("the server has the prompt again", async || fleet.goes_to(&a, 2).await).await;
    fleet.publishers[2].restart().await.unwrap();
    fleet.publishers[2].publish_events(&[stored(&c.text())]);
    eventually("the restarted server has another prompt", async || {
        fleet.goes_to(&c, 2).await?;
        fleet.goes_to(&a, 0).await
    })
    .await;

    // The second server was sent a prompt that it has no more, which only its events show.
    fleet.publishers[1].publish_events(&[stored(&d.text())]);
    eventually("the events decide", async || fleet.goes_to(&d, 1).await).await;
    fleet.publishers[1].publish_events(&[cleared()]);
    eventually("the server has cleared its cache", async || fleet.goes_to(&d, 0).await).await;
    fleet.publishers[1].stop().await.unwrap();
    eventually("a broken publisher leaves what its server was sent", async || fleet.goes_to(&d, 1).await)
        .await;
    assert_eq!(fleet.send(&c).await, 2, "another server's events still count");
    assert_eq!(fleet.send(&b).await, 0, "and what it was sent does not");
    fleet.publishers[1].listen().unwrap();
    let exact = within(RECOVERY, async || fleet.goes_to(&d, 0).await).await;
    assert_eq!(exact, Ok(()), "not within {RECOVERY:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_compared_with_the_cached_tokens_of_responses() {
    const RESPONSES: u64 = 3;
    let fleet = Fleet::start(1, RULES).await;
    let pool = async || -> anyhow::Result<Value> {
        let url = format!("http://{}/v1/pools/default", fleet.stack.agent_address());
        Ok(client::http1().get(url).send().await?.error_for_status()?.json().await?)
    };
    eventually("the proxy reports", async || {
        let pool = pool().await?;
        pool["proxies"][0]["routed"].as_u64().context(pool)
    })
    .await;
    // A server has half of a prompt. The events of the second server show all of it, and the third one's the
    // half. Each prompt is sent once, because one that was just sent counts more than half of it.
    let (wrong, right) = (['u', 'v', 'w'].map(Prompt::of), ['p', 'q', 'r'].map(Prompt::of));
    let half = |prompt: &Prompt| stored(&prompt.text()[..prompt.text().len() / 2]);
    for (prompts, events, server) in [
        (&wrong, wrong.each_ref().map(|prompt| stored(&prompt.text())), 1),
        (&right, right.each_ref().map(half), 2),
    ] {
        // The last event of the message; the usage of a chat has no cached tokens.
        let last = Prompt::of(if server == 1 { 'x' } else { 'y' });
        let events = [&events[..], &[stored(&last.text())]].concat();
        fleet.publish_until(server, &events, &last, server).await;
        for prompt in prompts {
            let body = json!({"model": MODEL, "input": prompt.0});
            let response = fleet.stack.post("/v1/responses", &body).await;
            assert_eq!(fleet.stack.served_by(&response), server);
            assert!(response.text().await.unwrap().contains("cached_tokens"));
        }
    }
    eventually("the agent shows the predictions", async || {
        let pool = pool().await?;
        let sent = |server: usize| &pool["endpoints"][server]["sent"];
        let of = |server: usize, figure: &str| sent(server)["predictions_by_events"][figure].as_f64();
        let predicted =
            [1, 2].map(|server| (of(server, "responses"), of(server, "wrong").map(|share| share > 0.5)));
        let all = Some(RESPONSES as f64);
        ensure!(predicted == [(all, Some(true)), (all, Some(false))], "{pool}");
        let errors = [1, 2].map(|server| of(server, "median_error_tokens").unwrap_or(f64::NAN));
        ensure!(errors[0] >= 256.0 && errors[1] <= 64.0, "{pool}");
        let without = (0..3).all(|server| sent(server)["predictions_by_prompts"].is_null())
            && of(0, "responses").is_none();
        ensure!(without, "{pool}");
        let metrics = fleet.stack.agent().context("no agent")?.metrics().await?;
        let is_wrong = |line: &&str| line.starts_with("endpoint_picker_index_wrong_responses_total{");
        let wrong = metrics.lines().filter(is_wrong).map(|line| {
            let (labels, count) = line.rsplit_once(' ').unwrap_or_default();
            (labels.contains(r#"source="events""#), count.parse::<u64>().ok())
        });
        let mut wrong: Vec<_> = wrong.collect();
        wrong.sort_unstable();
        ensure!(wrong == [(true, Some(0)), (true, Some(RESPONSES))], "{metrics}");
        Ok(())
    })
    .await;
    eventually("Envoy counts them by model", async || {
        let labels = format!(r#"pool="default",model_name="{MODEL}",target_model="{MODEL}",source="events""#);
        let statistics = statistics(&fleet.stack).await;
        let wrong = statistics.value::<u64>(&format!("model_index_wrong_responses{{{labels}}}"));
        ensure!(wrong == Ok(RESPONSES), "{wrong:?} in {statistics}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_token_ids_goes_to_the_server_whose_events_show_them() {
    let fleet = Fleet::start_with(1, RULES, &["--kv-events-token-ids", MODEL], None).await;
    let Prompt(text) = Prompt::of('a');
    // The ids of the servers' model are the bytes of a text.
    let ids = json!({"model": MODEL, "prompt": text.as_bytes()});
    assert_eq!(fleet.post(TEXT, &ids).await, 0, "without a cached prompt the queues decide");
    eventually("the events decide", async || {
        fleet.publishers[2].publish_events(&[stored(&text)]);
        match fleet.post(TEXT, &ids).await {
            2 => Ok(()),
            other => Err(format!("server {other}")),
        }
    })
    .await;
    assert_eq!(fleet.post(TEXT, &client::completion(&text)).await, 0, "the agent has no tokenizer");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_names_the_rank_whose_events_show_its_prompt() {
    let rules = RULES.replace("speculativeTTL: 1ms", "speculativeTTL: 1ms, nameRank: true");
    let fleet = Fleet::start(2, &rules).await;
    let [a, b] = ['a', 'b'].map(Prompt::of);
    fleet.publish_until(3, &[stored(&a.text())], &a, 1).await;
    fleet.stack.servers()[1].take_requests();
    assert_eq!(fleet.send(&a).await, 1);
    assert_eq!(fleet.send(&b).await, 0);
    let ranks = |server: usize| {
        let requests = fleet.stack.servers()[server].take_requests().into_iter();
        let chats = requests.filter(|request| request.uri.path() == CHAT);
        chats.map(|chat| chat.header("x-data-parallel-rank").map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(ranks(1), [Some("1".to_owned())]);
    assert_eq!(ranks(0).last(), Some(&None), "no rank has this prompt");
}
