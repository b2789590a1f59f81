//! Bodies that the picker refuses: a clear response for each, and the next request is served.

use endpoint_picker_e2e::fixture::{
    CHAT, MESSAGES, TEXT, assert_a_good_request_works, faults, forget_requests, openai_error, request_counts,
};
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use reqwest::StatusCode;

const LEVELS: usize = 10_000;

/// A body that the picker refuses.
struct BadBody {
    /// Its mistake.
    case: &'static str,
    path: &'static str,
    body: Vec<u8>,
    /// A part of the message.
    message_part: &'static str,
}

fn bad(
    case: &'static str,
    path: &'static str,
    body: impl AsRef<[u8]>,
    message_part: &'static str,
) -> BadBody {
    BadBody { case, path, body: body.as_ref().to_vec(), message_part }
}

fn not_json() -> Vec<BadBody> {
    let utf16: Vec<u8> = r#"{"model":"m"}"#.encode_utf16().flat_map(u16::to_be_bytes).collect();
    vec![
        bad("text", CHAT, "good morning", "expected value"),
        bad("one byte", CHAT, "x", "expected value"),
        bad("an HTML form", TEXT, "model=m&prompt=hi", "expected value"),
        bad("half an object", CHAT, r#"{"model":"m","messages":[{"role""#, "EOF"),
        bad("two objects", CHAT, format!(r#"{{"model":"m",{MESSAGES}}}{{}}"#), "trailing characters"),
        bad("only blanks", TEXT, "  \n\t ", "EOF"),
        bad("zeros", TEXT, [0; 5000], "expected value"),
        bad("UTF-16", CHAT, utf16, "expected value"),
        bad(
            "a byte that is not UTF-8 in the prompt",
            TEXT,
            b"{\"model\":\"m\",\"prompt\":\"a\xffb\"}",
            "offset 24",
        ),
        bad("half a character in the model", CHAT, b"{\"model\":\"\xe2\x82\",\"messages\":[]}", "offset 10"),
        bad("only bytes that are not UTF-8", TEXT, [0xff; 70_000], "offset 0"),
    ]
}

fn not_an_object() -> Vec<BadBody> {
    vec![
        bad("a list", CHAT, r#"[{"model":"m"}]"#, "not an array"),
        bad("a string", CHAT, r#""model""#, "not a string"),
        bad("a number", TEXT, "7", "not a number"),
        bad("a boolean", TEXT, "true", "not a boolean"),
        bad("null", CHAT, "null", "messages field"),
        bad("an empty object", CHAT, "{}", "messages field"),
    ]
}

fn no_model() -> Vec<BadBody> {
    [
        ("no model", format!("{{{MESSAGES}}}")),
        ("an empty model", format!(r#"{{"model":"",{MESSAGES}}}"#)),
        ("a number as model", format!(r#"{{"model":5,{MESSAGES}}}"#)),
        ("a list as model", format!(r#"{{"model":["m"],{MESSAGES}}}"#)),
        ("an object as model", format!(r#"{{{MESSAGES},"model":{{"name":"m"}}}}"#)),
        ("null as model", format!(r#"{{"model":null,{MESSAGES}}}"#)),
    ]
    .map(|(case, body)| bad(case, CHAT, body, "model not found"))
    .into()
}

fn wrong_types() -> Vec<BadBody> {
    let chats = [
        ("no messages", ""),
        ("no message", r#","messages":[]"#),
        ("a string as messages", r#","messages":"hi""#),
        ("an object as messages", r#","messages":{"role":"user"}"#),
        ("a number as message", r#","messages":[5]"#),
        ("a number as content", r#","messages":[{"role":"user","content":5}]"#),
        ("a number as role", r#","messages":[{"role":5,"content":"hi"}]"#),
    ];
    let texts = [
        ("no prompt", ""),
        ("an empty prompt", r#","prompt":"""#),
        ("a number as prompt", r#","prompt":5"#),
        ("an object as prompt", r#","prompt":{"text":"hi"}"#),
        ("an empty list as prompt", r#","prompt":[]"#),
        ("a prompt of strings and numbers", r#","prompt":["a",1]"#),
    ];
    let chats =
        chats.map(|(case, rest)| bad(case, CHAT, format!(r#"{{"model":"m"{rest}}}"#), "messages field"));
    let texts =
        texts.map(|(case, rest)| bad(case, TEXT, format!(r#"{{"model":"m"{rest}}}"#), "prompt field"));
    chats.into_iter().chain(texts).collect()
}

fn nested() -> Vec<BadBody> {
    let lists = format!("{}{}", "[".repeat(LEVELS), "]".repeat(LEVELS));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(LEVELS), "}".repeat(LEVELS));
    let chat = |rest: String| format!(r#"{{"model":"m",{rest}}}"#);
    [
        ("nested lists", CHAT, lists.clone()),
        ("nested objects", CHAT, objects.clone()),
        ("lists that are never closed", CHAT, "[".repeat(LEVELS)),
        ("objects that are never closed", TEXT, r#"{"a":"#.repeat(LEVELS)),
        ("nested lists in an ignored field", CHAT, chat(format!(r#"{MESSAGES},"x":{lists}"#))),
        ("nested objects in an ignored field", TEXT, chat(format!(r#""x":{objects},"prompt":"hi""#))),
        ("nested lists as messages", CHAT, chat(format!(r#""messages":{lists}"#))),
        ("nested lists among messages", CHAT, chat(format!(r#""messages":[{{"role":"user"}},{lists}]"#))),
        (
            "nested objects as content",
            CHAT,
            chat(format!(r#""messages":[{{"role":"user","content":{objects}}}]"#)),
        ),
        ("nested lists as tools", CHAT, chat(format!(r#"{MESSAGES},"tools":{lists}"#))),
        ("nested lists as prompt", TEXT, chat(format!(r#""prompt":{lists}"#))),
        ("nested lists as model", TEXT, format!(r#"{{"model":{lists},"prompt":"hi"}}"#)),
    ]
    .map(|(case, path, body)| bad(case, path, body, "recursion limit"))
    .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_body_is_answered_400_in_the_shape_of_the_openai_api_and_reaches_no_server() {
    // By these rules, bodies that a server might read are refused too.
    let stack = Stack::builder().agent_flags(&["--epp-rules", "v0.10"]).start().await;
    let before = faults(&stack).await;
    for client in [client::http1(), client::h2c()] {
        for BadBody { case, path, body, message_part } in
            [not_json(), not_an_object(), no_model(), wrong_types(), nested()].into_iter().flatten()
        {
            let request = client.post(stack.url(path)).header("content-type", "application/json").body(body);
            let response = request.send().await.unwrap_or_else(|reason| panic!("{case}: {reason:?}"));
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{case}");
            assert_eq!(response.headers()["content-type"], "application/json", "{case}");
            let message = openai_error(response.status(), &response.text().await.unwrap());
            assert!(message.contains(message_part), "{case}: {message:?} does not contain {message_part:?}");
            assert!(message.len() < 300, "{case}: {} bytes of message", message.len());
        }
        assert_eq!(request_counts(&stack), [0, 0, 0]);
        assert_a_good_request_works(&stack, &client).await;
        forget_requests(&stack);
    }
    assert_eq!(faults(&stack).await, before);
}
