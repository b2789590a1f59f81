//! The fields of a body, read in the slow and obvious way.

use endpoint_picker::request::body::Api;
use serde_json::Value;
use xxhash_rust::xxh64::xxh64;

/// Model, stream, limit, and the bytes of each list; `None` if the body is refused.
pub(super) type PromptParts = Option<(Option<String>, bool, Option<u64>, Vec<Vec<u8>>)>;

pub(super) fn from_tree(api: Api, body: &Value) -> PromptParts {
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
            let audio = &block["input_audio"];
            let audio = format!("{}{}", string(audio, "data"), string(audio, "format"));
            let (asset, count) = match string(block, "type") {
                "text" => {
                    out.extend_from_slice(string(block, "text").as_bytes());
                    continue;
                }
                "image_url" => (string(&block["image_url"], "url"), 640 * 360 / 1024),
                "video_url" => (string(&block["video_url"], "url"), 20 * (640 * 360 / 1024)),
                "input_audio" | "audio_url" => (&*audio, audio.len().div_ceil(4).max(1)),
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
    if elements[0].is_array() {
        return elements.iter().map(|ids| id_bytes(ids.as_array()?)).collect();
    }
    Some(vec![id_bytes(elements)?])
}

fn id_bytes(ids: &[Value]) -> Option<Vec<u8>> {
    let id = |element: &Value| u32::try_from(whole(element)?).ok();
    let ids: Option<Vec<u32>> = ids.iter().map(id).collect();
    Some(ids?.iter().flat_map(|id| id.to_le_bytes()).collect())
}

/// The tree is sorted by key already and has only the last of equal keys.
fn go_json(value: &Value) -> String {
    match value {
        Value::Number(number) => match number.as_f64().unwrap() {
            1e-9 => "1e-9".to_owned(),
            1e30 => "1e+30".to_owned(),
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

pub(super) fn plain_hashes(list: &[u8], model: &str, salt: &str, block: usize) -> Vec<u64> {
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
