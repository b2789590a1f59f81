//! Paths whose requests name a model, next to those with prompts: rerank and its like, uploads, and
//! `/invocations`.

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, fewest_waiting};

const JSON_PATHS: [&str; 16] = [
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/score",
    "/v1/score",
    "/classify",
    "/pooling",
    "/v2/embed",
    "/v1/audio/speech",
    "/v1/responses/compact",
    "/v1/moderations",
    "/completion",
    "/v1/videos",
    "/a/path/of/tomorrow",
    "/v1/chat/completions/batch",
    "/invocations",
];

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";
const FORM: [(&str, &str); 1] = [("content-type", "multipart/form-data; boundary=b0")];

/// Only the model `known` exists.
fn with_models(fields: &serde_json::Value) -> Fixture {
    let model = v1::InferenceModel { name: "known".to_owned(), ..v1::InferenceModel::default() };
    Fixture::with_policy(fields, v1::Policy { inference_models: vec![model], ..fewest_waiting() })
}

/// The model `m` becomes `canary`.
fn renaming(fields: &serde_json::Value) -> Fixture {
    let rule = v1::RewriteRule {
        resource: "rule".to_owned(),
        models: vec!["m".to_owned()],
        targets: vec![v1::Target { model: "canary".to_owned(), weight: None }],
    };
    Fixture::with_policy(fields, v1::Policy { rewrite_rules: vec![rule], ..fewest_waiting() })
}

fn form(model: &str, file: &str) -> String {
    format!(
        "--b0\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n\
         --b0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{file}\r\n--b0--\r\n"
    )
}

/// The same with the model behind the file.
fn form_with_model_last(model: &str, file: &str) -> String {
    format!(
        "--b0\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n{file}\r\n\
         --b0\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--b0--\r\n"
    )
}

