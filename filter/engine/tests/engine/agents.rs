//! Streams of agents, cut at each of their events.

use std::collections::BTreeMap;

use endpoint_picker_engine::budget::{Budget, KeptBytes};
use endpoint_picker_engine::resume::{Cut, End, ResumableRequest, Resumption, StreamApi};
use endpoint_picker_model_server::agent;
use serde_json::{Value, json};

/// Turns of each shape.
const TURNS: usize = 2;

/// A stream is cut at each ninth event.
const STEP: usize = 9;

/// A request of an agent.
struct Sent {
    client: &'static str,
    api: StreamApi,
    path: &'static str,
    body: Value,
}

/// The requests of agents as their clients send them, shortened.
fn trace() -> Vec<Sent> {
    let names = ["Bash", "Read", "Edit"];
    let functions: Vec<Value> = names
        .iter()
        .map(|name| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}))
        .collect();
    (0..TURNS)
        .flat_map(|turn| {
            let ask = format!("turn {turn}");
            let of = |client, api, path, body| Sent { client, api, path, body };
            let claude = json!({
                "model": "m", "max_tokens": 32000, "stream": true, "temperature": 1,
                "thinking": {"type": "enabled", "budget_tokens": 31999},
                "system": [{"type": "text", "text": "You are.", "cache_control": {"type": "ephemeral"}}],
                "messages": [{"role": "user", "content": [{"type": "text", "text": ask}]}],
                "tools": names.map(|name| json!({"name": name, "input_schema": {"type": "object"}})),
                "metadata": {"user_id": "user_1_account__session_2"},
            });
            let codex = json!({
                "model": "m", "instructions": "You are.", "stream": true, "store": false,
                "input": [{"role": "user", "content": [{"type": "input_text", "text": ask}]}],
                "tools": [{"type": "function", "name": "shell", "strict": false, "parameters": {}},
                    {"type": "custom", "name": "apply_patch"}],
                "tool_choice": "auto", "parallel_tool_calls": false, "prompt_cache_key": "1",
                "reasoning": {"effort": "medium", "summary": "auto"},
                "include": ["reasoning.encrypted_content"],
            });
            let opencode = json!({
                "model": "m", "max_tokens": 32000, "stream": true, "stream_options": {"include_usage": true},
                "messages": [{"role": "system", "content": "You are."}, {"role": "user", "content": ask}],
                "tools": functions, "tool_choice": "auto",
            });
            let mut reasons = opencode.clone();
            reasons["reasoning_effort"] = "high".into();
            let mut exact = opencode.clone();
            exact["temperature"] = 0.into();
            let mut structured = exact.clone();
            structured["response_format"] = json!({"type": "json_schema", "json_schema": {"schema": {}}});
            let (chat, path) = (StreamApi::Chat, "/v1/chat/completions");
            [
                of("Claude Code", StreamApi::Messages, "/v1/messages", claude.clone()),
                of("Claude Code", StreamApi::Messages, "/v1/messages", claude),
                of("Codex", StreamApi::Responses, "/v1/responses", codex.clone()),
                of("Codex", StreamApi::Responses, "/v1/responses", codex),
                of("opencode", chat, path, opencode),
                of("opencode", chat, path, reasons),
                of("opencode", chat, path, exact),
                of("opencode", chat, path, structured),
            ]
        })
        .collect()
}

/// The events of a server, which reads seeds or ignores them.
fn served(sent: &Sent, body: &Value, server: &str, reads_seeds: bool) -> Vec<String> {
    let mut body = body.clone();
    if !reads_seeds {
        body.as_object_mut().unwrap().remove("seed");
    }
    agent::events(sent.path, &body, server).0
}

fn begin(sent: &Sent) -> (Resumption, Value) {
    let body = sent.body.to_string().into_bytes();
    let mut kept = KeptBytes::new(&Budget::new(1 << 20, 1 << 20));
    let mut request = ResumableRequest::read(sent.api, body).unwrap();
    if request.needs_seed() {
        request.set_seed(7);
    }
    assert!(kept.grow(request.body().len()));
    let mut stream = Resumption::new(request, kept, 2);
    let body = serde_json::from_slice(stream.body()).unwrap();
    stream.head(b"200", b"text/event-stream", false).unwrap();
    (stream, body)
}

