//! Decisions by the caches of servers, as the agent publishes them.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::cached_prefixes::PromptTexts;
use endpoint_picker::request::body::Api;
use endpoint_picker::state::prefix::key;
use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::prefix_caches::{CachesUpdate, ServedModels};
use endpoint_picker_engine::testing;
use endpoint_picker_wire::prefixes::{Blocks, CacheState, CachedPrefixes, Model};
use endpoint_picker_wire::statistics::MetricKind;
use endpoint_picker_wire::{Message, PREFIXES_FORMAT, v1};
use serde_json::{Value, json};

use crate::fixture::{CHAT, Fixture, START, TEXT, address};
use crate::usage::{JSON, errors, usage};

/// Bytes of a block.
const BLOCK: usize = 256;

/// A template that joins the contents of messages, or of the items of an input.
#[derive(Debug)]
struct Contents {
    has_chats: bool,
}

impl PromptTexts for Contents {
    fn has_chats(&self) -> bool {
        self.has_chats
    }

    fn chat(&self, api: Api, body: &[u8], max_bytes: usize) -> Option<String> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let messages = &body[if api == Api::Responses { "input" } else { "messages" }];
        let contents = messages.as_array()?.iter().map(|message| message["content"].as_str());
        contents.collect::<Option<String>>().filter(|text| text.len() <= max_bytes)
    }

    fn completion(&self, prompt: String) -> String {
        format!("<s>{prompt}")
    }
}

/// A text of this many blocks that begins with these letters.
fn text(letters: &str) -> String {
    letters.chars().flat_map(|letter| core::iter::repeat_n(letter, BLOCK)).collect()
}

/// The blocks of a prompt, given by its bytes, below a root, each cached by the endpoint of this number.
fn blocks(endpoint: u32, root: u64, prompt: &(impl AsRef<[u8]> + ?Sized)) -> Blocks {
    let mut blocks = Blocks::default();
    let mut parent = root;
    for block in prompt.as_ref().chunks(BLOCK) {
        let key = key::child(parent, block);
        blocks.parents.push(parent);
        blocks.keys.push(key);
        blocks.lengths.push(u32::try_from(block.len()).unwrap());
        blocks.tokens.push(64);
        blocks.endpoints.push(endpoint - 1);
        blocks.tiers.push(0);
        parent = key;
    }
    blocks
}

/// A message with everything about three endpoints that serve `m`, also as `alias`, with the adapter `a`.
fn whole(log: u64, stored: Blocks) -> CachedPrefixes {
    let endpoints: Vec<u64> = (1..=3).map(testing::key).collect();
    let caches = endpoints.iter().map(|&endpoint| CacheState {
        endpoint,
        complete: true,
        complete_by_token_ids: false,
        age_ms: 0,
    });
    let model = Model {
        names: vec!["m".to_owned(), "alias".to_owned()],
        adapters: vec!["a".to_owned()],
        root: key::root("m", None),
        chat_template: "a template".to_owned(),
        ..Model::default()
    };
    CachedPrefixes {
        format: PREFIXES_FORMAT,
        log,
        version: 1,
        whole: true,
        models: vec![model],
        models_changed: true,
        caches: caches.collect(),
        endpoints,
        stored: Some(stored),
        ..CachedPrefixes::default()
    }
}

/// A pool of three endpoints whose scorer of precise matches decides; with equal scores the second one has
/// the fewest waiting requests.
fn fixture() -> Fixture {
    with_config(&json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 4096}}))
}

/// The same with these fields of the filter's configuration.
fn with_config(fields: &Value) -> Fixture {
    let scorers =
        [("precise-prefix-cache-scorer", Some(2.0)), ("queue-scorer", Some(1.0)), ("max-score-picker", None)];
    let policy =
        v1::Policy { picker_config: Some(testing::picker_config(&scorers)), ..v1::Policy::default() };
    let mut fixture = Fixture::with_policy(fields, policy);
    let topology = fixture.pool.view().topology().clone();
    let snapshot = testing::snapshot([20, 0, 10].map(testing::reading));
    let view = endpoint_picker_engine::pool_view::PoolView::new(topology, snapshot, START);
    fixture.pool.adopt(Arc::new(view));
    fixture
}

