//! The cached prefixes of prompts, as proxies read them.

use std::net::SocketAddr;
use std::path::PathBuf;

use axum::Router;
use axum::routing::get;
use endpoint_picker::state::prefix::key;
use endpoint_picker_model_server::kv_events::Publisher;
use endpoint_picker_wire::batch::{Batch, Part, Responses};
use endpoint_picker_wire::prefixes::CachedPrefixes;
use endpoint_picker_wire::{BATCH_FORMAT, Message, PREFIXES_FORMAT};
use metrics_agent::agent::Settings;
use metrics_agent_kv_events as kv_events;
use metrics_agent_kv_events::index::Limits;
use metrics_agent_status::pool::StreamState;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::{Agent, Answer, NO_WAIT_DEADLINE, eventually, scraping};
use crate::kv_events::{base, events_where, has_subscriber, ports};
use crate::reports::post_for_bytes;
use crate::scripted::load;

const PATH: &str = "/v1/pools/default/cached-prefixes";

/// A model server with these models.
async fn model_server(models: &'static str) -> (SocketAddr, AbortOnDropHandle<()>) {
    let router = Router::new()
        .route("/metrics", get(|| async { load(0, 0) }))
        .route("/v1/models", get(move || async move { models }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, AbortOnDropHandle::new(serving))
}

const TINY: &str = r#"{"data": [{"id": "tiny", "root": "org/tiny", "parent": null},
    {"id": "also", "root": "org/tiny", "parent": null}, {"id": "a1", "root": "/lora/a1", "parent": "tiny"}]}"#;

fn folder() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/kv-events/tiny-model").into()
}

/// An agent that follows this publisher, and knows the tokenizers of these models.
async fn follow(publisher: &Publisher, server: SocketAddr, tokenizers: &[&str]) -> Agent {
    follow_with_ids(publisher, server, tokenizers, &[]).await
}

/// The same with models whose prefixes are known by their token ids.
async fn follow_with_ids(
    publisher: &Publisher,
    server: SocketAddr,
    tokenizers: &[&str],
    by_token_ids: &[&str],
) -> Agent {
    let kv_events = kv_events::KvEventSettings {
        ports: ports(publisher, true),
        limits: Limits { blocks: 1000, prefix_tokens: 64 },
        tokenizers: tokenizers.iter().map(|model| ((*model).to_owned(), folder())).collect(),
        by_token_ids: by_token_ids.iter().map(|model| (*model).to_owned()).collect(),
    };
    Agent::start(Settings { kv_events: Some(kv_events), ..scraping(&[server]) }).await
}

fn decode(answer: &Answer) -> CachedPrefixes {
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    let message = CachedPrefixes::decode(&*answer.body).unwrap();
    assert_eq!(message.format, PREFIXES_FORMAT);
    message
}

/// The path for the changes behind a message.
fn behind(message: &CachedPrefixes, wait_ms: u64) -> String {
    format!("{PATH}?log={}&version={}&wait_ms={wait_ms}", message.log, message.version)
}