/// The client's bytes after a cut at this byte, and the body of the continuation if there was one.
fn cut_at(sent: &Sent, first: &str, at: usize, reads_seeds: bool) -> Result<(String, Option<Value>), Cut> {
    let (mut stream, _) = begin(sent);
    let mut client = stream.chunk(&first.as_bytes()[..at]).into_owned();
    let mut continuation = None;
    match stream.end(true) {
        End::Complete(last) => client.extend(last),
        End::Resume(body) => {
            let body: Value = serde_json::from_slice(&body).unwrap();
            stream.head(b"200", b"text/event-stream", false).unwrap();
            for chunk in served(sent, &body, "second", reads_seeds).concat().as_bytes().chunks(100) {
                client.extend_from_slice(&stream.chunk(chunk));
            }
            if let Some(cut) = stream.failure() {
                return Err(cut);
            }
            assert_eq!(stream.end(false), End::Complete(vec![]));
            continuation = Some(body);
        }
        End::Cut(cut) => return Err(cut),
        End::Repeat(_) => panic!("the response has begun"),
    }
    Ok((String::from_utf8(client).unwrap(), continuation))
}

fn events(stream: &str) -> Vec<Value> {
    let data = stream.split_terminator("\n\n").map(|event| event.split_once("data: ").unwrap().1);
    data.filter(|data| *data != "[DONE]").map(|data| data.parse().unwrap()).collect()
}

/// The output of a stream, each part with its kind. Checks that ids, indices and numbers are those of one
/// response.
fn output(api: StreamApi, stream: &str) -> Vec<(String, String)> {
    let events = events(stream);
    let mut parts: Vec<(String, String)> = Vec::new();
    let mut add = |kind: String, text: &Value| {
        let Some(text) = text.as_str().filter(|text| !text.is_empty()) else { return };
        match parts.last_mut().filter(|(last, _)| *last == kind) {
            Some((_, so_far)) => so_far.push_str(text),
            None => parts.push((kind, text.to_owned())),
        }
    };
    let counted = |tokens: &Value| tokens.as_u64().map_or(Value::Null, |tokens| tokens.to_string().into());
    let mut ids: Vec<Value> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap_or_default();
        let (index, item) = (&event["output_index"], &event["item"]);
        match (api, kind) {
            (StreamApi::Chat | StreamApi::Completions, _) => {
                assert_eq!(event["id"], events[0]["id"]);
                let choice = &event["choices"][0];
                add("reasoning".into(), &choice["delta"]["reasoning"]);
                add("text".into(), &choice["delta"]["content"]);
                for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
                    let place = call["index"].to_string();
                    add(format!("name {place}"), &call["function"]["name"]);
                    add(format!("arguments {place}"), &call["function"]["arguments"]);
                    assert_eq!(call["id"].is_string(), call["function"]["name"].is_string());
                }
                add("reason".into(), &choice["finish_reason"]);
                assert_eq!(choice["delta"]["role"].is_string(), number == 0);
                add("usage".into(), &counted(&event["usage"]["completion_tokens"]));
            }
            (StreamApi::Messages, "content_block_start") => {
                assert_eq!(event["index"], ids.len());
                ids.push(event["content_block"]["id"].clone());
                add(format!("begin {}", event["index"]), &event["content_block"]["type"]);
            }
            (StreamApi::Messages, _) => {
                assert_eq!(kind == "message_start", number == 0);
                for name in ["text", "thinking", "partial_json", "stop_reason"] {
                    add(format!("{name} {}", event["index"]), &event["delta"][name]);
                }
                add(kind.into(), &counted(&event["usage"]["output_tokens"]));
            }
            (StreamApi::Responses, _) => {
                assert_eq!(event["sequence_number"], number);
                if kind.ends_with("item.added") {
                    assert_eq!(*index, ids.len());
                    ids.push(item["id"].clone());
                } else if let Some(id) = event.get("item_id").or(item.get("id")) {
                    assert_eq!(*id, ids[usize::try_from(index.as_u64().unwrap()).unwrap()]);
                }
                add(format!("{kind} {index}"), &event["delta"]);
                add(format!("{kind} {index}"), &item["name"]);
                if let Some(response) = event.get("response") {
                    for name in ["id", "created_at"] {
                        assert_eq!(response[name], events[0]["response"][name]);
                    }
                    let whole = response["output"].as_array().unwrap();
                    assert!(whole.iter().zip(&ids).all(|(item, id)| item["id"] == *id));
                    add(kind.into(), &counted(&response["usage"]["output_tokens"]));
                }
            }
        }
    }
    parts
}