fn update(fixture: &Fixture, message: &CachedPrefixes, now: Duration) {
    let update = CachesUpdate::read(&message.encode_to_vec()).unwrap();
    let texts_of = |model: &Model| -> Arc<dyn PromptTexts> {
        Arc::new(Contents { has_chats: !model.chat_template.is_empty() })
    };
    let models = update.models().map(|models| Arc::new(ServedModels::new(models, texts_of)));
    let mut caches = fixture.pool.store().caches.borrow_mut();
    update.steps(models.as_ref()).for_each(|step| drop(caches.apply(&step)));
    caches.mark_updated(now);
}

fn chat(model: &str, contents: &[&str]) -> String {
    let messages: Vec<Value> = contents.iter().map(|text| json!({"role": "user", "content": text})).collect();
    // The model first, so that the beginning of a body has it.
    format!(r#"{{"model": "{model}", "messages": {}}}"#, Value::from(messages))
}

/// The endpoint that a request goes to.
fn destination(fixture: &mut Fixture, path: &str, body: &str) -> String {
    fixture.post(path, &[], body).destination().unwrap().to_owned()
}

#[test]
fn a_chat_goes_where_the_events_show_its_prompt() {
    let mut fixture = fixture();
    let body = chat("m", &[&text("ab"), &text("c"), "x"]);
    assert_eq!(destination(&mut fixture, CHAT, &body), address(2), "nothing is known yet");
    update(&fixture, &whole(1, blocks(1, key::root("m", None), &text("abc"))), START);
    let mut request = fixture.request(CHAT, &[]);
    request.proxy.now.set(START + Duration::from_secs(3));
    request.head(&mut fixture);
    request.body(&mut fixture, body.as_bytes(), true);
    assert_eq!(request.destination(), Some(address(1).as_str()), "another one was sent it before");
    assert_eq!(destination(&mut fixture, CHAT, &chat("m", &[&text("b")])), address(2));
    assert_eq!(destination(&mut fixture, CHAT, &chat("alias", &[&text("ab")])), address(1));
}

#[test]
fn what_was_just_sent_counts_before_its_events_come() {
    let mut fixture = fixture();
    update(&fixture, &whole(1, Blocks::default()), START);
    let body = chat("m", &[&text("ab")]);
    assert_eq!(destination(&mut fixture, CHAT, &body), address(2));
    let topology = fixture.pool.view().topology().clone();
    let snapshot = testing::snapshot([0, 5, 20].map(testing::reading));
    let view = endpoint_picker_engine::pool_view::PoolView::new(topology, snapshot, START);
    fixture.pool.adopt(Arc::new(view));
    assert_eq!(destination(&mut fixture, CHAT, &body), address(2), "not the first, which has fewer requests");
    let mut request = fixture.request(CHAT, &[]);
    request.proxy.now.set(START + Duration::from_millis(2_600));
    request.head(&mut fixture);
    request.body(&mut fixture, body.as_bytes(), true);
    assert_eq!(request.destination(), Some(address(1).as_str()), "the events do not show it");
}

#[test]
fn errors_of_predictions_are_counted_by_their_source() {
    let mut fixture = with_config(&json!({"countTokens": true}));
    update(&fixture, &whole(1, blocks(1, key::root("m", None), &text("ab"))), START);
    let mut exchange = |letters: &str, cached: u64| {
        let mut request = fixture.post(CHAT, &[], &chat("m", &[&text(letters)]));
        assert_eq!(request.destination(), Some(address(1).as_str()));
        request.answer(&mut fixture, 1, JSON);
        request.chunk(&mut fixture, &usage(letters.len() as u64 * 64, cached), true);
        errors(&fixture)
    };
    assert_eq!(exchange("ab", 112), [(1, 16, 0), (0, 0, 0)]);
    assert_eq!(exchange("ab", 0), [(2, 16 + 128, 1), (0, 0, 0)]);
    assert_eq!(exchange("abc", 128), [(3, 144, 1), (0, 0, 0)], "the events show two of three blocks");
    assert_eq!(
        exchange("abc", 100),
        [(3, 144, 1), (1, 91, 1)],
        "all three were just sent, and the rest of the prompt is no full block"
    );
    let histograms = fixture.sink.values(MetricKind::Histogram);
    assert_eq!(histograms["model_index_error_tokens|m|m|events"], [16, 128, 0]);
    assert_eq!(histograms["model_index_error_tokens|m|m|prompts"], [91]);
}

#[test]
fn models_adapters_and_salts_have_caches_of_their_own() {
    let mut fixture = fixture();
    let mut stored = blocks(1, key::root("a", None), &text("ab"));
    let salted = blocks(3, key::root("m", Some("s")), &text("ab"));
    stored.parents.extend(salted.parents);
    stored.keys.extend(salted.keys);
    stored.lengths.extend(salted.lengths);
    stored.tokens.extend(salted.tokens);
    stored.endpoints.extend(salted.endpoints);
    stored.tiers.extend(salted.tiers);
    update(&fixture, &whole(1, stored), START);
    let text = text("ab");
    let with_salt = |salt: &str| {
        json!({"model": "m", "cache_salt": salt, "messages": [{"role": "user", "content": text}]}).to_string()
    };
    assert_eq!(destination(&mut fixture, CHAT, &chat("a", &[&text])), address(1));
    assert_eq!(destination(&mut fixture, CHAT, &with_salt("s")), address(3));
    assert_eq!(destination(&mut fixture, CHAT, &chat("m", &[&text])), address(2));
    assert_eq!(destination(&mut fixture, CHAT, &with_salt("t")), address(2));
}

#[test]
fn completions_are_matched_by_their_own_text() {
    let mut fixture = fixture();
    let text = text("ab");
    update(&fixture, &whole(1, blocks(1, key::root("m", None), &format!("<s>{text}"))), START);
    let body = |prompt: Value| json!({"model": "m", "prompt": prompt}).to_string();
    assert_eq!(destination(&mut fixture, TEXT, &body(json!(text))), address(1));
    assert_eq!(destination(&mut fixture, TEXT, &body(json!(["x", text]))), address(1));
    assert_eq!(destination(&mut fixture, TEXT, &body(json!([1, 2, 3]))), address(2), "token ids");
}

#[test]
fn token_ids_are_matched_with_the_ids_of_cached_blocks() {
    const GENERATE: &str = "/inference/v1/generate";
    let ids: Vec<u32> = (1_000..1_128).collect();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    let root = |name, salt| key::root_of_token_ids(name, salt);
    let message = |stored, has_token_ids: bool| {
        let mut message = whole(1, stored);
        message.models[0].token_ids_root = has_token_ids.then(|| root("m", None));
        message.models[0].problem = "no tokenizer".to_owned();
        for cache in &mut message.caches {
            (cache.complete, cache.complete_by_token_ids) = (false, has_token_ids);
        }
        message
    };
    let prompt = |model: &str, prompt: Value| json!({"model": model, "prompt": prompt}).to_string();
    let generate = json!({"model": "m", "token_ids": ids}).to_string();
    let salted = json!({"model": "m", "cache_salt": "s", "prompt": ids}).to_string();
    for (name, salt, path, body) in [
        ("m", None, TEXT, prompt("m", json!(ids))),
        ("m", None, TEXT, prompt("alias", json!(ids))),
        ("m", None, TEXT, prompt("m", json!([[1, 2], ids]))),
        ("m", None, GENERATE, generate),
        ("a", None, TEXT, prompt("a", json!(ids))),
        ("m", Some("s"), TEXT, salted),
    ] {
        for (has_token_ids, root, picked) in [
            (true, root(name, salt), 1),
            (false, root(name, salt), 2),
            (true, root("other", None), 2),
            (true, key::root(name, salt), 2),
        ] {
            let mut fixture = fixture();
            update(&fixture, &message(blocks(1, root, &bytes), has_token_ids), START);
            assert_eq!(destination(&mut fixture, path, &body), address(picked), "{has_token_ids} {body}");
        }
    }
    let mut fixture = fixture();
    let text = text("ab");
    update(&fixture, &message(blocks(1, key::root("m", None), &format!("<s>{text}")), true), START);
    assert_eq!(destination(&mut fixture, TEXT, &prompt("m", json!(text))), address(2), "no texts");
}

#[test]
fn chats_of_other_apis_are_matched_by_their_texts() {
    let mut fixture = fixture();
    let text = text("ab");
    update(&fixture, &whole(1, blocks(1, key::root("m", None), &text)), START);
    let message = json!([{"role": "user", "content": text}]);
    let anthropic = json!({"model": "m", "max_tokens": 1, "messages": message}).to_string();
    assert_eq!(destination(&mut fixture, "/v1/messages", &anthropic), address(1));
    let responses = json!({"model": "m", "input": message}).to_string();
    assert_eq!(destination(&mut fixture, "/v1/responses", &responses), address(1));
}

#[test]
fn the_rank_that_has_cached_a_prompt_is_named_if_the_rules_say_so() {
    let producer = "precise-prefix-cache-producer";
    for (parameters, sent, expected) in [
        ("{}", None, None),
        (r#"{"nameRank": true}"#, None, Some("2")),
        (r#"{"nameRank": true}"#, Some("0"), Some("0")),
    ] {
        let scorer = format!(r#"{{"prefixMatchInfoProducerName": "{producer}"}}"#);
        let plugins =
            vec![testing::plugin(producer, parameters), testing::plugin("prefix-cache-scorer", &scorer)];
        let config = v1::PickerConfig { plugins, ..v1::PickerConfig::default() };
        let policy = v1::Policy { picker_config: Some(config), ..v1::Policy::default() };
        let mut fixture = Fixture::with_policy(&json!({}), policy);
        let stored = blocks(1, key::root("m", None), &text("ab"));
        update(&fixture, &whole(1, Blocks { ranks: vec![0b110, 0b100], ..stored }), START);
        let headers: Vec<_> = sent.map(|rank| ("x-data-parallel-rank", rank)).into_iter().collect();
        let request = fixture.post(CHAT, &headers, &chat("m", &[&text("ab")]));
        assert_eq!(request.destination(), Some(address(1).as_str()));
        assert_eq!(request.proxy.request_header("x-data-parallel-rank"), expected, "{parameters}");
        let request = fixture.post(CHAT, &[], &chat("m", &[&text("cd")]));
        assert_eq!(request.proxy.request_header("x-data-parallel-rank"), None, "no rank has it");
    }
}

#[test]
fn very_many_prompts_have_no_texts() {
    for (count, picked) in [(64, 1), (65, 2)] {
        let mut fixture = fixture();
        let text = text("abcd");
        update(&fixture, &whole(1, blocks(1, key::root("m", None), &format!("<s>{text}"))), START);
        let prompts: Vec<&str> = core::iter::once(text.as_str()).chain(vec!["x"; count - 1]).collect();
        let body = json!({"model": "m", "prompt": prompts}).to_string();
        assert_eq!(destination(&mut fixture, TEXT, &body), address(picked), "{count} prompts");
    }
}

#[test]
fn a_model_whose_keys_are_made_in_another_way_is_not_known() {
    let mut fixture = fixture();
    let mut message = whole(1, blocks(1, key::root("m", None), &text("ab")));
    message.models[0].root += 1;
    update(&fixture, &message, START);
    assert_eq!(destination(&mut fixture, CHAT, &chat("m", &[&text("ab")])), address(2));
}

#[test]
fn an_agent_that_restarts_or_is_silent_leaves_approximate_matches() {
    let mut fixture = fixture();
    let body = chat("m", &[&text("ab")]);
    update(&fixture, &whole(1, blocks(1, key::root("m", None), &text("ab"))), START);
    assert_eq!(destination(&mut fixture, CHAT, &body), address(1));
    let first_part = CachedPrefixes { more: true, ..whole(2, Blocks::default()) };
    update(&fixture, &first_part, START);
    assert_eq!(destination(&mut fixture, CHAT, &body), address(1), "what was sent counts");
    let second_part =
        CachedPrefixes { whole: false, ..whole(2, blocks(3, key::root("m", None), &text("cd"))) };
    update(&fixture, &second_part, START);
    let other = chat("m", &[&text("cd")]);
    assert_eq!(destination(&mut fixture, CHAT, &other), address(3));
    let mut late = fixture.request(CHAT, &[]);
    late.proxy.now.set(START + Duration::from_secs(11));
    late.head(&mut fixture);
    late.body(&mut fixture, chat("m", &[&text("cde")]).as_bytes(), true);
    assert_eq!(late.destination(), Some(address(3).as_str()), "by what it was sent");
}

#[test]
fn an_endpoint_whose_events_are_broken_is_matched_by_what_it_was_sent() {
    let mut fixture = fixture();
    let body = chat("m", &[&text("ab")]);
    assert_eq!(destination(&mut fixture, CHAT, &body), address(2));
    let mut message = whole(1, blocks(1, key::root("m", None), &text("ab")));
    message.caches[1].complete = false;
    update(&fixture, &message, START);
    let mut request = fixture.request(CHAT, &[]);
    request.proxy.now.set(START + Duration::from_secs(5));
    request.head(&mut fixture);
    request.body(&mut fixture, body.as_bytes(), true);
    assert_eq!(
        request.destination(),
        Some(address(2).as_str()),
        "as much as the first one, with fewer requests"
    );
    message.caches[1].complete = true;
    update(&fixture, &message, START);
    let mut request = fixture.request(CHAT, &[]);
    request.proxy.now.set(START + Duration::from_secs(9));
    request.head(&mut fixture);
    request.body(&mut fixture, body.as_bytes(), true);
    assert_eq!(request.destination(), Some(address(1).as_str()));
}

#[test]
fn a_removed_block_and_an_unknown_endpoint_do_not_count() {
    let mut fixture = fixture();
    let root = key::root("m", None);
    let body = chat("m", &[&text("ab")]);
    update(&fixture, &whole(1, blocks(1, root, &text("ab"))), START);
    let of_first = blocks(1, root, &text("a"));
    let removed = Blocks { parents: vec![], lengths: vec![], tokens: vec![], ..of_first };
    let mut stored = blocks(3, root, &text("ab"));
    stored.endpoints = vec![99, 2];
    let next = CachedPrefixes {
        whole: false,
        models_changed: false,
        models: vec![],
        removed: Some(removed),
        ..whole(1, stored)
    };
    update(&fixture, &next, START);
    assert_eq!(destination(&mut fixture, CHAT, &body), address(2), "no endpoint has the first block");
}

#[test]
fn a_long_body_is_awaited_while_the_caches_are_known() {
    let body = chat("m", &[&text("abcdef")]);
    let mut fixture = fixture();
    let mut request = fixture.request(CHAT, &[]);
    request.head(&mut fixture);
    assert_eq!(
        request.body(&mut fixture, &body.as_bytes()[..1_100], false),
        Flow::Continue,
        "by its beginning"
    );

    let stored = blocks(1, key::root("m", None), &text("abcdef"));
    let mut message = whole(1, stored);
    message.models[0].chat_template.clear();
    update(&fixture, &message, START);
    let mut request = fixture.request(CHAT, &[]);
    request.head(&mut fixture);
    let flow = request.body(&mut fixture, &body.as_bytes()[..1_100], false);
    assert_eq!(flow, Flow::Continue, "no model's chats have texts");

    message.models[0].chat_template = "a template".to_owned();
    update(&fixture, &message, START);
    let mut request = fixture.request(CHAT, &[]);
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[..1_100], false), Flow::Hold);
    request.body(&mut fixture, &body.as_bytes()[1_100..], true);
    assert_eq!(request.destination(), Some(address(1).as_str()));

    let too_long = chat("m", &[&text(&"abcdef".repeat(4))]);
    let mut request = fixture.request(CHAT, &[]);
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, &too_long.as_bytes()[..1_100], false), Flow::Hold);
    assert_eq!(request.body(&mut fixture, &too_long.as_bytes()[1_100..5_000], false), Flow::Continue);
    assert!(request.destination().is_some(), "by what could be held");
    let length = too_long.len().to_string();
    let mut request = fixture.request(CHAT, &[("content-length", &length)]);
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, &too_long.as_bytes()[..1_100], false), Flow::Continue);
}
