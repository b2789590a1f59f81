//! Answers made up by chance, and cut by chance.

use endpoint_picker::response::usage::Usage;
use proptest::prelude::*;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{EVENTS, JSON, of, of_pieces};

/// The usage of a response that is JSON, read from a tree.
fn by_tree(texts: &[Value]) -> Usage {
    let mut found = Usage::default();
    for usage in
        texts.iter().flat_map(|text| [&text["usage"], &text["response"]["usage"], &text["message"]["usage"]])
    {
        let number = |value: &Value| value.as_u64();
        let either = |one: &str, other: &str| number(&usage[one]).or(number(&usage[other])).unwrap_or(0);
        let (input, output) =
            (either("prompt_tokens", "input_tokens"), either("completion_tokens", "output_tokens"));
        found.input = if input > 0 { input } else { found.input };
        found.output = if output > 0 { output } else { found.output };
        let cached = number(&usage["cache_read_input_tokens"]);
        let apart = cached.filter(|&cached| cached > 0 && number(&usage["prompt_tokens"]).is_none());
        found.beyond_input = apart.unwrap_or(found.beyond_input);
        found.cached = cached.filter(|&cached| cached > 0).or(found.cached).or(cached);
    }
    found.total = found.input + found.output;
    found
}

/// At most `most` of these words, in any order.
fn words(of: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(of), 0..=most).prop_map(|words| words.concat())
}

/// Usage, or something else in its place.
fn some_usage() -> impl Strategy<Value = Value> {
    let count = || prop_oneof![Just(json!(null)), (0..100_u64).prop_map(Value::from), Just(json!("x"))];
    let fields = (any::<bool>(), count(), count(), count(), words(&["\\", "\"", "{", "}", "a"], 4)).prop_map(
        |(is_chat, input, output, cached, text)| {
            let names = if is_chat {
                ["prompt_tokens", "completion_tokens"]
            } else {
                ["input_tokens", "output_tokens"]
            };
            json!({"a": {"b": [text]}, names[0]: input, names[1]: output, "cache_read_input_tokens": cached})
        },
    );
    prop_oneof![4 => fields, 1 => Just(json!(null)), 1 => Just(json!("usage")), 1 => Just(json!([{"usage": 1}]))]
}

/// An object with usage in places that count, and in others.
fn text() -> impl Strategy<Value = Value> {
    let place = prop_oneof![Just(""), Just("response"), Just("message"), Just("delta"), Just("usage")];
    (
        words(&["\\", "\"", "{", "}", ":", "[", "]", "u", "usage", "é", "\n"], 6),
        place,
        some_usage(),
        some_usage(),
    )
        .prop_map(|(word, place, one, other)| {
            if place.is_empty() {
                json!({"0": word, "usage": one, "z": [other]})
            } else {
                json!({"0": [word], place: {"a": word, "b": {"usage": other}, "usage": one}})
            }
        })
}

/// The response in chunks of these lengths, over and over.
fn pieces<'a>(mut answer: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &length in lengths.iter().cycle() {
        let (piece, rest) = answer.split_at(length.min(answer.len()));
        pieces.push(piece);
        answer = rest;
        if answer.is_empty() {
            break;
        }
    }
    pieces
}

proptest! {
    #[test]
    fn answers_have_the_usage_of_their_trees_however_they_are_cut(
        texts in proptest::collection::vec(text(), 1..5),
        is_pretty in any::<bool>(),
        lengths in proptest::collection::vec(1..40_usize, 1..6),
    ) {
        let events: String =
            texts.iter().map(|text| format!("event: usage\ndata: {text}\n\n")).chain(["data: [DONE]\n\n".into()]).collect();
        prop_assert_eq!(of_pieces(EVENTS, pieces(events.as_bytes(), &lengths)), by_tree(&texts), "{}", events);

        let write = if is_pretty { serde_json::to_string_pretty } else { serde_json::to_string };
        let plain = write(&texts[0]).unwrap();
        prop_assert_eq!(of_pieces(JSON, pieces(plain.as_bytes(), &lengths)), by_tree(&texts[..1]), "{}", plain);
    }

    #[test]
    fn garbage_gives_the_same_usage_however_it_is_cut(
        answer in words(
            &[
                "{", "}", "[", "]", ":", ",", "\"", "\\", " ", "1", "x", "\n", "data: ", "\"usage\":{", "\"response\":{",
                "\"prompt_tokens\":7", "data: {\"usage\":{\"prompt_tokens\":7}}\n", "{\"usage\":{\"prompt_tokens\":8}}",
            ],
            40,
        ),
        lengths in proptest::collection::vec(1..20_usize, 1..6),
    ) {
        for content_type in [JSON, EVENTS] {
            let cut = of_pieces(content_type, pieces(answer.as_bytes(), &lengths));
            prop_assert_eq!(cut, of(content_type, &answer), "{} {:?}", content_type, answer);
        }
    }
}
