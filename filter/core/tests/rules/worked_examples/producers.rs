//! Producers and parsers.

use core::time::Duration;

use endpoint_picker::config::PickerConfig;
use endpoint_picker::decision::PromptBlocks;
use endpoint_picker::headers::Headers;
use endpoint_picker::input::providers::TopologyLevel;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::plugin::{Arrival, Instance, TopologyExtractor};
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::body::Api;
use serde_json::{Value, json};

use super::{kept, load, near_decode, plain, waiting};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, compile, destinations, fresh, owned, totals};

fn prompt_tokens(config: &Value, api: Api, body: &Value) -> u64 {
    Fixture::idle(config, 1).send_body(api, &body.to_string(), &[]).reservations[0].prefill.tokens
}

#[test]
fn token_producer() {
    let tokens = |estimate: &Value, api, body: &Value| {
        let producer = json!({"type": "token-producer", "parameters": {"estimate": estimate}});
        prompt_tokens(&json!({"plugins": [producer, {"type": "queue-scorer"}]}), api, body)
    };
    assert_eq!(tokens(&json!({}), Api::Completions, &json!({"model": "m", "prompt": "hello world"})), 3);
    let image = json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]);
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": image}]});
    // The role `user` is a token of its own.
    assert_eq!(tokens(&json!({}), Api::Chat, &chat), 1 + 225);
    let fixed = json!({"image": {"mode": "static", "static": {"staticToken": 99}}});
    assert_eq!(tokens(&fixed, Api::Chat, &chat), 1 + 99);
}

#[test]
fn precise_prefix_cache_scorer() {
    // Without events, the matches are those of prompts that were sent: four blocks of 256 bytes, and half of
    // them.
    let scores = |config: &Value| {
        let mut fixture = Fixture::idle(config, 1);
        let prompt = "x".repeat(512) + &"y".repeat(512);
        fixture.send(&prompt, &[]);
        let second = "x".repeat(512) + &"z".repeat(512);
        totals(&fixture.send(&second, &[]))
    };
    let alone = json!({"type": "precise-prefix-cache-scorer", "parameters": {"speculativeTTL": "5s"}});
    assert_eq!(scores(&json!({"plugins": [alone.clone()]})), [0.5]);
    let producer = |name: &str| json!({"name": name, "type": "precise-prefix-cache-producer"});
    let declared = json!({"plugins": [alone, producer("own")]});
    assert_eq!(scores(&declared), [0.5]);
    let names = |config: &Value| {
        let pipeline = compile(config).unwrap();
        let names = pipeline.plugins().iter().map(|it| format!("{} {}", it.name, it.plugin.type_name()));
        names.filter(|name| name.contains("prefix")).collect::<Vec<_>>()
    };
    assert_eq!(
        names(&declared),
        ["precise-prefix-cache-scorer prefix-cache-scorer", "own precise-prefix-cache-producer"]
    );
    let explicit = json!({"plugins": [
        producer("own"),
        {"type": "prefix-cache-scorer", "parameters": {"prefixMatchInfoProducerName": "own"}},
    ]});
    assert_eq!(scores(&explicit), [0.5]);
}

#[test]
fn approx_prefix_cache_producer() {
    let blocks = |block_size| {
        let reading = Reading { block_size, ..fresh() };
        let decision = Fixture::new(&plain("prefix-cache-scorer"), vec![reading]).send(&"x".repeat(360), &[]);
        // The first word is the capacity, with two bits that say which number of blocks is in force.
        decision.records.changes[0].words.len() - 1
    };
    assert_eq!(blocks(None), 2);
    assert_eq!(blocks(Some(128)), 1);
    let words = |producer: &Value| {
        let producer = json!({"type": "approx-prefix-cache-producer", "parameters": producer});
        let config = json!({"plugins": [producer, {"type": "prefix-cache-scorer"}]});
        let reading = Reading { block_size: Some(16), num_blocks: Some(2048), ..fresh() };
        let decision = Fixture::new(&config, vec![reading]).send(&"x".repeat(360), &[]);
        (decision.records.changes[0].words[0], decision.records.changes[0].words.len() - 1)
    };
    assert_eq!(words(&json!({})), (2048, 2));
    // Of 90 tokens, the last full blocks end at 64 and 80.
    assert_eq!(words(&json!({"capacityInTokens": true})), (512 | 1 << 62, 1));
    assert_eq!(words(&json!({"capacityInTokens": true, "minBlockSizeTokens": 16})), (2048 | 1 << 62, 5));
    assert_eq!(words(&json!({"learnFromUsage": true})), (2048 | 1 << 63, 2));
    let mut fixture = Fixture::new(&plain("prefix-cache-scorer"), vec![fresh()]);
    let mut seen = |prompt: &str| fixture.send(prompt, &[]).prompt;
    assert_eq!(seen(&"x".repeat(360)), PromptBlocks { matched: 0, total: 2 });
    assert_eq!(seen(&format!("{}y", "x".repeat(359))), PromptBlocks { matched: 1, total: 2 });
}

