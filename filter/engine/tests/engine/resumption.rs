//! Streams that continue at another server.

use endpoint_picker_engine::budget::{Budget, KeptBytes};
use endpoint_picker_engine::resume::{Cut, End, REFUSALS, ResumableRequest, Resumption, StreamApi};
use serde_json::{Value, json};

fn new_stream(api: StreamApi, fields: &Value) -> Resumption {
    let mut body = json!({"stream": true, "prompt": "p", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let body = body.to_string().into_bytes();
    let mut kept = KeptBytes::new(&Budget::new(1000, 2000));
    assert!(kept.grow(body.len()));
    Resumption::new(ResumableRequest::read(api, body).unwrap(), kept, 2)
}

/// A stream whose first response has begun.
fn begun(mut stream: Resumption) -> Resumption {
    assert_eq!(stream.head(b"200", b"text/event-stream; charset=utf-8", false), Ok(()));
    stream
}

/// The next step after a response of this status that is not a stream.
fn refused(stream: &mut Resumption, status: &str) -> Result<(), End> {
    stream.head(status.as_bytes(), b"application/json", false)
}

fn chat(fields: &Value) -> Resumption {
    begun(new_stream(StreamApi::Chat, fields))
}

fn event(id: &str, delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let event =
        json!({"id": id, "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
    format!("data: {event}\n\n")
}

fn word(id: &str, word: &str) -> String {
    event(id, &json!({"content": word}), None)
}

fn usage(id: &str, prompt: u64, completion: u64) -> String {
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion});
    format!("data: {}\n\n", json!({"id": id, "choices": [], "usage": usage}))
}

const END: &str = "data: [DONE]\n\n";

fn pass(stream: &mut Resumption, text: &str) -> String {
    String::from_utf8(stream.chunk(text.as_bytes()).into_owned()).unwrap()
}

/// The next request, after a reset.
fn resumed(stream: &mut Resumption) -> Value {
    let End::Resume(body) = stream.end(true) else { panic!("not resumed") };
    assert_eq!(stream.head(b"200", b"text/event-stream", false), Ok(()));
    serde_json::from_slice(&body).unwrap()
}

/// The events of a response, `[DONE]` as null.
fn events(text: &str) -> Vec<Value> {
    let data = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
    data.map(|data| if data == "[DONE]" { Value::Null } else { data.parse().unwrap() }).collect()
}

#[test]
fn a_whole_response_passes_byte_for_byte() {
    let mut stream = chat(&json!({}));
    let text = format!(": ping\n\n{}{}{END}", word("a", "x"), event("a", &json!({}), Some("stop")));
    let mut client = Vec::new();
    for chunk in text.as_bytes().chunks(7) {
        client.extend_from_slice(&stream.chunk(chunk));
    }
    assert_eq!(client, text.as_bytes());
    assert_eq!(stream.end(false), End::Complete(vec![]));
    let mut stream = chat(&json!({}));
    assert_eq!(pass(&mut stream, &text), text);
    assert_eq!(stream.end(true), End::Complete(vec![]), "a reset behind the end");
}

#[test]
fn a_cut_stream_continues_as_one_response() {
    let mut stream = chat(&json!({"max_tokens": 5, "stream_options": {"include_usage": true}}));
    let role = event("a", &json!({"role": "assistant", "content": ""}), None);
    let mut client = pass(&mut stream, &format!("{role}{}{}", word("a", "The"), word("a", " quick")));
    // The half of an event does not reach the client.
    assert_eq!(pass(&mut stream, &word("a", " lost")[..40]), "");
    let body = resumed(&mut stream);
    assert_eq!(body["max_tokens"], 3);
    assert_eq!(body["messages"][1], json!({"role": "assistant", "content": "The quick"}));
    let role = event("b", &json!({"role": "assistant", "content": ""}), None);
    client += &pass(&mut stream, &(role + &word("b", " brown")));
    let body = resumed(&mut stream);
    assert_eq!(
        (&body["max_tokens"], &body["messages"][1]["content"]),
        (&json!(2), &json!("The quick brown"))
    );
    let rest = [word("c", " fox"), event("c", &json!({}), Some("stop")), usage("c", 13, 1), END.to_owned()];
    client += &pass(&mut stream, &rest.concat());
    assert_eq!((stream.end(false), stream.resumptions()), (End::Complete(vec![]), 2));
    let all = events(&client);
    let text: String =
        all.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "The quick brown fox");
    assert_eq!(all.last(), Some(&Value::Null));
    assert!(all.iter().filter(|event| event.is_object()).all(|event| event["id"] == "a"), "{client}");
    assert_eq!(client.matches("role").count(), 1, "{client}");
    let sums = json!({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14});
    assert_eq!(all[all.len() - 2]["usage"], sums);
}

#[test]
fn the_text_is_the_same_however_the_response_is_cut_into_chunks() {
    let words = ["The", " quick", " \"brown\"", " fox\n", "\n", " ", "j\u{fc}mps"];
    let text: String = words.iter().map(|text| word("a", text)).collect();
    for size in [1, 50, word("a", "The").len(), 200, text.len()] {
        let mut stream = chat(&json!({"max_tokens": 9}));
        let mut client = Vec::new();
        text.as_bytes().chunks(size).for_each(|chunk| client.extend_from_slice(&stream.chunk(chunk)));
        assert_eq!(client, text.as_bytes());
        let body = resumed(&mut stream);
        assert_eq!(body["messages"][1]["content"], words.concat(), "{size}");
        assert_eq!(body["max_tokens"], 2);
    }
    let mut stream = chat(&json!({"max_tokens": 9}));
    for text in words {
        assert_eq!(pass(&mut stream, &word("a", text)), word("a", text));
    }
    assert_eq!(resumed(&mut stream)["messages"][1]["content"], words.concat());
}

#[test]
fn a_request_without_a_response_is_repeated_a_few_times() {
    let mut stream = chat(&json!({}));
    pass(&mut stream, &word("a", "x"));
    let End::Resume(body) = stream.end(true) else { panic!("not resumed") };
    for _ in 0..3 {
        assert_eq!(stream.end(true), End::Repeat(body.clone()));
    }
    assert_eq!((stream.end(true), stream.resumptions()), (End::Cut(Cut::Refused), 1));
}

#[test]
fn a_server_that_refuses_a_continuation_is_followed_by_another_one() {
    for statuses in [["503"; 4], ["429"; 4], ["500"; 4], ["502", "503", "504", "429"]] {
        let mut stream = chat(&json!({}));
        pass(&mut stream, &word("a", "x"));
        let End::Resume(body) = stream.end(true) else { panic!("not resumed") };
        for status in &statuses[..3] {
            assert_eq!(refused(&mut stream, status), Err(End::Repeat(body.clone())), "{statuses:?}");
        }
        // A server that serves ends the row.
        assert_eq!(stream.head(b"200", b"text/event-stream", false), Ok(()));
        pass(&mut stream, &word("b", "y"));
        assert!(matches!(stream.end(true), End::Resume(_)));
        for status in &statuses[..3] {
            assert!(matches!(refused(&mut stream, status), Err(End::Repeat(_))), "{statuses:?}");
        }
        assert_eq!(refused(&mut stream, statuses[3]), Err(End::Cut(Cut::Refused)));
    }
    for status in ["200", "204", "301", "400", "404", "422", ""] {
        let mut stream = chat(&json!({}));
        pass(&mut stream, &word("a", "x"));
        assert!(matches!(stream.end(true), End::Resume(_)));
        assert_eq!(refused(&mut stream, status), Err(End::Cut(Cut::Refused)), "{status}");
    }
}

#[test]
fn a_refusal_before_the_first_response_is_followed_by_another_server_and_an_error_of_the_work_is_not() {
    for status in REFUSALS.map(|status| status.to_string()) {
        let mut stream = new_stream(StreamApi::Chat, &json!({}));
        let body = stream.body().to_vec();
        for _ in 0..2 {
            assert_eq!(refused(&mut stream, &status), Err(End::Repeat(body.clone())));
        }
        assert_eq!(stream.end(true), End::Repeat(body), "a server that does not respond counts too");
        // The client gets the fourth refusal.
        assert_eq!(refused(&mut stream, &status), Ok(()));
        assert_eq!(pass(&mut stream, "{}"), "{}");
        assert_eq!(stream.end(false), End::Complete(vec![]));
    }
    for status in ["500", "501", "502", "504", "400", "404", "408"] {
        let mut stream = new_stream(StreamApi::Chat, &json!({}));
        assert_eq!(refused(&mut stream, status), Ok(()), "{status}");
    }
}

#[test]
fn the_shipped_routes_retry_the_same_refusals_as_often() {
    for file in [include_str!("../../../../envoy.yaml"), include_str!("../../../../envoy-native.yaml")] {
        assert!(file.contains(&format!("retriable_status_codes: {REFUSALS:?}\n")));
        assert!(file.contains("num_retries: 3\n"), "a request reaches four servers");
    }
}

#[test]
fn a_text_at_which_two_servers_died_is_not_sent_to_a_third() {
    for text in ["", "x"] {
        let mut stream = chat(&json!({}));
        pass(&mut stream, &event("a", &json!({"role": "assistant", "content": text}), None));
        resumed(&mut stream);
        pass(&mut stream, &event("b", &json!({"role": "assistant", "content": ""}), None));
        assert_eq!(stream.end(true), End::Cut(Cut::TwoServersDied), "{text:?}");
    }
    // Servers that did not begin to respond may not have had the text.
    let mut stream = chat(&json!({}));
    pass(&mut stream, &word("a", "x"));
    assert!(matches!(stream.end(true), End::Resume(_)));
    assert!(matches!(stream.end(true), End::Repeat(_)));
    assert!(matches!(stream.end(true), End::Repeat(_)));
}

#[test]
fn completions_continue_behind_the_prompt() {
    let mut stream = begun(new_stream(StreamApi::Completions, &json!({"max_tokens": 9})));
    let word = |id, text| format!("data: {}\n\n", json!({"id": id, "choices": [{"index": 0, "text": text}]}));
    let client = pass(&mut stream, &word("a", "x "));
    let body = resumed(&mut stream);
    assert_eq!(body["prompt"], "px ");
    let client = client + &pass(&mut stream, &word("b", "y"));
    let all = events(&client);
    assert_eq!((&all[1]["id"], &all[1]["choices"][0]["text"]), (&json!("a"), &json!("y")));
}

#[test]
fn blanks_at_the_end_of_a_message_are_not_repeated() {
    for (again, expected) in [("\n\nb", "b"), ("\nb", "b"), ("b", "b"), ("\n\n\nb", "\nb")] {
        let mut stream = chat(&json!({"max_tokens": 9}));
        pass(&mut stream, &[word("a", "a"), word("a", "\n\n")].concat());
        let body = resumed(&mut stream);
        assert_eq!((&body["max_tokens"], &body["messages"][1]["content"]), (&json!(8), &json!("a")));
        let mut text = String::new();
        for part in again.split_inclusive('\n') {
            let client = pass(&mut stream, &word("b", part));
            text += events(&client)
                .first()
                .map_or("", |event| event["choices"][0]["delta"]["content"].as_str().unwrap());
        }
        assert_eq!(text, expected);
    }
}

#[test]
fn a_response_that_was_cut_before_its_text_is_requested_again() {
    let mut stream = chat(&json!({}));
    let before = pass(&mut stream, &event("a", &json!({"role": "assistant", "content": ""}), None));
    let body = resumed(&mut stream);
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    let after = pass(&mut stream, &event("b", &json!({"role": "assistant", "content": "x"}), None));
    assert_eq!((before + &after).matches("role").count(), 1);
    assert_eq!(events(&after)[0]["id"], "a");
}

#[test]
fn an_end_without_the_marker_is_a_cut() {
    let mut stream = chat(&json!({}));
    pass(&mut stream, &word("a", "x"));
    assert!(matches!(stream.end(false), End::Resume(_)));
}

#[test]
fn a_complete_text_only_gets_its_end() {
    let mut stream = chat(&json!({}));
    pass(&mut stream, &event("a", &json!({"content": "x"}), Some("stop")));
    assert_eq!(stream.end(true), End::Complete(END.into()));

    let mut stream = chat(&json!({"max_tokens": 1}));
    pass(&mut stream, &word("a", "x"));
    let End::Complete(last) = stream.end(true) else { panic!("not complete") };
    let all = events(core::str::from_utf8(&last).unwrap());
    assert_eq!((&all[0]["id"], &all[0]["choices"][0]["finish_reason"]), (&json!("a"), &json!("length")));
    assert_eq!(all[1], Value::Null);

    let mut stream = chat(&json!({"stream_options": {"include_usage": true}}));
    pass(&mut stream, &event("a", &json!({"content": "x"}), Some("stop")));
    assert_eq!(stream.end(true), End::Cut(Cut::UsageLost));
}

#[test]
fn usage_in_each_event_counts_the_tokens() {
    let options =
        json!({"max_tokens": 10, "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let mut stream = chat(&options);
    let with_usage = |id: &str, text: &str, prompt: u64, completion: u64| {
        let mut event = events(&word(id, text)).remove(0);
        event["usage"] = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": 0});
        format!("data: {event}\n\n")
    };
    pass(&mut stream, &with_usage("a", "x y z", 7, 3));
    assert_eq!(resumed(&mut stream)["max_tokens"], 7);
    let client = pass(&mut stream, &with_usage("b", " a", 11, 1));
    let sums = json!({"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11});
    assert_eq!(events(&client)[0]["usage"], sums);
}

#[test]
fn other_streams_are_cut_with_the_reason() {
    let cut = |text: &str| {
        let mut stream = chat(&json!({}));
        assert_eq!(pass(&mut stream, text), text);
        let End::Cut(cut) = stream.end(true) else { panic!("not cut: {text}") };
        cut
    };
    assert_eq!(cut(&event("a", &json!({"audio": {}}), None)), Cut::OtherOutput);
    assert_eq!(cut("data: {\"error\": {}}\n\ndata: x"), Cut::OtherOutput);
    assert_eq!(cut("data: x\n\nrest"), Cut::UnreadableEvent);
    assert_eq!(cut(&word("a", &"x".repeat(1000))), Cut::TooLarge);
    assert_eq!(cut(&"x".repeat(1001)), Cut::UnreadableEvent);

    let mut stream = chat(&json!({}));
    pass(&mut stream, &event("a", &json!({"audio": {}}), None));
    assert!(stream.body().is_empty(), "a body that will not be sent again is not kept");

    let mut stream = new_stream(StreamApi::Chat, &json!({}));
    assert_eq!(stream.head(b"400", b"text/event-stream", false), Ok(()));
    assert_eq!(pass(&mut stream, "{"), "{");
    assert_eq!(stream.end(true), End::Cut(Cut::NotEvents));

    let mut stream = chat(&json!({}));
    for _ in 0..2 {
        pass(&mut stream, &word("a", "x"));
        resumed(&mut stream);
    }
    assert_eq!(stream.end(true), End::Cut(Cut::TooManyResumptions));

    let mut stream = chat(&json!({}));
    pass(&mut stream, &word("a", "x"));
    resumed(&mut stream);
    let long = "x".repeat(1001);
    assert_eq!(pass(&mut stream, &long), long, "an event that is too long is not held");
    assert_eq!(pass(&mut stream, "y"), "y");
    assert_eq!(stream.end(true), End::Cut(Cut::UnreadableEvent));
}

#[test]
fn what_is_kept_returns_to_the_budget() {
    let budget = Budget::new(1000, 100);
    let body = json!({"stream": true, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let mut kept = KeptBytes::new(&budget);
    assert!(kept.grow(body.len()));
    let request = ResumableRequest::read(StreamApi::Chat, body.clone().into_bytes()).unwrap();
    let mut first = Resumption::new(request, kept, 1);
    assert!(!KeptBytes::new(&budget).grow(body.len()));
    first.head(b"200", b"text/event-stream", false).unwrap();
    first.chunk(word("a", "four").as_bytes());
    // The text and its place.
    assert_eq!(budget.used(), body.len() + "four".len() + 9);
    drop(first);
    assert_eq!(budget.used(), 0);
}