/// The resumed and all cuts of a trace, by client. Each resumed stream is compared with an undisturbed one.
fn resumed(reads_seeds: impl Fn(StreamApi) -> bool) -> BTreeMap<&'static str, (usize, usize)> {
    let mut counts = BTreeMap::<_, (usize, usize)>::new();
    for sent in trace() {
        let reads_seeds = reads_seeds(sent.api);
        let (_, body) = begin(&sent);
        let first = served(&sent, &body, "first", reads_seeds);
        let expected = output(sent.api, &first.concat());
        // Within an event.
        let ends = first.iter().scan(0, |end, event| {
            *end += event.len();
            Some(*end - 5)
        });
        for at in ends.step_by(STEP) {
            let (resumed, all) = counts.entry(sent.client).or_default();
            *all += 1;
            match cut_at(&sent, &first.concat(), at, reads_seeds) {
                Ok((client, continuation)) => {
                    *resumed += 1;
                    let seen = output(sent.api, &client);
                    let continues_text =
                        continuation.is_some_and(|body| body["continue_final_message"] == true);
                    // A seed counts from the seam where a text is continued, and tokens are counted by event.
                    if reads_seeds && !continues_text {
                        assert_eq!(seen, expected, "{at}");
                    } else if body["temperature"] == 0 {
                        assert!(seen.iter().zip(&expected).all(|(a, b)| a == b || a.0 == "usage"));
                    }
                    let last = match sent.api {
                        StreamApi::Chat | StreamApi::Completions => "[DONE]",
                        StreamApi::Responses => "response.completed",
                        StreamApi::Messages => "message_stop",
                    };
                    assert_eq!(client.matches(last).count().min(1), 1);
                }
                Err(cut) => assert!(matches!(cut, Cut::DifferentOutput | Cut::UsageLost), "{cut:?}"),
            }
        }
    }
    counts
}

fn share(counts: &BTreeMap<&'static str, (usize, usize)>) -> usize {
    let (resumed, all) = counts.values().fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    100 * resumed / all
}

#[test]
fn a_trace_of_agents_is_resumed_at_nearly_every_event() {
    let counts = resumed(|_| true);
    println!("servers read all seeds: {counts:?}");
    assert!(share(&counts) >= 99, "{counts:?}");
    let counts = resumed(|api| api != StreamApi::Messages);
    println!("servers ignore the seeds of messages: {counts:?}");
    let (resumed, all) = counts["Claude Code"];
    assert!(resumed < all, "a sampled message cannot be generated again: {counts:?}");
    assert!(
        counts.iter().all(|(client, (resumed, all))| *client == "Claude Code" || 100 * resumed / all >= 99)
    );
}

#[test]
fn a_second_death_is_survived_too() {
    for sent in trace() {
        let (mut stream, body) = begin(&sent);
        let first = served(&sent, &body, "first", true);
        let expected = output(sent.api, &first.concat());
        let mut client = String::new();
        let mut next = first.concat();
        for (server, share) in [("second", 2), ("third", 5)] {
            let at = next.len() - next.len() / share;
            let part = stream.chunk(&next.as_bytes()[..at]).into_owned();
            client += core::str::from_utf8(&part).unwrap();
            let End::Resume(body) = stream.end(true) else { panic!("not resumed") };
            stream.head(b"200", b"text/event-stream", false).unwrap();
            next = served(&sent, &serde_json::from_slice(&body).unwrap(), server, true).concat();
        }
        client += core::str::from_utf8(&stream.chunk(next.as_bytes())).unwrap();
        let seen = output(sent.api, &client);
        if sent.body["temperature"] == 0 || sent.api != StreamApi::Chat {
            assert!(seen.iter().zip(&expected).all(|(a, b)| a == b || a.0 == "usage"), "{seen:?}");
        }
    }
}

