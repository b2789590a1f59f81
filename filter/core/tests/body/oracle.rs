//! A slow and obvious second reading of bodies, over a tree and one buffer, must agree with the first.

use core::cell::Cell;

use endpoint_picker::body::Api;
use endpoint_picker::prompt::block_hashes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use xxhash_rust::xxh64::xxh64;

use crate::read;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// JSON as it is going to be spelled.
#[derive(Clone, Debug)]
enum Json {
    Literal(&'static str),
    Text {
        text: String,
        escaped: bool,
    },
    Array(Vec<Json>),
    /// Keys may repeat.
    Object(Vec<(String, Json)>),
}

impl Json {
    fn write(&self, blank: &str, out: &mut String) {
        match self {
            Self::Literal(text) => out.push_str(text),
            Self::Text { text, escaped: false } => out.push_str(&serde_json::to_string(text).unwrap()),
            Self::Text { text, escaped: true } => {
                out.push('"');
                for unit in text.encode_utf16() {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
                out.push('"');
            }
            Self::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at == 0 { blank } else { "," });
                    element.write(blank, out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    out.push_str(if at == 0 { blank } else { "," });
                    out.push_str(&serde_json::to_string(name).unwrap());
                    out.push_str(blank);
                    out.push(':');
                    value.write(blank, out);
                    out.push_str(blank);
                }
                out.push('}');
            }
        }
    }
}

fn text() -> impl Strategy<Value = Json> {
    let letter =
        select(vec!["a", "bc", "longer words here", "\n", "\"\\", "é", "\u{2028}", "<&>", "😀", "\u{1}"]);
    (vec(letter, 0..12), any::<bool>())
        .prop_map(|(letters, escaped)| Json::Text { text: letters.concat(), escaped })
}

fn literal() -> impl Strategy<Value = Json> {
    let literals =
        vec!["null", "true", "false", "0", "-0", "7", "-3", "2.5", "1e3", "4294967296", "1e-9", "1e30"];
    select(literals).prop_map(Json::Literal)
}

