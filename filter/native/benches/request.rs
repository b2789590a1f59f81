//! Processor time of the module's own code for one request, from its head to the end of its response; other
//! work on the machine hardly changes it. The mock of Envoy, which stores headers and metadata, is a part of
//! it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench"
)]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/module/envoy/mod.rs"]
mod envoy;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/module/pool.rs"]
mod pool;
#[path = "../tests/budget/rules.rs"]
mod rules;

use core::fmt::Write as _;
use core::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use endpoint_picker::state::prefix::key;
use endpoint_picker_engine::testing;
use endpoint_picker_native as _;
use endpoint_picker_wire::prefixes::{Blocks, CacheState, CachedPrefixes, Model};
use endpoint_picker_wire::{PREFIXES_FORMAT, v1};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use envoy::{Next, Request};

/// Different prompts, of 2 KB each.
const PROMPTS: usize = 500;

/// The processor time of the thread.
struct ProcessorTime;

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

impl Measurement for ProcessorTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        processor_time()
    }

    fn end(&self, start: Duration) -> Duration {
        processor_time().saturating_sub(start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn chats() -> Vec<Vec<u8>> {
    let chat = |number| {
        let text = format!("The quick brown fox {number} jumps over the lazy dog. ").repeat(40);
        let body = json!({"model": "n", "messages": [{"role": "user", "content": text}], "max_tokens": 64});
        body.to_string().into_bytes()
    };
    (0..PROMPTS).map(chat).collect()
}

fn requests(criterion: &mut Criterion<ProcessorTime>) {
    let record = Some(v1::RecordSample { key: 1, limit: u64::MAX });
    for (rules, policy) in [
        ("expected latency", rules::expected_latency()),
        ("the EPP's rules", v1::Policy::default()),
        ("recorded by the EPP's rules", v1::Policy { record, ..v1::Policy::default() }),
    ] {
        requests_by(criterion, rules, &policy);
    }
}

fn requests_by(criterion: &mut Criterion<ProcessorTime>, rules: &str, policy: &v1::Policy) {
    let chats = chats();
    let mut group = criterion.benchmark_group(format!("a chat of 2 KB, from its head to its end, {rules}"));
    for endpoints in [10, 100, 1000, 5000] {
        // Names of pools have few other characters.
        let name = format!("bench-{rules}-{endpoints}").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let waiting: Vec<u64> = (0..endpoints).map(|number| number % 8).collect();
        let config = pool::with_policy(&name, &json!({}), policy.clone(), &waiting);
        let mut number = 0;
        group.bench_function(format!("{endpoints} endpoints"), |bencher| {
            bencher.iter_batched(
                || {
                    number += 1;
                    (Request::chat(&config, 0), &chats[number % PROMPTS])
                },
                |(request, chat)| {
                    request.headers(false);
                    assert_eq!(request.body(chat, true), Next::Continue);
                    let chosen = request.destinations().unwrap();
                    request.answer_headers(&chosen, &[(":status", "200")], false);
                    request.answer_body(b"", true);
                    request
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// A template with the loops and tests that models' templates have.
const TEMPLATE: &str = "{%- for message in messages %}\
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}\
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\
    {%- elif message.role == 'assistant' %}\
    {{- '<|im_start|>' + message.role + '\\n' + message.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}\
    {%- endif %}\
    {%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/// Endpoints of the pool of conversations; every fifth has cached each of them.
const ENDPOINTS: u16 = 100;

/// A conversation of this many turns of 2 KB, and the text that the template makes of it.
fn conversation(number: usize, turns: usize) -> (Vec<u8>, String) {
    let (mut messages, mut text) = (Vec::new(), String::new());
    for turn in 0..turns {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        let content =
            format!("Conversation {number}, turn {turn}: the quick brown fox jumps over it. ").repeat(30);
        let _ = write!(text, "<|im_start|>{role}\n{content}<|im_end|>\n");
        messages.push(json!({"role": role, "content": content}));
    }
    let body = json!({"model": "n", "messages": messages, "max_tokens": 64});
    (body.to_string().into_bytes(), text)
}

/// All conversations in the caches of servers, in blocks of 256 bytes.
fn prefixes(texts: &[String]) -> CachedPrefixes {
    let endpoints: Vec<u64> = (1..=ENDPOINTS).map(testing::key).collect();
    let caches = endpoints
        .iter()
        .map(|&endpoint| CacheState { endpoint, complete: true, complete_by_token_ids: false, age_ms: 0 })
        .collect();
    let mut stored = Blocks::default();
    for (number, text) in texts.iter().enumerate() {
        let mut parent = key::root("n", None);
        for block in text.as_bytes().chunks_exact(256) {
            let key = key::child(parent, block);
            for endpoint in (0..u32::from(ENDPOINTS)).skip(number % 5).step_by(5) {
                stored.parents.push(parent);
                stored.keys.push(key);
                stored.lengths.push(256);
                stored.tokens.push(64);
                stored.endpoints.push(endpoint);
                stored.tiers.push(0);
            }
            parent = key;
        }
    }
    let model = Model {
        names: vec!["n".to_owned()],
        chat_template: TEMPLATE.to_owned(),
        root: key::root("n", None),
        ..Model::default()
    };
    CachedPrefixes {
        format: PREFIXES_FORMAT,
        log: 1,
        version: 1,
        whole: true,
        models: vec![model],
        models_changed: true,
        caches,
        endpoints,
        stored: Some(stored),
        ..CachedPrefixes::default()
    }
}

fn conversations(criterion: &mut Criterion<ProcessorTime>) {
    let mut group = criterion.benchmark_group("a conversation, by a prefix-cache-scorer over 100 endpoints");
    for (size, turns) in [("10 KB", 5), ("100 KB", 49)] {
        let (bodies, texts): (Vec<_>, Vec<_>) = (0..10).map(|number| conversation(number, turns)).unzip();
        for producer in ["approx-prefix-cache-producer", "precise-prefix-cache-producer"] {
            let name = format!("bench-{producer}-{turns}");
            let waiting = vec![0; ENDPOINTS.into()];
            let scorer = json!({"prefixMatchInfoProducerName": producer}).to_string();
            let plugin = |r#type: &str, parameters: &str| testing::plugin(r#type, parameters);
            let plugins = vec![plugin(producer, "{}"), plugin("prefix-cache-scorer", &scorer)];
            let config = v1::PickerConfig { plugins, ..v1::PickerConfig::default() };
            let policy = v1::Policy { picker_config: Some(config), ..v1::Policy::default() };
            let config = pool::with_policy(&name, &json!({}), policy, &waiting);
            if producer.starts_with("precise") {
                config.agent.publish_prefixes(prefixes(&texts));
            }
            let mut number = 0;
            group.bench_function(format!("{size}, {producer}"), |bencher| {
                bencher.iter_batched(
                    || {
                        number += 1;
                        (Request::chat(&config, 0), number % bodies.len())
                    },
                    |(request, number)| {
                        request.headers(false);
                        assert_eq!(request.body(&bodies[number], true), Next::Continue);
                        let chosen = request.destinations().unwrap();
                        request.answer_headers(&chosen, &[(":status", "200")], false);
                        request.answer_body(b"", true);
                        request
                    },
                    BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(ProcessorTime);
    targets = requests, conversations
}
criterion_main!(benches);
