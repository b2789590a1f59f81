//! Bodies of every API that has a prompt, with what prompts are made of: each of few bodies comes again and
//! again, so that a picker that takes one apart differently from the other does not find it again.

use crate::parity::case::Request;
use crate::parity::draw::Draw;

/// A image of 1024 by 512 pixels, as far as its header goes.
const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAABAAAAAIACAYAAAAczR65";

/// Bodies with `TEXT` where a text of a few hundred bytes goes.
const BODIES: [(&str, &str); 24] = [
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"TEXT"},{"type":"image_url","image_url":{"url":"https://example.org/a.png"}},{"type":"text","text":"and"}]}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,IMAGE"}},{"type":"text","text":"TEXT"}]}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"video_url","video_url":{"url":"https://example.org/a.mp4"}},{"type":"text","text":"TEXT"}]}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAABBBBCCCC","format":"wav"}},{"type":"text","text":"TEXT"}]}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":"TEXT \u00e9 \ud83d\ude00 \u2028 \/ \t <&>"}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":"TEXT"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"17"}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","tools":[{"type":"function","function":{"name":"f","description":"a < b & \u2028 é","parameters":{"z":1e3,"y":1.0,"x":12345678901234567890,"w":0.1,"v":-0,"u":1e-7,"t":[],"s":{},"r":null}}}],"messages":[{"role":"user","content":"TEXT"}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","tools":[],"messages":[{"role":"system","content":"s"},{"role":"user","content":"TEXT","name":"n"}]}"#,
    ),
    (TEXT, r#"{"model":"m","prompt":["TEXT","","TEXT more"]}"#),
    (TEXT, r#"{"model":"m","prompt":"TEXT","suffix":"end"}"#),
    (
        ANTHROPIC,
        r#"{"model":"m","max_tokens":5,"system":"TEXT","messages":[{"role":"user","content":"hello"}]}"#,
    ),
    (
        ANTHROPIC,
        r#"{"model":"m","max_tokens":5,"system":[{"type":"text","text":"one"},{"type":"text","text":"TEXT","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}]}"#,
    ),
    (
        ANTHROPIC,
        r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"TEXT"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"well"},{"type":"tool_use","id":"t1","name":"look","input":{"b":1,"a":"<x>"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"found"},{"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"more"}]}]}]}"#,
    ),
    (
        ANTHROPIC,
        r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"IMAGE"}},{"type":"text","text":"TEXT"}]}]}"#,
    ),
    (
        ANTHROPIC,
        r#"{"model":"m","max_tokens":5,"tools":[{"name":"look","description":"d","input_schema":{"type":"object","properties":{"q":{"type":"string"}}}}],"messages":[{"role":"user","content":"TEXT"}]}"#,
    ),
    (RESPONSES, r#"{"model":"m","input":"TEXT"}"#),
    (
        RESPONSES,
        r#"{"model":"m","instructions":"be <kind>","input":[{"role":"user","content":[{"type":"input_text","text":"TEXT"}]}],"tools":[{"type":"function","name":"f","parameters":{"b":2.50,"a":true}}]}"#,
    ),
    (
        CONVERSATIONS,
        r#"{"model":"m","items":[{"type":"message","role":"user","content":[{"type":"input_text","text":"TEXT"}]}]}"#,
    ),
    (EMBEDDINGS, r#"{"model":"m","input":"TEXT"}"#),
    (EMBEDDINGS, r#"{"model":"m","input":["TEXT","<b>"]}"#),
    (EMBEDDINGS, r#"{"model":"m","input":[1,2,3,4,5,6,7,8]}"#),
    (TEXT, r#"{"model":"m","prompt":[1.0,2e3,4294967295,0]}"#),
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"TEXT"},{"type":"refusal","refusal":"no"},{"type":"text"}]}]}"#,
    ),
    (GENERATE, r#"{"model":"m","token_ids":[5,6,7,8,9,10]}"#),
];

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const ANTHROPIC: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const CONVERSATIONS: &str = "/v1/conversations";
const EMBEDDINGS: &str = "/v1/embeddings";
const GENERATE: &str = "/inference/v1/generate";

impl Draw {
    /// The `number`-th request of this kind; after all bodies have come, they come again.
    pub(crate) fn any_api(number: usize) -> Request {
        let (path, body) = BODIES[number % BODIES.len()];
        let text = "One text that every API has to find again, whatever stands around it. ".repeat(5);
        let body = body.replace("IMAGE", IMAGE).replace("TEXT", &text);
        Request { path: path.to_owned(), body: Some(body), ..Request::default() }
    }
}