fn named(members: Vec<(&str, Json)>) -> Json {
    Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn object(member: impl Strategy<Value = (&'static str, Json)>, most: usize) -> impl Strategy<Value = Json> {
    vec(member, 0..most).prop_map(named)
}

/// Any JSON, with keys that repeat.
fn anything() -> impl Strategy<Value = Json> {
    prop_oneof![literal(), text()].prop_recursive(4, 24, 5, |inner| {
        let key = select(vec!["a", "b", "é", "", "model", "content", "<"]);
        prop_oneof![vec(inner.clone(), 0..5).prop_map(Json::Array), object((key, inner), 5)]
    })
}

fn block() -> impl Strategy<Value = Json> {
    let kind = select(vec!["text", "image_url", "video_url", "input_audio", "audio_url", "unheard_of"]);
    let kind = kind.prop_map(|kind| Json::Text { text: kind.to_owned(), escaped: false });
    let field = |name: &'static str| object(text().prop_map(move |text| (name, text)), 3);
    object(
        prop_oneof![
            3 => kind.prop_map(|kind| ("type", kind)),
            2 => text().prop_map(|text| ("text", text)),
            1 => field("url").prop_map(|image| ("image_url", image)),
            1 => field("url").prop_map(|video| ("video_url", video)),
            1 => field("data").prop_map(|sound| ("input_audio", sound)),
            1 => field("format").prop_map(|sound| ("input_audio", sound)),
            1 => anything().prop_map(|any| ("other", any)),
        ],
        6,
    )
}

fn message() -> impl Strategy<Value = Json> {
    object(
        prop_oneof![
            2 => text().prop_map(|role| ("role", role)),
            2 => text().prop_map(|content| ("content", content)),
            1 => Just(("content", Json::Literal("null"))),
            2 => vec(block(), 0..4).prop_map(|blocks| ("content", Json::Array(blocks))),
            1 => anything().prop_map(|any| ("name", any)),
        ],
        5,
    )
}

fn common() -> impl Strategy<Value = (&'static str, Json)> {
    prop_oneof![
        3 => text().prop_map(|model| ("model", model)),
        1 => anything().prop_map(|model| ("model", model)),
        2 => literal().prop_map(|stream| ("stream", stream)),
        2 => literal().prop_map(|limit| ("max_tokens", limit)),
        1 => anything().prop_map(|limit| ("max_completion_tokens", limit)),
        1 => text().prop_map(|salt| ("cache_salt", salt)),
        1 => anything().prop_map(|any| ("unknown", any)),
    ]
}

fn chat() -> impl Strategy<Value = Json> {
    object(
        prop_oneof![
            3 => vec(message(), 0..5).prop_map(|messages| ("messages", Json::Array(messages))),
            1 => vec(anything(), 0..3).prop_map(|tools| ("tools", Json::Array(tools))),
            3 => common(),
        ],
        8,
    )
}

/// A required field of any type.
fn given(name: &'static str) -> impl Strategy<Value = Json> {
    let ids = select(vec!["1", "2.0", "3e2", "4294967295", "0"]).prop_map(Json::Literal);
    let given = prop_oneof![
        3 => text(),
        2 => vec(text(), 0..4).prop_map(Json::Array),
        2 => vec(ids, 0..70).prop_map(Json::Array),
        1 => anything(),
    ];
    (vec(common(), 0..6), option::weighted(0.9, given), 0..7_usize).prop_map(
        move |(mut members, given, at)| {
            if let Some(given) = given {
                members.insert(at.min(members.len()), (name, given));
            }
            named(members)
        },
    )
}

/// What the tree says: model, stream, limit, and the bytes of each list; nothing if the body is refused.
type Said = Option<(Option<String>, bool, Option<u64>, Vec<Vec<u8>>)>;

fn from_tree(api: Api, body: &Value) -> Said {
    let lists = match api {
        Api::Chat => vec![chat_bytes(body)?],
        Api::Completions => completions_bytes(&body["prompt"])?,
        _ => vec![format!(r#"[{{"input":{}}}]"#, go_json(&body["input"])).into_bytes()],
    };
    if api == Api::Responses && body["input"].is_null() {
        return None;
    }
    let model = body["model"].as_str().filter(|model| !model.is_empty()).map(str::to_owned);
    let limits: &[&str] = match api {
        Api::Chat => &["max_completion_tokens", "max_tokens"],
        Api::Completions => &["max_tokens"],
        _ => &["max_output_tokens"],
    };
    let limit = limits.iter().find_map(|name| whole(&body[*name]));
    Some((model, body["stream"] == true, limit, lists))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and not negative")]
fn whole(value: &Value) -> Option<u64> {
    let number = value.as_f64()?;
    (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}

fn string<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn chat_bytes(body: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let tools = &body["tools"];
    if tools.as_array().is_some_and(|tools| !tools.is_empty()) {
        out.extend_from_slice(go_json(tools).as_bytes());
    }
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty())?;
    for message in messages {
        out.extend_from_slice(string(message, "role").as_bytes());
        out.extend_from_slice(string(message, "content").as_bytes());
        for block in message["content"].as_array().unwrap_or(&Vec::new()) {
            let sound = &block["input_audio"];
            let sound = format!("{}{}", string(sound, "data"), string(sound, "format"));
            let (asset, count) = match string(block, "type") {
                "text" => {
                    out.extend_from_slice(string(block, "text").as_bytes());
                    continue;
                }
                "image_url" => (string(&block["image_url"], "url"), 640 * 360 / 1024),
                "video_url" => (string(&block["video_url"], "url"), 20 * (640 * 360 / 1024)),
                "input_audio" | "audio_url" => (&*sound, sound.len().div_ceil(4).max(1)),
                _ => continue,
            };
            out.resize(out.len().next_multiple_of(4), 0);
            for _ in 0..count {
                out.extend_from_slice(&xxh64(asset.as_bytes(), 0).to_le_bytes()[..4]);
            }
        }
    }
    Some(out)
}

fn completions_bytes(prompt: &Value) -> Option<Vec<Vec<u8>>> {
    if let Some(text) = prompt.as_str() {
        return (!text.is_empty()).then(|| vec![text.as_bytes().to_vec()]);
    }
    let elements = prompt.as_array().filter(|elements| !elements.is_empty())?;
    if elements[0].is_string() {
        return elements.iter().map(|text| Some(text.as_str()?.as_bytes().to_vec())).collect();
    }
    let id = |element: &Value| u32::try_from(whole(element)?).ok();
    let ids: Option<Vec<u32>> = elements.iter().map(id).collect();
    Some(vec![ids?.iter().flat_map(|id| id.to_le_bytes()).collect()])
}

/// The tree is sorted by key already and has only the last of equal keys.
fn go_json(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64().unwrap() {
            number if number == 1e-9 => "1e-9".to_owned(),
            number if number == 1e30 => "1e+30".to_owned(),
            number => number.to_string(),
        },
        Value::String(text) => serde_json::to_string(text)
            .unwrap()
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026")
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029"),
        Value::Array(elements) => format!("[{}]", elements.iter().map(go_json).collect::<Vec<_>>().join(",")),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| {
                format!("{}:{}", go_json(&Value::String(name.clone())), go_json(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

fn plain_hashes(list: &[u8], model: &str, salt: &str, block: usize) -> Vec<u64> {
    let mut previous = xxh64(format!("{model}{salt}").as_bytes(), 0);
    let mut padded = list.to_vec();
    padded.resize(list.len().next_multiple_of(4), 0);
    let mut link = |block: &[u8]| {
        let link = [xxh64(block, 0).to_le_bytes(), previous.to_le_bytes()].concat();
        previous = xxh64(&link, 0);
        previous
    };
    padded.chunks(block * 4).map(&mut link).collect()
}

const SEED: u64 = 0x5eed_b0d1;

fn agree(api: Api, bodies: impl Strategy<Value = Json>) {
    let seed = option_env!("PROPERTY_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(Config::with_cases(600), rng);
    let accepted = Cell::new(0);
    let refused = Cell::new(0);
    let inputs = (bodies, select(vec!["", " ", "\r\n\t"]), 1..9_usize);
    let run = runner.run(&inputs, |(body, blank, block)| {
        let mut json = String::new();
        body.write(blank, &mut json);
        let tree: Value = serde_json::from_str(&json).unwrap();
        let Some((model, stream, limit, lists)) = from_tree(api, &tree) else {
            prop_assert!(read(api, &json).is_err(), "{json} should be refused");
            refused.set(refused.get() + 1);
            return Ok(());
        };
        let body = read(api, &json).map_err(|error| TestCaseError::fail(format!("{json}: {error}")))?;
        prop_assert_eq!(body.model.as_deref(), model.as_deref());
        prop_assert_eq!(body.stream, stream);
        prop_assert_eq!(body.max_output_tokens, limit);
        let salt = tree["cache_salt"].as_str().unwrap_or_default();
        prop_assert_eq!(body.cache_salt.as_deref().unwrap_or_default(), salt);
        if let Some(span) = body.model_span {
            prop_assert_eq!(&serde_json::from_str::<Value>(&json[span]).unwrap(), &tree["model"]);
        } else {
            prop_assert!(tree.get("model").is_none());
        }
        let tokens: usize = lists.iter().map(|list| list.len().div_ceil(4)).sum();
        prop_assert_eq!(body.prompt.token_count(), tokens as u64);
        let hashes: Vec<Vec<u64>> = lists
            .iter()
            .map(|list| plain_hashes(list, "m", salt, block))
            .filter(|list| !list.is_empty())
            .collect();
        let found = block_hashes(&body.prompt, "m", body.cache_salt.as_deref(), block, usize::MAX);
        prop_assert_eq!(found.lists().map(<[u64]>::to_vec).collect::<Vec<_>>(), hashes, "{}", json);
        accepted.set(accepted.get() + 1);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    // Neither side may have been tested with next to nothing.
    assert!(accepted.get() > 150 && refused.get() > 20, "seed {seed}: {accepted:?} {refused:?}");
}

#[test]
fn chat_bodies_are_read_as_the_tree_says() {
    agree(Api::Chat, chat());
}

#[test]
fn completions_bodies_are_read_as_the_tree_says() {
    agree(Api::Completions, given("prompt"));
}

#[test]
fn responses_bodies_are_read_as_the_tree_says() {
    agree(Api::Responses, given("input"));
}
