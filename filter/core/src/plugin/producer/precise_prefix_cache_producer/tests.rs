use serde_json::{Value, json};

use super::*;
use crate::cached_prefixes::{Block, CachedPrefixes, Events};
use crate::plugin::Stage;
use crate::plugin::fixture::{Fixture, NOW, records};
use crate::pool::Endpoint;
use crate::request::cached_prompt::{PromptKind, Ranks, Tier};
use crate::request::prompt::{Pieces, Prompt, Text, block_hashes};
use crate::state::PluginStates;
use crate::state::prefix::{Capacity, key};
use crate::test;

const ROOT: u64 = 1;

/// The bytes of a block of 64 tokens, as they are estimated.
const BLOCK: usize = 256;

fn producer(parameters: Value) -> PrecisePrefixCacheProducer {
    let producer: PrecisePrefixCacheProducer = serde_json::from_value(parameters).unwrap();
    assert_eq!(producer.check(), Ok(()));
    producer
}

/// The text of four blocks that differ.
fn text() -> String {
    (0..4).map(|n| char::from(b'a' + n).to_string().repeat(BLOCK)).collect()
}

/// The caches of endpoints by their index; an endpoint that is left out has incomplete events. `None`: a
/// block that it lacks.
fn cached(caches: &[(u16, [Option<Tier>; 4])]) -> &'static CachedPrompt {
    cached_by(PromptKind::Text, caches)
}

/// The same for a prompt of another kind.
fn cached_by(kind: PromptKind, caches: &[(u16, [Option<Tier>; 4])]) -> &'static CachedPrompt {
    let key = |n: u16| Endpoint::new(format!("default/{n}"), ([10, 0, 0, 1], 8000 + n).into(), vec![]).key();
    let mut index = CachedPrefixes::default();
    let events =
        |&(endpoint, _): &(u16, _)| Events { endpoint: key(endpoint), by_text: true, by_token_ids: true };
    index.follow(caches.iter().map(events));
    let text = text();
    for (endpoint, tiers) in caches {
        let holder = index.holder(key(*endpoint)).unwrap();
        let mut parent = ROOT;
        for (block, tier) in text.as_bytes().chunks(BLOCK).zip(tiers) {
            let key = key::child(parent, block);
            if let Some(tier) = *tier {
                index.store(holder, tier, Ranks::default(), &Block { parent, key, length: 256, tokens: 70 });
            }
            parent = key;
        }
    }
    Box::leak(Box::new(index.find(ROOT, kind, [text.as_bytes()])))
}

fn hashes() -> BlockHashes {
    let mut pieces = Pieces::new(usize::MAX);
    let text = text();
    pieces.text(Text::borrowed(&text));
    block_hashes(&Prompt::one(pieces), "m", None, 64, 2048)
}

/// Three endpoints, of which these were sent the prompt at these times.
fn fixture(producer: &PrecisePrefixCacheProducer, sent: &[(usize, Duration)]) -> Fixture {
    let mut fixture = Fixture::of(3);
    let mut index = producer.new_state().unwrap();
    for &(endpoint, at) in sent {
        index.apply(endpoint, at, &PrefixIndex::words(Capacity::first(1_000), hashes().all()));
    }
    fixture.states = PluginStates::only(index);
    fixture
}