#[test]
fn conversations_that_a_server_has_room_for_stay_known() {
    let producer = json!({"type": "approx-prefix-cache-producer", "parameters": {"capacityInTokens": true}});
    let config = json!({"plugins": [producer, {"type": "prefix-cache-scorer"}]});
    let reading = Reading { block_size: Some(64), num_blocks: Some(20), ..fresh() };
    let mut fixture = Fixture::new(&config, vec![reading]);
    let mut matched = |text: &str, tokens: usize| fixture.send(&text.repeat(4 * tokens), &[]).prompt.matched;
    matched("a", 320);
    for turn in 1..=8 {
        for conversation in ["b", "c", "d"] {
            matched(conversation, 40 * turn);
        }
    }
    assert_eq!(matched("a", 340), 5, "four conversations of 320 tokens fill the server's 20 blocks");
}

#[test]
fn burst_prefix_cache_producer() {
    let producer = json!({"type": "burst-prefix-cache-producer", "parameters": {"maxPerReplica": 2}});
    let scorer = json!({"type": "prefix-cache-scorer", "parameters": {"prefixMatchInfoProducerName": "burst-prefix-cache-producer"}});
    let mut fixture = Fixture::idle(&json!({"plugins": [producer, scorer]}), 3);
    let (a, b) = ("a".repeat(1000), "b".repeat(500));
    let mut send = |prompt: &str| {
        let decision = fixture.send(prompt, &[]);
        (destinations(&decision), totals(&decision).iter().sum::<f64>())
    };
    let (first, none) = send(&a);
    assert_eq!((send(&a), none), ((first, 1.0), 0.0), "it follows the first");
    let (own, none) = send(&b);
    assert_eq!((send(&b), none), ((own, 1.0), 0.0));
    let (third, none) = send(&a);
    assert_eq!((send(&a), none), ((third, 1.0), 0.0), "the third one begins another group");
}

#[test]
fn inflight_load_producer() {
    let reservation = |parameters: &Value| {
        let plugins = json!([
            {"type": "inflight-load-producer", "parameters": parameters}, {"type": "prefix-cache-scorer"},
        ]);
        let mut fixture = Fixture::idle(&json!({"plugins": plugins}), 1);
        fixture.send(&"x".repeat(256), &[]);
        let reservation = fixture.send(&"x".repeat(400), &[]).reservations[0];
        (reservation.prefill, reservation.response)
    };
    assert_eq!(reservation(&json!({})), (load(0, 64), load(1, 0)));
    assert_eq!(reservation(&json!({"addEstimatedOutputTokens": true})), (load(0, 0), load(1, 214)));
}

#[test]
fn session_id_producer() {
    let source = json!({"attribute": "SessionIDDataKey", "producer": "session-id-producer"});
    let affinity = json!({"strategy": "session_id", "sessionIdConfig": {"sources": [source]}});
    let plugins = json!([
        {"type": "session-id-producer", "parameters": {"cookieName": "sid"}},
        {"type": "session-affinity-filter", "parameters": affinity},
    ]);
    let mut fixture = Fixture::idle(&json!({"plugins": plugins}), 3);
    let first = destinations(&fixture.send("x", &[("cookie", "theme=dark; sid=abc")]));
    assert_eq!(kept(&mut fixture, &[("cookie", "sid=abc")]), first);
}

/// Examples of `openai-parser`, `anthropic-parser`, `vllmhttp-parser`, `sglanghttp-parser`,
/// `vllmgrpc-parser`, `vertexai-parser` and `passthrough-parser`.
#[test]
fn parsers() {
    let api = |parser: Option<&str>, path: &str| {
        let plugins = parser
            .map(|parser| Instance { name: parser.to_owned(), plugin: read_plugin(parser, "{}").unwrap() });
        let config = PickerConfig {
            plugins: plugins.into_iter().collect(),
            parsers: parser.map(str::to_owned).into_iter().collect(),
            ..PickerConfig::default()
        };
        Pipeline::compile(config).unwrap().api(path)
    };
    assert_eq!(api(None, "/v1/chat/completions"), Ok(Api::Chat));
    assert_eq!(api(None, "/v1/messages"), Ok(Api::Messages));
    assert_eq!(api(None, "/inference/v1/generate"), Ok(Api::Generate));
    assert_eq!(api(Some("sglanghttp-parser"), "/generate"), Ok(Api::SglangGenerate));
    let generate = "/vllm.grpc.engine.VllmEngine/Generate";
    assert_eq!(api(Some("vllmgrpc-parser"), generate), Ok(Api::GrpcGenerate));
    assert_eq!(api(None, generate), Ok(Api::ModelOnly));
    let chat = "/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions";
    assert_eq!(api(Some("vertexai-parser"), chat), Ok(Api::VertexChat));
    assert_eq!(api(None, "/tokenize"), Ok(Api::ModelOnly));
    assert_eq!(api(None, "/v1/audio/transcriptions"), Ok(Api::ModelOnly));
    assert_eq!(api(None, "/v1/models/load"), Ok(Api::ModelOnly));
}

