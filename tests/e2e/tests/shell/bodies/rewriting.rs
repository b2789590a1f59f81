//! The model's name on its way to the servers and back.

use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, MESSAGES, TEXT};
use endpoint_picker_e2e::policy_fixture::{PolicyFixture, model_of, rewriting};
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, CLAIM_ENCODING};
use endpoint_picker_wire::v1;
use reqwest::{Body, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

/// The header that names a model in place of the body, and its older spelling.
const REWRITE: &str = "x-llm-d-model-name-rewrite";
const OLDER_REWRITE: &str = "x-gateway-model-name-rewrite";
const LARGE: usize = 8 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn only_the_model_of_a_body_changes_however_it_comes() {
    let fixture = PolicyFixture::start(rewriting()).await;
    let prompt = "The quick <brown> fox & 1.0e2. ".repeat(LARGE / 31);
    let bodies = [
        format!("{{ \"model\" :\t\"llama\",\r\n{MESSAGES}, \"n\": 1.50, \"x\":{{\"model\":\"llama\"}} }}\n"),
        format!(r#"{{"messages":[{{"role":"user","content":"{prompt}"}}],"model":"llama"}}"#),
    ];
    for body in bodies {
        let at = body.find("\"llama\"").unwrap();
        let expected = format!("{}\"llama-canary\"{}", &body[..at], &body[at + 7..]);
        for (kind, client) in [("h1", client::http1()), ("h2", client::h2c())] {
            let whole = fixture.post(&client, CHAT, body.clone()).await;
            assert_eq!(whole.status(), StatusCode::OK, "{kind}");
            let received = fixture.received();
            assert!(received.body == expected, "{kind}: another body than expected");
            assert_eq!(
                received.header("content-length"),
                Some(expected.len().to_string().as_str()),
                "{kind}"
            );

            let pieces: Vec<_> =
                body.as_bytes().chunks(60_000).map(|piece| std::io::Result::Ok(piece.to_vec())).collect();
            let chunked = Body::wrap_stream(futures_util::stream::iter(pieces));
            let chunked = fixture.post(&client, CHAT, chunked).await;
            assert_eq!(chunked.status(), StatusCode::OK, "chunked {kind}");
            let received = fixture.received();
            assert!(received.body == expected, "chunked {kind}: another body than expected");
            assert_eq!(received.header("content-length"), None, "chunked {kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_model_gets_the_one_that_a_filter_names_in_the_header() {
    let by_filter = json!({
        "name": "router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
            "mutations": {"request_mutations": [{"append": {
                "header": {"key": REWRITE, "value": "by-header"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }}]},
        },
    });
    let fixture = PolicyFixture::build(rewriting(), Stack::builder().filter_before_picker(by_filter)).await;
    let answer = fixture.post(&client::http1(), TEXT, r#"{"prompt":"hi"}"#).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let received = fixture.received();
    assert_eq!(received.body, r#"{"prompt":"hi","model":"by-header"}"#);
    assert_eq!(received.header(REWRITE), Some("by-header"), "like the EPP, the header goes on");
    // The client named no model, so there is none to put back.
    assert_eq!(answer.json::<Value>().await.unwrap()["model"], "by-header");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_name_a_model_in_a_header() {
    let known = v1::InferenceModel { name: "known".to_owned(), ..v1::InferenceModel::default() };
    let policy = v1::Policy { inference_models: vec![known], ..v1::Policy::default() };
    let fixture = PolicyFixture::start(policy).await;
    for name in [REWRITE, OLDER_REWRITE, "X-LLM-D-Model-Name-Rewrite"] {
        let ask = |body: &'static str| {
            client::http1().post(fixture.stack.url(TEXT)).header(name, "secret").body(body).send()
        };
        let answer = ask(r#"{"model":"known","prompt":"hi"}"#).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{name}");
        let received = fixture.received();
        assert_eq!(model_of(&received), "known", "{name}");
        assert_eq!(received.header(name), None);

        let answer = ask(r#"{"prompt":"hi"}"#).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{name}");
        assert!(answer.text().await.unwrap().contains("model not found in request body"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_reads_its_own_model_in_plain_and_streamed_answers_however_they_are_cut() {
    let fixture = PolicyFixture::start(rewriting()).await;
    for size in [usize::MAX, 1, 7, 64] {
        for server in fixture.stack.servers() {
            let pause = if size == 1 { Duration::from_micros(500) } else { Duration::from_millis(2) };
            server.behave(Behaviour::Pieces(size, pause));
        }
        for (kind, client) in [("h1", client::http1()), ("h2", client::h2c())] {
            for stream in [false, true] {
                let body = json!({"model": "llama", "prompt": "hi", "max_tokens": 3, "stream": stream});
                let answer = fixture.post(&client, TEXT, body.to_string()).await;
                assert_eq!(answer.status(), StatusCode::OK);
                let text = answer.text().await.unwrap();
                let received_model = model_of(&fixture.received());
                assert_eq!(received_model, "llama-canary");
                assert!(!text.contains("llama-canary"), "{kind}, pieces of {size}: {text}");
                let models = text.matches(r#""model":"llama""#).count();
                // Three words and the end.
                assert_eq!(models, if stream { 4 } else { 1 }, "{kind}, pieces of {size}: {text}");
                if stream {
                    assert!(text.ends_with("data: [DONE]\n\n"), "{kind}, pieces of {size}: {text}");
                } else {
                    serde_json::from_str::<Value>(&text).unwrap();
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_cannot_be_read_or_need_no_change_pass_as_they_are() {
    let fixture = PolicyFixture::start(rewriting()).await;
    let encoded = fixture.ask("llama", &[(CLAIM_ENCODING, "zstd")]).await;
    assert!(encoded.content_length().is_some());
    assert!(encoded.text().await.unwrap().contains(r#""model":"llama-canary""#));

    let identity = fixture.ask("llama", &[(CLAIM_ENCODING, "identity")]).await;
    assert!(identity.text().await.unwrap().contains(r#""model":"llama""#));

    let other = fixture.ask("other", &[]).await;
    assert!(other.content_length().is_some());
    assert!(other.text().await.unwrap().contains(r#""model":"other""#));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_apis_that_are_read_only_for_their_model_are_rewritten_too() {
    let fixture = PolicyFixture::start(rewriting()).await;
    for path in
        ["/tokenize", "/v1/responses/compact", "/v1/messages/count_tokens", "/v1/rerank", "/invocations"]
    {
        for (sent, expected) in [
            (r#"{"tokens":[1],"model":"llama"}"#, r#"{"tokens":[1],"model":"llama-canary"}"#),
            (r#"{"prompt": "hi"}"#, r#"{"prompt": "hi"}"#),
        ] {
            fixture.post(&client::http1(), path, sent).await;
            let received = fixture.received();
            assert_eq!(received.body, expected, "{path}");
            assert!(received.header(DESTINATION).is_some(), "{path}");
        }
        // A server might read a model that could not be replaced.
        let refused = fixture.post(&client::http1(), path, "not JSON").await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{path}");
    }
    let form = |model: &str| {
        let file =
            "--b0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n";
        let model = format!("--b0\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n");
        format!("{file}{model}--b0--\r\n")
    };
    let upload = client::http1().post(fixture.stack.url("/v1/audio/transcriptions"));
    let upload = upload.header("content-type", "multipart/form-data; boundary=b0").body(form("llama"));
    upload.send().await.unwrap();
    assert_eq!(fixture.received().body, form("llama-canary"));
}