/// The first recorded prompt.
fn first_prompt() -> (Vec<u32>, String) {
    let line = include_str!("../captures/kv-events/base.requests.jsonl").lines().next().unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    let tokens = serde_json::from_value(line["prompts"][0].clone()).unwrap();
    (tokens, line["texts"][0].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_proxy_gets_the_prefixes_by_text_and_then_their_changes() {
    let publisher = Publisher::start().unwrap();
    publisher.publish(&base()[..1]);
    let (server, _serving) = model_server(TINY).await;
    let agent = follow(&publisher, server, &["org/tiny"]).await;
    let status = events_where(&agent, "the first prompt", |status| {
        status.state == StreamState::Complete && status.blocks == 3
    })
    .await;
    assert_eq!(status.text_problem, None);
    let answer = agent.get(PATH).await;
    let whole = decode(&answer);
    assert!(whole.whole && whole.models_changed && !whole.more);
    let [model] = &whole.models[..] else { panic!("{:?}", whole.models) };
    assert_eq!(model.names, ["tiny", "also"]);
    assert_eq!(model.adapters, ["a1"]);
    assert_eq!((model.root, &*model.problem, &*model.bos_token), (key::root("tiny", None), "", "<s>"));
    assert!(model.chat_template.starts_with("{% for m in messages %}"));
    let [cache] = whole.caches[..] else { panic!("{:?}", whole.caches) };
    assert!(cache.complete && !cache.complete_by_token_ids && whole.endpoints == [cache.endpoint]);
    assert_eq!(model.token_ids_root, None);
    // Two blocks of 32 tokens make a prefix; the third one is the unfinished rest.
    let (tokens, text) = first_prompt();
    let stored = whole.stored.unwrap();
    let [length] = stored.lengths[..] else { panic!("{stored:?}") };
    assert_eq!(stored.keys, [key::child(model.root, &text.as_bytes()[..length as usize])]);
    assert_eq!((stored.parents, stored.tokens, stored.tiers), (vec![model.root], vec![64], vec![0]));
    // Neither tokens nor text leave the agent.
    let in_bytes = |part: &[u8]| answer.body.windows(part.len()).any(|window| window == part);
    let varints = |token: &u32| {
        let (low, high) = (token & 0x7f, token >> 7);
        if high == 0 { vec![low] } else { vec![low | 0x80, high] }
    };
    let varints: Vec<_> = tokens.iter().flat_map(varints).map(|byte| u8::try_from(byte).unwrap()).collect();
    let words: Vec<_> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    for hidden in [&varints[..8], &words[..16], &text.as_bytes()[..8]] {
        assert!(!in_bytes(hidden));
    }
    // A poll waits for new events, or for its time.
    has_subscriber(&publisher).await;
    let newest = eventually("a time without news", async || {
        let newest = decode(&agent.get(PATH).await);
        (agent.get(&behind(&newest, 150)).await.status == 204).then_some(newest)
    })
    .await;
    let next = behind(&newest, 20_000);
    let (answer, ()) = tokio::join!(agent.get(&next), async { publisher.publish(&base()[1..28]) });
    let delta = decode(&answer);
    assert!(!delta.whole && !delta.models_changed && !delta.stored.unwrap().keys.is_empty());
}

#[tokio::test]
async fn a_model_without_a_tokenizer_has_prefixes_by_token_ids() {
    let (tokens, text) = first_prompt();
    let bytes: Vec<_> = tokens[..64].iter().flat_map(|id| id.to_le_bytes()).collect();
    for (tokenizers, by_token_ids, by_text) in
        [(&[][..], "tiny", false), (&[], "org/tiny", false), (&["tiny"], "tiny", true)]
    {
        let publisher = Publisher::start().unwrap();
        publisher.publish(&base()[..1]);
        let (server, _serving) = model_server(TINY).await;
        let agent = follow_with_ids(&publisher, server, tokenizers, &[by_token_ids]).await;
        events_where(&agent, "the first prompt", |status| {
            status.state == StreamState::Complete && status.blocks == 3
        })
        .await;
        let whole = decode(&agent.get(PATH).await);
        let [model] = &whole.models[..] else { panic!("{:?}", whole.models) };
        let root = key::root_of_token_ids("tiny", None);
        assert_eq!((model.token_ids_root, model.problem.is_empty()), (Some(root), by_text));
        let [cache] = whole.caches[..] else { panic!("{:?}", whole.caches) };
        assert_eq!((cache.complete, cache.complete_by_token_ids), (by_text, true));
        let stored = whole.stored.unwrap();
        let at = stored.keys.iter().position(|stored| *stored == key::child(root, &bytes)).unwrap();
        assert_eq!((stored.parents[at], stored.lengths[at], stored.tokens[at]), (root, 256, 64));
        let of_text =
            |key: &u64| (1..=text.len()).any(|end| *key == key::child(model.root, &text.as_bytes()[..end]));
        assert_eq!(stored.keys.iter().filter(|key| of_text(key)).count(), usize::from(by_text));
    }
}

#[tokio::test]
async fn a_poll_without_a_place_to_wait_gets_what_there_is() {
    let publisher = Publisher::start().unwrap();
    let (server, _serving) = model_server(TINY).await;
    let kv_events = kv_events::KvEventSettings {
        ports: ports(&publisher, true),
        limits: Limits { blocks: 1000, prefix_tokens: 64 },
        tokenizers: Vec::new(),
        by_token_ids: Vec::new(),
    };
    let settings = Settings { kv_events: Some(kv_events), max_waiters: 0, ..scraping(&[server]) };
    let agent = Agent::start(settings).await;
    agent.snapshot_where("a snapshot", |_| true).await;
    // A log that the agent does not have.
    let poll = format!("{PATH}?log=1&version=1");
    for path in [PATH.to_owned(), poll.clone(), format!("{poll}&wait_ms=100")] {
        assert!(decode(&agent.get(&path).await).whole);
    }
    // Events of the connection change the version.
    eventually("a version that stays", async || {
        let whole = decode(&agent.get(PATH).await);
        let response = timeout(NO_WAIT_DEADLINE, agent.get(&behind(&whole, 30_000))).await;
        (response.expect("it does not wait").status == 204).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_is_news() {
    let publisher = Publisher::start().unwrap();
    publisher.publish(&base()[..1]);
    let (server, _serving) = model_server(TINY).await;
    let agent = follow(&publisher, server, &["tiny"]).await;
    events_where(&agent, "the first prompt", |status| status.state == StreamState::Complete).await;
    let whole = decode(&agent.get(PATH).await);
    let next = behind(&whole, 20_000);
    let (answer, ()) = tokio::join!(agent.get(&next), async { drop(publisher) });
    assert!(!decode(&answer).caches[0].complete);
}

#[tokio::test]
async fn without_a_tokenizer_the_reason_is_named() {
    let publisher = Publisher::start().unwrap();
    publisher.publish(&base()[..1]);
    let (server, _serving) = model_server(TINY).await;
    let agent = follow(&publisher, server, &["other"]).await;
    let status = events_where(&agent, "the first prompt", |status| {
        status.state == StreamState::Complete && status.text_problem.is_some()
    })
    .await;
    let problem = "no tokenizer of model \"tiny\" (--tokenizer tiny=PATH)";
    assert_eq!(status.text_problem.as_deref(), Some(problem));
    let whole = decode(&agent.get(PATH).await);
    assert_eq!(whole.models[0].problem, problem);
    assert!(whole.stored.is_none() && !whole.caches[0].complete);
}

#[tokio::test]
async fn in_a_batch_it_does_not_wait() {
    let publisher = Publisher::start().unwrap();
    let (server, _serving) = model_server(TINY).await;
    let agent = follow(&publisher, server, &["tiny"]).await;
    events_where(&agent, "the connection", |status| status.caches == 1).await;
    has_subscriber(&publisher).await;
    let send = async |path: String| {
        let batch = Batch { format: BATCH_FORMAT, parts: vec![Part { path, body: None }] };
        let (_, body) =
            post_for_bytes(&agent, "/v1/batch", "application/x-protobuf", &batch.encode_to_vec()).await;
        Responses::decode(&*body).unwrap().responses.remove(0)
    };
    eventually("a version that stays", async || {
        let whole = send(PATH.to_owned()).await;
        assert_eq!(whole.status, 200);
        let whole = CachedPrefixes::decode(&*whole.body).unwrap();
        let response = timeout(NO_WAIT_DEADLINE, send(behind(&whole, 30_000))).await;
        let status = response.expect("a batch that does not wait").status;
        (status == 204).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_that_cannot_be_served_are_refused_with_the_reason() {
    let publisher = Publisher::start().unwrap();
    let (server, _serving) = model_server(TINY).await;
    let agent = follow(&publisher, server, &[]).await;
    agent.snapshot_where("a snapshot", |_| true).await;
    for (path, status, reason) in [
        ("/v1/pools/other/cached-prefixes", 404, "no such pool"),
        ("/v1/pools/default/cached-prefixes?wait=1", 400, "log, version and wait_ms"),
    ] {
        let answer = agent.get(path).await;
        assert!(answer.status == status && answer.text().contains(reason), "{}", answer.text());
    }
    let without = Agent::start(scraping(&[server])).await;
    without.snapshot_where("a snapshot", |_| true).await;
    let answer = without.get(PATH).await;
    assert!(answer.status == 404 && answer.text().contains("--kv-events"), "{}", answer.text());
}