#[test]
fn an_unknown_model_is_404_on_every_path_that_names_one() {
    let mut fixture = with_models(&json!({}));
    for path in JSON_PATHS {
        let unknown = fixture.post(path, &[], r#"{"model":"secret","query":"q","documents":["d"]}"#);
        assert_eq!(unknown.rejection().status, 404, "{path}");
        let known = fixture.post(path, &[], r#"{"model":"known","query":"q","documents":["d"]}"#);
        assert!(known.destination().is_some(), "{path}");
        let none = fixture.post(path, &[], r#"{"query":"q","documents":["d"]}"#);
        assert!(none.destination().is_some(), "{path}: the server has one model of its own");
        // A server might read a model in these.
        for unreadable in ["model=secret", r#"{"model":"secret"} x"#, "{\0\"\0"] {
            assert_eq!(fixture.post(path, &[], unreadable).rejection().status, 400, "{path}: {unreadable}");
        }
        for python in [r#"{"model":"secret","x":NaN}"#, "\u{feff}{\"model\":\"secret\"}"] {
            assert_eq!(fixture.post(path, &[], python).rejection().status, 404, "{path}: {python}");
        }
    }
    for upload in [form("secret", "RIFF"), form_with_model_last("secret", "RIFF")] {
        assert_eq!(fixture.post(TRANSCRIPTIONS, &FORM, &upload).rejection().status, 404);
    }
    assert!(fixture.post(TRANSCRIPTIONS, &FORM, &form("known", "RIFF")).destination().is_some());
    let other = [("content-type", "multipart/form-data; boundary=b1")];
    let refused = fixture.post(TRANSCRIPTIONS, &other, &form("known", "RIFF"));
    assert_eq!(refused.rejection().status, 400);
    assert!(refused.rejection().body.contains("the form cannot be read: "), "{}", refused.rejection().body);
    assert_eq!(fixture.post(TRANSCRIPTIONS, &[], &form("known", "RIFF")).rejection().status, 400);
}

#[test]
fn a_model_is_replaced_on_every_path_that_names_one() {
    let mut fixture = renaming(&json!({}));
    for path in JSON_PATHS {
        let request = fixture.post(path, &[], r#"{"query":"q","model":"m","documents":["m"]}"#);
        assert_eq!(
            request.proxy.request_body, br#"{"query":"q","model":"canary","documents":["m"]}"#,
            "{path}"
        );
    }
    for (upload, expected) in [
        (form("m", "RIFF\0m"), form("canary", "RIFF\0m")),
        (form_with_model_last("m", "RIFF\0m"), form_with_model_last("canary", "RIFF\0m")),
        (form("other", "RIFF"), form("other", "RIFF")),
    ] {
        let length = upload.len().to_string();
        let headers = [FORM[0], ("content-length", &*length)];
        let request = fixture.post(TRANSCRIPTIONS, &headers, &upload);
        assert_eq!(String::from_utf8_lossy(&request.proxy.request_body), expected);
        assert_eq!(request.proxy.request_header("content-length"), Some(&*expected.len().to_string()));
    }
    // A body in which the model could not be replaced is refused.
    let refused = fixture.post(TRANSCRIPTIONS, &FORM, "--b0\r\n");
    assert_eq!(refused.rejection().status, 400);
    for path in JSON_PATHS {
        let utf16: Vec<u8> = r#"{"model":"m"}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for body in [b"not JSON", &utf16[..], b"\xff\xfe{\0"] {
            let mut request = fixture.request(path, &[]);
            request.head(&mut fixture);
            request.body(&mut fixture, body, true);
            assert_eq!(request.rejection().status, 400, "{path}: {body:?}");
        }
    }
}

#[test]
fn a_body_of_another_type_passes_unless_it_is_json_all_the_same() {
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}});
    for content_type in ["application/octet-stream", "text/plain", "application/x-www-form-urlencoded"] {
        let headers = [("content-type", content_type)];
        let mut fixture = with_models(&limits);
        for (first, flow) in
            [(&b"\0binary"[..], Flow::Continue), (b"model=secret", Flow::Continue), (b"{", Flow::Hold)]
        {
            let mut request = fixture.request("/files", &headers);
            assert_eq!(request.head(&mut fixture), Flow::Hold);
            assert_eq!(request.body(&mut fixture, first, false), flow, "{content_type}: {first:?}");
        }
        let unknown = fixture.post("/completion", &headers, r#" {"model":"secret"}"#);
        assert_eq!(unknown.rejection().status, 404, "{content_type}");
        assert!(fixture.post("/completion", &headers, r#"{"model":"known"}"#).destination().is_some());
        for no_model in ["[1]", "", " ", "3"] {
            assert!(fixture.post("/sleep", &[], no_model).destination().is_some(), "{no_model}");
        }
    }
    // A call of gRPC is a conversation, which the client may begin by waiting.
    let mut fixture = with_models(&limits);
    let mut call = fixture.request("/a.Service/Method", &[("content-type", "application/grpc")]);
    assert_eq!(call.head(&mut fixture), Flow::Continue);
}

#[test]
fn a_compressed_body_is_refused_with_its_encoding_or_left_to_the_proxy() {
    let body = "\u{1}\u{8b}";
    for encoding in ["gzip", "zstd", "br, gzip"] {
        let headers = [("content-type", "application/json"), ("content-encoding", encoding)];
        let mut fixture = with_models(&json!({}));
        for path in JSON_PATHS.into_iter().chain([crate::fixture::CHAT]) {
            let request = fixture.post(path, &headers, body);
            let rejection = request.rejection();
            assert_eq!(rejection.status, 415, "{path}");
            let error: serde_json::Value = serde_json::from_str(&rejection.body).unwrap();
            assert!(error["error"]["message"].as_str().unwrap().contains(encoding), "{error}");
        }
        let abstains = json!({"limits": {"unreadBody": "Abstain"}});
        let mut fixture = with_models(&abstains);
        let mut request = fixture.request(crate::fixture::CHAT, &headers);
        assert_eq!(request.head(&mut fixture), Flow::Continue);
        assert_eq!(fixture.counted("abstained|body_compressed"), 1);
        // Where the decision does not depend on the body, it passes.
        let mut fixture = Fixture::new();
        assert!(fixture.post("/tokenize", &headers, body).destination().is_some());
        assert!(fixture.post("/invocations", &headers, body).destination().is_some());
    }
    let mut fixture = Fixture::new();
    let plain = [("content-encoding", "identity")];
    let request = fixture.post(crate::fixture::TEXT, &plain, r#"{"model":"m","prompt":"hi"}"#);
    assert!(request.destination().is_some());
}

#[test]
fn a_body_that_servers_read_is_routed_and_renamed() {
    let mut fixture = renaming(&json!({}));
    for (path, body, expected) in [
        (
            crate::fixture::TEXT,
            r#"{"model":"m","prompt_embeds":"AA=="}"#,
            r#"{"model":"canary","prompt_embeds":"AA=="}"#,
        ),
        (
            crate::fixture::TEXT,
            "\u{feff}{\"model\":\"m\",\"x\":NaN}",
            "\u{feff}{\"model\":\"canary\",\"x\":NaN}",
        ),
        ("/v1/embeddings", r#"{"model":"m","messages":[]}"#, r#"{"model":"canary","messages":[]}"#),
        (crate::fixture::CHAT, r#"{"messages":[]}"#, r#"{"messages":[]}"#),
    ] {
        let request = fixture.post(path, &[], body);
        assert!(request.destination().is_some(), "{body}");
        assert_eq!(String::from_utf8_lossy(&request.proxy.request_body), expected);
    }
    let mut fixture = with_models(&json!({}));
    let request = fixture.post(crate::fixture::CHAT, &[], r#"{"messages":[]}"#);
    assert_eq!(request.rejection().status, 400, "the server's own model need not be one of the pool's");
}

#[test]
fn a_long_body_is_not_decided_before_its_prompt_has_come() {
    let mut fixture = Fixture::with_config(&json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}}));
    let body = format!(r#"{{"model":"m","x":"{}","prompt":"hi there"}}"#, "a".repeat(3000));
    let mut request = fixture.request(crate::fixture::TEXT, &[]);
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[..2048], false), Flow::Hold);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[2048..], true), Flow::Continue);
    let tokens: u64 = fixture.loads().iter().map(|load| load.tokens).sum();
    assert!(tokens >= 2, "{tokens} tokens");
    // A body without a prompt is decided when no more of it can be held.
    let mut request = fixture.request(crate::fixture::TEXT, &[]);
    request.head(&mut fixture);
    let body = format!(r#"{{"model":"m","x":"{}"#, "a".repeat(9000));
    assert_eq!(request.body(&mut fixture, body.as_bytes(), false), Flow::Continue);
}

#[test]
fn a_long_upload_streams_as_soon_as_its_model_is_known() {
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}});
    for (mut fixture, model) in [(with_models(&limits), "known"), (renaming(&limits), "other")] {
        let mut request = fixture.request(TRANSCRIPTIONS, &FORM);
        assert_eq!(request.head(&mut fixture), Flow::Hold);
        let upload = form(model, &"a".repeat(100_000));
        assert_eq!(request.body(&mut fixture, &upload.as_bytes()[..1024], false), Flow::Continue);
        assert!(request.destination().is_some());
    }
    // The model comes too late.
    let mut fixture = with_models(&limits);
    let mut request = fixture.request(TRANSCRIPTIONS, &FORM);
    request.head(&mut fixture);
    request.body(&mut fixture, form_with_model_last("known", &"a".repeat(9_000)).as_bytes(), false);
    assert_eq!(request.rejection().status, 413);
}