#[test]
fn another_output_cuts_the_stream_before_the_client_gets_it() {
    for sent in trace() {
        let (mut stream, body) = begin(&sent);
        let first = served(&sent, &body, "first", true).concat();
        let at = first.len() - first.len() / 6;
        stream.chunk(&first.as_bytes()[..at]);
        let End::Resume(_) = stream.end(true) else { panic!("not resumed") };
        stream.head(b"200", b"text/event-stream", false).unwrap();
        let mut other = sent.body.clone();
        other["temperature"] = 1.into();
        let other = served(&sent, &other, "second", false).concat();
        let client = stream.chunk(other.as_bytes()).into_owned();
        assert_eq!(client, b"", "{}", sent.client);
        assert_eq!(stream.failure(), Some(Cut::DifferentOutput));
        assert_eq!(stream.end(true), End::Cut(Cut::DifferentOutput));
        let event = String::from_utf8(stream.error_event(Cut::DifferentOutput)).unwrap();
        let error = events(&event).remove(0);
        match sent.api {
            StreamApi::Messages => {
                assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("api_error")));
            }
            StreamApi::Responses => {
                let last = first[..at].rsplit_once("\n\n").unwrap().0.matches("sequence_number").count();
                assert_eq!((&error["type"], &error["sequence_number"]), (&json!("error"), &json!(last)));
            }
            StreamApi::Chat | StreamApi::Completions => assert_eq!(error["error"]["type"], "server_error"),
        }
        assert!(event.contains("different_output"));
    }
}

#[test]
fn hostile_events_are_bounded() {
    let typed = |api| {
        let body = json!({"stream": true, "input": "hi", "messages": []}).to_string().into_bytes();
        let budget = Budget::new(1000, 2000);
        let mut kept = KeptBytes::new(&budget);
        assert!(kept.grow(body.len()));
        let mut stream = Resumption::new(ResumableRequest::read(api, body).unwrap(), kept, 2);
        stream.head(b"200", b"text/event-stream", false).unwrap();
        (stream, budget)
    };
    let event = |event: Value| format!("data: {event}\n\n");
    for (text, cut) in [
        (
            event(json!({"type": "response.output_item.added", "item": {"id": "x".repeat(990)}})),
            Cut::TooLarge,
        ),
        (event(json!({"type": "response.web_search_call.searching"})).repeat(1000), Cut::TooLarge),
        (event(json!({"type": "response.output_text.delta", "delta": "x".repeat(990)})), Cut::TooLarge),
        (
            event(json!({"type": "response.output_item.added", "item": {"type": "mcp_call"}})),
            Cut::OtherOutput,
        ),
        (event(json!({"type": "error", "message": "x"})), Cut::OtherOutput),
        (event(json!({"type": "x", "delta": 1})), Cut::UnreadableEvent),
        (event(json!({"delta": "x"})), Cut::UnreadableEvent),
        (event(json!(["x"])), Cut::UnreadableEvent),
        ("data: {\"type\": \"x\", \"delta\": \"\\ud800\"}\n\n".to_owned(), Cut::UnreadableEvent),
    ] {
        let (mut stream, budget) = typed(StreamApi::Responses);
        assert_eq!(stream.chunk(text.as_bytes()), text.as_bytes(), "the first response passes");
        assert!(budget.used() <= 1000);
        assert_eq!(stream.end(true), End::Cut(cut), "{}", &text[..text.len().min(80)]);
        // The same in a continuation, before the client's output has been repeated.
        let (mut stream, _) = typed(StreamApi::Responses);
        stream.chunk(event(json!({"type": "response.output_text.delta", "delta": "a"})).as_bytes());
        assert!(matches!(stream.end(true), End::Resume(_)));
        stream.head(b"200", b"text/event-stream", false).unwrap();
        let (unread, _) = text.split_at(text.find("\n\n").unwrap() + 2);
        assert_eq!(*stream.chunk(unread.as_bytes()), *b"");
        assert!(stream.failure().is_some(), "{unread}");
    }
    // Signs of life are no output.
    let (mut stream, _) = typed(StreamApi::Messages);
    let ping = event(json!({"type": "ping"}));
    assert_eq!(stream.chunk(ping.as_bytes()), ping.as_bytes());
    assert!(matches!(stream.end(true), End::Resume(_)));
}
