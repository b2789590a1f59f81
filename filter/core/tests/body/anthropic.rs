//! Anthropic messages.

use endpoint_picker::request::body::Api;
use endpoint_picker::request::prompt::Piece;
use xxhash_rust::xxh64::xxh64;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{read, text};

#[test]
fn the_prompt_is_tools_then_system_then_roles_and_contents() {
    for (json, expected) in [
        (
            r#"{"messages":[{"role":"user","content":"hi"}],"system":"be brief","tools":[{"name":"f"}]}"#,
            r#"[{"name":"f"}]be briefuserhi"#,
        ),
        (
            r#"{"messages":[{}],"system":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}"#,
            "ab",
        ),
        (
            r#"{"messages":[{"content":[{"type":"text","text":"a"},{"type":"thinking","thinking":"b","signature":"s"},{"type":"redacted_thinking","data":"c"}]}]}"#,
            "ab",
        ),
        (
            r#"{"messages":[{"content":[{"type":"tool_use","input":{ "b" : 1.0, "a":"<" },"name":"f","id":"t1"}]}]}"#,
            r#"t1f{ "b" : 1.0, "a":"<" }"#,
        ),
        (r#"{"messages":[{"content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]}]}"#, "ok"),
        (
            r#"{"messages":[{"content":[{"type":"tool_result","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"thinking","thinking":"x"},{"type":"text","text":"b"}]}]}]}"#,
            "a\n\nb",
        ),
    ] {
        assert_eq!(text(Api::Messages, json), expected, "{json}");
    }
}

#[test]
fn a_billing_header_is_not_part_of_the_system_text() {
    let json = r#"{"messages":[{}],"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"a"}]}"#;
    assert_eq!(text(Api::Messages, json), "a");
    let json = r#"{"messages":[{}],"system":"x-anthropic-billing-header: 1"}"#;
    assert_eq!(text(Api::Messages, json), "x-anthropic-billing-header: 1");
}

#[test]
fn tools_are_their_known_fields_with_the_schema_as_it_was_written() {
    for (tools, expected) in [
        (
            r#"[{"input_schema": { "b" : 1.0, "a\u003c" : "x < y \" > \\" , "u":"\u2028 z" }, "name":"n","strict":null,"type":"custom"}]"#,
            r#"[{"name":"n","input_schema":{"b":1.0,"a\u003c":"x \u003c y \" \u003e \\","u":"\u2028 z"}}]"#,
        ),
        (
            r#"[{"description":"d<","name":"n","defer_loading":false,"strict":true},{"description":""}]"#,
            r#"[{"name":"n","description":"d\u003c","strict":true,"defer_loading":false},{"name":""}]"#,
        ),
        (r#"[{"name":"n","input_schema":null}]"#, r#"[{"name":"n","input_schema":null}]"#),
        ("[]", ""),
        ("null", ""),
    ] {
        assert_eq!(text(Api::Messages, &format!(r#"{{"messages":[{{}}],"tools":{tools}}}"#)), expected);
    }
}

fn pieces(content: &str) -> Vec<Piece<'static>> {
    let json = format!(r#"{{"messages":[{{"role":"user","content":{content}}}]}}"#);
    let body = read(Api::Messages, &json).unwrap();
    let list = &body.prompt.lists()[0].pieces;
    let owned = |piece: &Piece<'_>| match piece {
        Piece::Text(text) => Piece::Text(text.to_vec().into()),
        Piece::Media { token, count } => Piece::Media { token: *token, count: *count },
        Piece::Ids(ids) => Piece::Ids(ids.clone()),
    };
    list.iter().map(owned).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
fn image(id: &str, count: u64) -> Piece<'static> {
    Piece::Media { token: xxh64(id.as_bytes(), 0) as u32, count }
}

fn words(text: &str) -> Piece<'static> {
    Piece::Text(text.as_bytes().to_vec().into())
}

/// The header of a GIF of 64 × 64 pixels.
const GIF: &str = "R0lGODlhQABAAA==";

#[test]
fn images_of_messages_are_identified_by_url_or_data() {
    for (source, expected) in [
        (r#"{"type":"url","url":"http://x/y.png"}"#.to_owned(), vec![image("http://x/y.png", 225)]),
        (format!(r#"{{"type":"base64","media_type":"image/gif","data":"{GIF}"}}"#), vec![image(GIF, 4)]),
        (r#"{"type":"base64","data":""}"#.to_owned(), vec![]),
        ("null".to_owned(), vec![]),
    ] {
        let content = format!(r#"[{{"type":"image","source":{source}}}]"#);
        assert_eq!(pieces(&content), [vec![words("user")], expected].concat(), "{source}");
    }
}

#[test]
fn images_of_tool_results_come_after_the_texts_and_are_identified_by_their_data_url() {
    let content = format!(
        r#"[{{"type":"tool_result","content":[
            {{"type":"image","source":{{"type":"base64","media_type":"image/gif","data":"{GIF}"}}}},
            {{"type":"text","text":"a"}},
            {{"type":"image","source":{{"type":"base64","data":"{GIF}"}}}},
            {{"type":"image","source":{{"type":"base64","media_type":"text/plain","data":"{GIF}"}}}},
            {{"type":"image","source":{{"type":"url","data":"{GIF}"}}}},
            {{"type":"text","text":"b"}}]}},
          {{"type":"text","text":"c"}}]"#
    );
    let expected = [
        words("usera\nb"),
        image(&format!("data:image/gif;base64,{GIF}"), 4),
        image(&format!("data:image/jpeg;base64,{GIF}"), 4),
        image(&format!("data:text/plain;base64,{GIF}"), 225),
        words("c"),
    ];
    assert_eq!(pieces(&content), expected);
}
