//! Memory that it takes, in addition to the body, to read bodies that are made to take much of it.

#![cfg(not(target_family = "wasm"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::fmt::Write;
use std::sync::Mutex;

use endpoint_picker::request::body::{Api, Body, Options, complete};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// About how long the bodies are.
const LENGTH: usize = 4 << 20;

/// The memory that a body may take in addition to its bytes: 16 times the 512 KiB that are kept of a prompt
/// by default, because the members of an object take several times the kept part, and a list of them.
const KEPT: usize = 8 << 20;

fn repeated(api: Api, before: &str, part: &str, after: &str) -> (Api, String) {
    (api, before.to_owned() + &part.repeat(LENGTH / part.len()) + after)
}

/// An object of many short members, its keys as `key` makes them of a counter.
fn members(api: Api, before: &str, key: impl Fn(usize) -> usize, after: &str) -> (Api, String) {
    let mut json = before.to_owned();
    let mut count = 0;
    while json.len() < LENGTH {
        write!(json, r#""{:x}":1,"#, key(count)).unwrap();
        count += 1;
    }
    (api, json + after)
}

fn shapes() -> Vec<(&'static str, (Api, String))> {
    let tools = r#"{"messages":[{}],"tools":[{"#;
    let end = r#""z":1}]}"#;
    let scattered = |count: usize| count.wrapping_mul(0x9e37_79b1) & 0xff_ffff;
    let text = r#"{"type":"text","text":"a"},"#;
    let image = r#"{"type":"image_url","image_url":{"url":"a"}},"#;
    let wide = format!(r#"{{"b":{{"c":1,"a":[{}1]}},"a":1}},"#, "2,".repeat(50));
    let deep = r#"{"b":"#.repeat(60) + "1" + &r#","a":1}"#.repeat(60) + ",";
    let levels = (0..60).fold("1".to_owned(), |inner, _| {
        let many = r#""<<<<<<<<<<<<<<<<<<<<<<<<":1,"#.repeat(LENGTH / 60 / 29);
        format!(r#"{{{many}"b":{inner},"a":1}}"#)
    });
    vec![
        ("keys nobody reads", members(Api::Chat, r#"{"messages":[{}],"x":{"#, |n| n, r#""z":1}}"#)),
        ("top-level keys", members(Api::Chat, r#"{"messages":[{}],"#, |n| n, r#""z":1}"#)),
        ("keys of a tool in order", members(Api::Chat, tools, |n| n + (1 << 24), end)),
        ("keys of a tool in reverse", members(Api::Chat, tools, |n| usize::MAX - n, end)),
        ("keys of a tool in no order", members(Api::Chat, tools, scattered, end)),
        ("equal keys of a tool", members(Api::Chat, tools, |n| n & 1, end)),
        ("escaped keys of a tool", repeated(Api::Chat, tools, r#""\n":1,"#, end)),
        ("small tools", repeated(Api::Chat, r#"{"messages":[{}],"tools":["#, r#"{"b":1,"a":{}},"#, "{}]}")),
        ("wide tools", repeated(Api::Chat, r#"{"messages":[{}],"tools":["#, &wide, "{}]}")),
        ("deep tools", repeated(Api::Chat, r#"{"messages":[{}],"tools":["#, &deep, "{}]}")),
        ("many keys at every level", (Api::Chat, format!(r#"{{"messages":[{{}}],"tools":[{levels}]}}"#))),
        ("messages with a role", repeated(Api::Chat, r#"{"messages":["#, r#"{"role":"u"},"#, "{}]}")),
        ("empty messages", repeated(Api::Chat, r#"{"messages":["#, "{},", "{}]}")),
        ("blocks of text", repeated(Api::Chat, r#"{"messages":[{"content":["#, text, "{}]}]}")),
        ("images", repeated(Api::Chat, r#"{"messages":[{"content":["#, image, "{}]}]}")),
        ("prompts", repeated(Api::Completions, r#"{"prompt":["#, r#""a","#, r#""a"]}"#)),
        ("empty prompts", repeated(Api::Completions, r#"{"prompt":["#, r#""","#, r#""a"]}"#)),
        ("token ids", repeated(Api::Completions, r#"{"prompt":["#, "1,", "1]}")),
        ("lists of token ids", repeated(Api::Completions, r#"{"prompt":["#, "[1],", "[1]]}")),
        ("inputs", repeated(Api::Embeddings, r#"{"input":["#, r#""a","#, r#""a"]}"#)),
        ("numbers of an input", repeated(Api::Responses, r#"{"input":["#, "1,", "1]}")),
        ("keys of an input", members(Api::Responses, r#"{"input":{"#, scattered, r#""z":1}}"#)),
        ("items", repeated(Api::Conversations, r#"{"items":["#, r#"{"role":"u"},"#, "{}]}")),
        ("Anthropic messages", repeated(Api::Messages, r#"{"messages":["#, r#"{"role":"u"},"#, "{}]}")),
        ("Anthropic tools", repeated(Api::Messages, r#"{"messages":[{}],"tools":["#, "{},", "{}]}")),
        ("Anthropic blocks", repeated(Api::Messages, r#"{"messages":[{"content":["#, text, "{}]}]}")),
        ("vLLM's token ids", repeated(Api::Generate, r#"{"token_ids":["#, "1,", "1]}")),
        ("SGLang's token ids", repeated(Api::SglangGenerate, r#"{"input_ids":["#, "1,", "1]}")),
        ("a prompt of one string", repeated(Api::Completions, r#"{"prompt":""#, "The quick ", r#""}"#)),
        ("escapes in a prompt", repeated(Api::Completions, r#"{"prompt":""#, r"\n", r#""}"#)),
        ("some escapes in a prompt", repeated(Api::Completions, r#"{"prompt":""#, r"The quick\n", r#""}"#)),
        (
            "escapes in a prompt, of halves of pairs",
            repeated(Api::Completions, r#"{"prompt":""#, r"\ud83d", r#""}"#),
        ),
        ("escapes in a key", repeated(Api::Completions, r#"{"prompt":"a",""#, r"\n", r#"":1}"#)),
        (
            "escapes in a URL",
            repeated(
                Api::Chat,
                r#"{"messages":[{"content":[{"type":"image_url","image_url":{"url":""#,
                r"abcdefgh\/",
                r#""}}]}]}"#,
            ),
        ),
    ]
}

/// The allocator counts for all tests, so one runs at a time.
static TURN: Mutex<()> = Mutex::new(());

/// The maximum number of bytes in use during `work`, without the bytes in use before it.
fn peak(work: impl FnOnce()) -> usize {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    work();
    MEMORY.peak_usage() - before
}

#[test]
fn reading_takes_no_more_than_is_kept_however_long_the_body() {
    let _turn = TURN.lock().unwrap();
    let mut wrong = String::new();
    for (name, (api, json)) in shapes() {
        let peak = peak(|| {
            Body::read(&json, api, &Options::default()).unwrap();
        });
        // serde_json puts a string with escapes together in a buffer that doubles.
        let allowed = if name.contains("escapes in") { 2 * json.len() + KEPT } else { KEPT };
        if peak > allowed {
            writeln!(wrong, "{name}: {peak} bytes for {}, {allowed} are allowed", json.len()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn the_beginning_of_a_body_is_completed_in_its_place() {
    let _turn = TURN.lock().unwrap();
    let mut text = br#"{"model":"m","messages":[{"content":""#.to_vec();
    text.resize(LENGTH, b'a');
    text.shrink_to_fit();
    let taken = peak(|| drop(complete(text, Api::Chat, &Options::default())));
    // The allocator of this test copies a text when it grows by the few bytes that close it.
    assert!(taken <= LENGTH + 1_024, "{taken} bytes for {LENGTH}");
}