#[test]
fn agent_identity() {
    let ids = |additional: Value, headers: &[(&str, &str)]| {
        let parameters = json!({"additionalSessionHeaders": additional});
        let pipeline = compile(
            &json!({"plugins": [{"type": "agent-identity", "parameters": parameters}, {"type": "queue-scorer"}]}),
        );
        let (pipeline, headers) = (pipeline.unwrap(), owned(headers));
        let session = pipeline.agent_identity(Headers(&headers)).map(|(_, id)| id);
        let arrival = Arrival::new(Headers(&headers), session, 0, 0, Duration::ZERO);
        (arrival.fairness_id.to_owned(), session.unwrap().to_owned())
    };
    let pair = |fairness_id: &str, session: &str| (fairness_id.to_owned(), session.to_owned());
    let both = [("session-id", "s"), ("x-session-affinity", "a")];
    assert_eq!(ids(json!([]), &both), pair("a", "a"));
    let named = [&both[..], &[("x-llm-d-inference-fairness-id", "t")]].concat();
    assert_eq!(ids(json!([]), &named), pair("t", "a"));
    assert_eq!(ids(json!(["X-TEAM"]), &[("x-team", "t"), ("session-id", "s")]), pair("t", "t"));
    let empty = [("x-llm-d-inference-fairness-id", ""), ("session_id", "u")];
    assert_eq!(ids(json!([]), &empty), pair("u", "u"));
}

#[test]
fn p2p_source_producer() {
    let header = |zone: &str, id: &str| {
        let profiles = ["a", "b", "c"].map(|name| json!({"name": name, "plugins": [{"pluginRef": name}]}));
        let config = json!({
            "plugins": [
                {"type": "approx-prefix-cache-producer", "parameters": {"autoTune": false, "blockSizeTokens": 64}},
                {"type": "p2p-source-producer"}, {"type": "header-profile-handler"},
                {"name": "a", "type": "label-selector-filter", "parameters": {"matchLabels": {"zone": "a"}}},
                {"name": "b", "type": "label-selector-filter", "parameters": {"matchLabels": {"zone": "b"}}},
                {"name": "c", "type": "label-selector-filter", "parameters": {"matchLabels": {"zone": "c"}}},
            ],
            "schedulingProfiles": profiles,
        });
        let mut fixture = Fixture::new(&config, waiting(&[0, 3, 0])).label("zone", &["a", "b", "c"]);
        // 64 tokens have 256 bytes.
        let prompt = "x".repeat(2560);
        fixture.send(&prompt, &[("epp-profile", "a")]);
        fixture.send(&prompt[..2304], &[("epp-profile", "b")]);
        let decision = fixture.send(&prompt, &[("epp-profile", zone), ("x-request-id", id)]);
        decision
            .headers
            .into_iter()
            .find_map(|(name, value)| (name == "x-kv-cache-source-host-port").then_some(value))
    };
    let address = |endpoint: u8| Some(format!("192.168.1.{}:8000", endpoint + 1));
    assert_eq!(header("c", "req-1"), address(1));
    assert_eq!(header("c", "a"), address(1));
    assert_eq!(header("c", "4bf92f3577b34da6a3ce929d0e0e4736"), address(0));
    assert_eq!(header("a", "a"), None);
}

#[test]
fn topology_extractor() {
    let fixture = near_decode(&json!({"type": "topology-affinity-scorer"}));
    let pool = fixture.pool();
    let topology = TopologyExtractor::default().topology();
    let zones = pool.as_slice().iter().map(|endpoint| endpoint.label("topology.kubernetes.io/zone"));
    assert_eq!(zones.collect::<Vec<_>>(), [Some("1"), Some("1"), Some("1"), Some("2")]);
    assert_eq!(topology.level(pool.endpoint(0), pool.endpoint(1)), Some(TopologyLevel::Host));
    assert_eq!(topology.level(pool.endpoint(0), pool.endpoint(2)), Some(TopologyLevel::Zone));
    assert_eq!(topology.level(pool.endpoint(0), pool.endpoint(3)), None);
}

#[cfg(feature = "cel")]
#[test]
fn request_attribute_reporter() {
    use endpoint_picker::plugin::{AttributeReport, NotReported};
    use endpoint_picker::response::usage::Usage;

    let attribute = json!({
        "key": {"name": "x-gateway-inference-request-cost"},
        "expression": "usage.prompt_tokens + 4.0 * usage.completion_tokens",
        "condition": "usage.completion_tokens > 0",
    });
    let config = super::only("request-attribute-reporter", &json!({"attributes": [attribute]}));
    let fixture = Fixture::idle(&config, 1);
    let [reporter] = &fixture.pipeline.reporters()[..] else { panic!("no reporter") };
    let report = |output| reporter.plugin.report(&Usage { input: 32, output, ..Usage::default() });
    let cost = AttributeReport { namespace: "envoy.lb", name: "x-gateway-inference-request-cost", value: 72 };
    assert_eq!((report(10), report(0)), (Ok(cost), Err(NotReported::Unmet)));
}
