//! Responses and conversations, whose prompts are JSON.

use endpoint_picker::request::body::Api;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{bytes, read_limited, text};

#[test]
fn a_responses_prompt_is_instructions_tools_and_input_in_this_order() {
    for (json, expected) in [
        (r#"{"input":"hi"}"#, r#"[{"input":"hi"}]"#),
        (
            r#"{"input":[{"role":"user","content":"hi"}],"tools":[{"type":"f"}],"instructions":"be brief"}"#,
            r#"[{"instructions":"be brief"},{"tools":[{"type":"f"}]},{"input":[{"content":"hi","role":"user"}]}]"#,
        ),
        (r#"{"tools":[],"instructions":null,"input":{}}"#, r#"[{"tools":[]},{"input":{}}]"#),
        (r#"{"tools":null,"input":"null"}"#, r#"[{"input":"null"}]"#),
    ] {
        assert_eq!(text(Api::Responses, json), expected, "{json}");
    }
}

#[test]
fn a_conversations_prompt_is_the_items_reduced_to_type_role_and_content() {
    for (items, expected) in [
        (
            r#"[{"content":"hi","role":"user","type":"message","id":"x"}]"#,
            r#"[{"type":"message","role":"user","content":"hi"}]"#,
        ),
        (
            r#"[{"content":[{"type":"t","text":"<"}]},{"role":"","content":""},null]"#,
            r#"[{"content":[{"text":"\u003c","type":"t"}]},{"content":""},{}]"#,
        ),
        (r#"[{"type":null,"content":null}]"#, "[{}]"),
    ] {
        assert_eq!(text(Api::Conversations, &format!(r#"{{"items":{items}}}"#)), expected);
    }
}

#[test]
fn beyond_the_limit_json_is_only_counted() {
    for (api, json) in [
        (
            Api::Responses,
            r#"{"instructions":{"b":"xyz","a":["uvw"]},"input":[{"role":"user","content":"hello"}]}"#,
        ),
        (
            Api::Conversations,
            r#"{"items":[{"type":"message","content":{"z":1,"a":"hello"}},{"role":"user"}]}"#,
        ),
    ] {
        let whole = text(api, json);
        for keep in 0..whole.len() {
            let body = read_limited(api, json, keep);
            assert_eq!(bytes(&body.prompt).concat(), &whole.as_bytes()[..keep], "{keep} bytes of {whole}");
            assert_eq!(body.prompt.token_count(), whole.len().div_ceil(4) as u64, "{keep}");
            assert!(body.prompt.is_cut());
        }
    }
}

#[test]
fn equal_keys_behind_the_limit_are_all_counted_and_the_kept_part_stays_the_same() {
    let json = r#"{"items":[{"content":["0123456789abcdef",{"k":"first, and longer","k":"last"}]}]}"#;
    let whole = text(Api::Conversations, json);
    assert_eq!(whole, r#"[{"content":["0123456789abcdef",{"k":"last"}]}]"#);
    let kept = 20;
    let cut = read_limited(Api::Conversations, json, kept);
    assert_eq!(bytes(&cut.prompt).concat(), &whole.as_bytes()[..kept]);
    let first = r#""k":"first, and longer","#.len();
    assert_eq!(cut.prompt.token_count(), (whole.len() + first).div_ceil(4) as u64);
}