#[test]
fn where_nothing_depends_on_models_only_bodies_with_prompts_are_read_and_none_is_refused() {
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}});
    let mut fixture = Fixture::with_config(&limits);
    let has_prompt = |path: &&str| ["/invocations", "/v1/chat/completions/batch"].contains(path);
    for path in JSON_PATHS.into_iter().filter(|path| !has_prompt(path)).chain([TRANSCRIPTIONS]) {
        let mut request = fixture.request(path, &FORM);
        assert_eq!(request.head(&mut fixture), Flow::Continue, "{path}");
        assert!(request.destination().is_some());
    }
    for body in
        ["1,2,3".to_owned(), r#"{"instances":[]}"#.to_owned(), "\u{1}".repeat(2_000), "[1".repeat(2_000)]
    {
        let mut request = fixture.request("/invocations", &[]);
        assert_eq!(request.head(&mut fixture), Flow::Hold);
        assert_eq!(request.body(&mut fixture, body.as_bytes(), true), Flow::Continue);
        assert!(request.destination().is_some());
        let mut streamed = fixture.request("/invocations", &[]);
        streamed.head(&mut fixture);
        let flow = streamed.body(&mut fixture, body.as_bytes(), false);
        assert_eq!(flow == Flow::Continue, body.len() >= 1024, "{} bytes", body.len());
    }
}

#[test]
fn the_prompt_of_an_invocation_counts() {
    let mut fixture = Fixture::new();
    let request = fixture.post("/invocations", &[], &json!({"prompt": "word ".repeat(100)}).to_string());
    assert!(request.destination().is_some());
    let tokens: u64 = fixture.loads().iter().map(|load| load.tokens).sum();
    assert!(tokens >= 125, "{tokens} tokens");
}
