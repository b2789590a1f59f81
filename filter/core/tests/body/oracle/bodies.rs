//! Bodies in all the spellings a client may choose.

use core::fmt::Write;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// JSON as it is going to be spelled.
#[derive(Clone, Debug)]
pub(super) enum Json {
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
    pub(super) fn write(&self, blank: &str, out: &mut String) {
        match self {
            Self::Literal(text) => out.push_str(text),
            Self::Text { text, escaped: false } => out.push_str(&serde_json::to_string(text).unwrap()),
            Self::Text { text, escaped: true } => {
                out.push('"');
                for unit in text.encode_utf16() {
                    write!(out, "\\u{unit:04x}").unwrap();
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
            1 => field("data").prop_map(|audio| ("input_audio", audio)),
            1 => field("format").prop_map(|audio| ("input_audio", audio)),
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

pub(super) fn chat() -> impl Strategy<Value = Json> {
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
pub(super) fn given(name: &'static str) -> impl Strategy<Value = Json> {
    let ids = select(vec!["1", "2.0", "3e2", "4294967295", "0"]).prop_map(Json::Literal);
    let given = prop_oneof![
        3 => text(),
        2 => vec(text(), 0..4).prop_map(Json::Array),
        2 => vec(ids.clone(), 0..70).prop_map(Json::Array),
        1 => vec(vec(ids, 0..20).prop_map(Json::Array), 0..4).prop_map(Json::Array),
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