fn matches(fixture: &Fixture, producer: &PrecisePrefixCacheProducer) -> ([u32; 3], [&'static str; 3]) {
    fixture.with_cycle(|cycle| {
        let (hashes, mut matched) = (hashes(), [0; 3]);
        producer.count_matches(cycle, &hashes, &mut matched, &mut Vec::new());
        let counted =
            PrefixMatch { matched: matched.to_vec(), total: 4, block_size: 64, ..Default::default() };
        (
            matched,
            [0, 1, 2].map(|endpoint| producer.match_source(cycle, &counted, endpoint).unwrap().as_str()),
        )
    })
}

const EVENTS: &str = "by its KV-cache events";
const SENT: &str = "just sent";
const APPROXIMATE: &str = "by what it was sent";

const GPU: Option<Tier> = Some(Tier::Gpu);
const CPU: Option<Tier> = Some(Tier::Cpu);
const NONE: Option<Tier> = None;

/// A has three blocks, B has one in graphics memory and two in main memory, C lacks the second block.
const CACHES: [(u16, [Option<Tier>; 4]); 3] =
    [(0, [GPU, GPU, GPU, NONE]), (1, [GPU, CPU, CPU, NONE]), (2, [GPU, NONE, GPU, GPU])];

/// Example of `precise-prefix-cache-producer`.
#[test]
fn the_longest_run_counts_weighted_by_tiers_and_cut_to_an_integer() {
    for (parameters, expected) in [
        (json!({}), [3, 2, 1]),
        (json!({"indexerConfig": {"kvCacheBackendConfigs": [{"name": "cpu", "weight": 0.4}]}}), [3, 1, 1]),
        (json!({"indexerConfig": {"kvCacheBackendConfigs": [{"name": "gpu", "weight": 0.5}]}}), [1, 2, 0]),
        (json!({"indexerConfig": {"kvCacheBackendConfigs": []}}), [3, 3, 1]),
    ] {
        let producer = producer(parameters.clone());
        let mut fixture = fixture(&producer, &[]);
        fixture.request.cached = Some(cached(&CACHES));
        assert_eq!(matches(&fixture, &producer), (expected, [EVENTS; 3]), "{parameters}");
    }
}

#[test]
fn a_prompt_of_token_ids_names_its_source() {
    let producer = producer(json!({}));
    let mut fixture = fixture(&producer, &[]);
    fixture.request.cached = Some(cached_by(PromptKind::TokenIds, &CACHES));
    let source = "by the token ids of its KV-cache events";
    assert_eq!(matches(&fixture, &producer), ([3, 2, 1], [source; 3]));
}

#[test]
fn a_prompt_that_was_just_sent_counts_for_two_seconds() {
    for (parameters, ttl) in [
        (json!({}), 2),
        (json!({"speculativeTTL": "0s"}), 2),
        (json!({"speculativeTTL": "5s"}), 5),
        (json!({"speculativeTTL": "1h"}), 60),
    ] {
        let producer = producer(parameters);
        let mut fixture = fixture(&producer, &[(1, NOW.saturating_sub(Duration::from_secs(ttl)))]);
        fixture.request.cached = Some(cached(&CACHES));
        assert_eq!(matches(&fixture, &producer), ([3, 4, 1], [EVENTS, SENT, EVENTS]));
        fixture.now = NOW + Duration::from_millis(1);
        assert_eq!(matches(&fixture, &producer), ([3, 2, 1], [EVENTS; 3]));
    }
}

#[test]
fn an_endpoint_without_events_is_matched_by_all_that_it_was_sent() {
    let producer = producer(json!({}));
    let mut fixture = fixture(&producer, &[(0, Duration::ZERO), (1, Duration::ZERO)]);
    fixture.request.cached = Some(cached(&[CACHES[1], CACHES[2]]));
    assert_eq!(matches(&fixture, &producer), ([4, 2, 1], [APPROXIMATE, EVENTS, EVENTS]));
    fixture.request.cached = None;
    assert_eq!(matches(&fixture, &producer), ([4, 4, 0], [APPROXIMATE; 3]), "the text is not known");
}

#[test]
fn the_tokens_of_the_events_are_predicted_unless_more_was_just_sent() {
    let producer = producer(json!({}));
    let predicted = |sent: &[(usize, Duration)], picked: usize| {
        let mut fixture = fixture(&producer, sent);
        fixture.request.cached = Some(cached(&CACHES));
        fixture.with_cycle(|cycle| {
            let (hashes, mut matched) = (hashes(), vec![0; 3]);
            producer.count_matches(cycle, &hashes, &mut matched, &mut Vec::new());
            let matches = PrefixMatch { matched, total: 4, block_size: 64, ..Default::default() };
            let stage = Stage { profile: "default", picked: &[picked] };
            let (hashes, matches) = (Some(&hashes), Some(&matches));
            let routed = Routed { stages: &[stage], primary: &stage, rated: None, hashes, matches };
            let prediction = producer.predict_usage(cycle, &routed).unwrap();
            (prediction.cached, prediction.matched)
        })
    };
    assert_eq!(predicted(&[], 0), (Some(210), 192));
    assert_eq!(predicted(&[], 1), (Some(210), 128), "tokens are not weighted");
    assert_eq!(predicted(&[(1, NOW)], 1), (None, 256));
}

#[test]
fn what_was_just_recorded_is_left_out_for_half_a_second() {
    let producer = producer(json!({}));
    let mut fixture = fixture(&producer, &[(1, NOW)]);
    let recorded = |fixture: &Fixture| {
        fixture.with_cycle(|cycle| {
            let stage = Stage { profile: "default", picked: &[1] };
            let matches = PrefixMatch { block_size: 64, ..Default::default() };
            let (hashes, matches) = (hashes(), Some(&matches));
            let routed =
                Routed { stages: &[stage], primary: &stage, rated: None, hashes: Some(&hashes), matches };
            records(&producer, cycle, &routed).changes.len()
        })
    };
    fixture.now = NOW + Duration::from_millis(500);
    assert_eq!(recorded(&fixture), 0);
    fixture.now = NOW + Duration::from_millis(501);
    assert_eq!(recorded(&fixture), 1);
}

#[test]
fn parameters_are_the_epps() {
    let all = json!({
        "tokenProcessorConfig": {"blockSize": 64, "hashSeed": "42", "hashAlgorithm": "xxh64"},
        "indexerConfig": {
            "kvBlockIndexConfig": {
                "enableMetrics": true, "metricsLoggingInterval": 60_000_000_000_u64,
                "inMemoryConfig": {"size": 5, "podCacheSize": 3},
            },
            "kvCacheBackendConfigs": [{"name": "gpu", "weight": 1.0}, {"name": "cpu", "weight": 0.8}],
        },
        "kvEventsConfig": {
            "zmqEndpoint": "tcp://0.0.0.0:5557", "topicFilter": "kv@", "concurrency": 4, "engineType": "sglang",
            "discoverPods": true, "podDiscoveryConfig": {"socketPort": 5557, "replaySocketPort": 5558},
        },
        "speculativeIndexing": true,
        "speculativeTTL": "2s",
    });
    let warnings = producer(all).warnings();
    assert!(warnings[0].contains("--kv-events"), "{warnings:?}");
    assert!(
        warnings[1].starts_with("kvEventsConfig.zmqEndpoint \"tcp://0.0.0.0:5557\" has no effect"),
        "{warnings:?}"
    );
    assert_eq!(producer(json!({})).warnings().len(), 1);
    for (parameters, expected) in [
        (
            json!({"tokenProcessorConfig": {"blockSizeTokens": -1}}),
            "tokenProcessorConfig.blockSizeTokens is -1",
        ),
        (json!({"tokenProcessorConfig": {"blockSize": -1}}), "tokenProcessorConfig.blockSizeTokens is -1"),
        (
            json!({"indexerConfig": {"tokenizersPoolConfig": {}}}),
            "indexerConfig.tokenizersPoolConfig is not allowed",
        ),
        (
            json!({"indexerConfig": {"kvCacheBackendConfigs": [{"name": "gpu", "weight": -1}]}}),
            "indexerConfig.kvCacheBackendConfigs[0].weight is -1; allowed is 0 or more",
        ),
        (
            json!({"indexerConfig": {"kvCacheBackendConfigs": [{"weight": 1}]}}),
            "indexerConfig.kvCacheBackendConfigs[0].name is empty",
        ),
    ] {
        let producer: PrecisePrefixCacheProducer = serde_json::from_value(parameters).unwrap();
        let refused = producer.check().unwrap_err();
        assert!(refused.starts_with(expected), "{refused}");
    }
    assert_eq!(producer(json!({"tokenProcessorConfig": {"blockSizeTokens": 0}})).check(), Ok(()));
    for refused in [
        json!({"speculativeTTL": "soon"}),
        json!({"tokenProcessorConfig": {"blockSizeToken": 16}}),
        json!({"tokenProcessorConfig": {"hashSeed": 42}}),
        json!({"indexerConfig": {"x": 1}}),
        json!({"indexerConfig": {"kvBlockIndexConfig": {"inMemory": {}}}}),
        json!({"indexerConfig": {"kvBlockIndexConfig": {"inMemoryConfig": {"size": "5"}}}}),
        json!({"indexerConfig": {"kvBlockIndexConfig": {"metricsLoggingInterval": "1m"}}}),
        json!({"indexerConfig": {"kvBlockIndexConfig": {"costAwareMemoryConfig": {"size": 2}}}}),
        json!({"kvEventsConfig": {"topic": "kv@"}}),
        json!({"kvEventsConfig": {"concurrency": "x"}}),
        json!({"kvEventsConfig": {"podDiscoveryConfig": {"port": 5557}}}),
        json!({"tokenProcessorConfig": {"hashAlgorithm": "md5"}}),
        json!({"kvEventsConfig": {"engineType": "tgi"}}),
        json!({"indexerConfig": {"kvCacheBackendConfigs": [{"name": "gpu", "wight": 1}]}}),
    ] {
        assert!(serde_json::from_value::<PrecisePrefixCacheProducer>(refused.clone()).is_err(), "{refused}");
    }
}
