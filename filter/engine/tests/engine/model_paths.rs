//! Paths whose requests name a model, beside those with prompts: rerank and its like, uploads, and `/invocations`.

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, fewest_waiting};

const JSON_PATHS: [&str; 10] = [
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/score",
    "/v1/score",
    "/classify",
    "/pooling",
    "/v2/embed",
    "/v1/audio/speech",
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
        // Python reads these, and a server might serve the model.
        for unreadable in [r#"{"model":"secret","x":NaN}"#, "model=secret", ""] {
            assert_eq!(fixture.post(path, &[], unreadable).rejection().status, 400, "{path}: {unreadable}");
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
    // A form in which the model could not be replaced is refused; JSON is left to the server, which refuses it too.
    let refused = fixture.post(TRANSCRIPTIONS, &FORM, "--b0\r\n");
    assert_eq!(refused.rejection().status, 400);
    assert!(fixture.post("/rerank", &[], "not JSON").destination().is_some());
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
fn where_nothing_depends_on_models_only_invocations_are_read_and_none_is_refused() {
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}});
    let mut fixture = Fixture::with_config(&limits);
    for path in JSON_PATHS.into_iter().filter(|path| *path != "/invocations").chain([TRANSCRIPTIONS]) {
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
