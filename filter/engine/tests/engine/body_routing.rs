//! The model in a body as a header, which is read once for route and pool.

use endpoint_picker_engine::body_routing::{
    AwaitedBody, BASE_MODEL_NAME, BaseModels, BodyRouter, MODEL_NAME,
};
use endpoint_picker_engine::budget::UsedBytes;
use endpoint_picker_engine::config::{Limits, UnreadBody};
use endpoint_picker_engine::exchange::{Exchange, Flow};
use endpoint_picker_wire::models::{BaseModel, Models};
use endpoint_picker_wire::{MODELS_FORMAT, Message as _, v1};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::fixture::{CHAT, Fixture, TEXT, address, fewest_waiting};
use crate::proxy::FakeProxy;
use crate::sink::FakeSink;

const HI: &str = r#"{"model": "lora", "messages": [{"role": "user", "content": "hi"}]}"#;

fn base_models() -> Arc<BaseModels> {
    let llama = BaseModel { name: "llama".to_owned(), adapters: vec!["lora".to_owned()] };
    let message = Models { format: MODELS_FORMAT, version: 1, base_models: vec![llama] };
    BaseModels::decode(&message.encode_to_vec()).unwrap().into()
}

/// A router and its counts.
struct Routing {
    router: BodyRouter<FakeSink>,
    sink: FakeSink,
}

/// A request in front of a router.
struct Request {
    proxy: FakeProxy,
    awaited: Option<AwaitedBody>,
}

/// The router's action on a part of a body.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Held,
    Rejected(u16),
    /// The headers of the model and the base model.
    Routed(Option<String>, Option<String>),
}

impl Routing {
    fn new(limits: Limits) -> Self {
        let sink = FakeSink::default();
        Self { router: BodyRouter::new(limits, &sink), sink }
    }

    fn request(&self, path: &str, headers: &[(&str, &str)]) -> Request {
        let mut all = vec![(":method", "POST"), (":path", path)];
        all.retain(|(name, _)| headers.iter().all(|(other, _)| other != name));
        all.extend(headers);
        let all = all.into_iter().map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let mut proxy = FakeProxy { request_headers: all.collect(), ..FakeProxy::default() };
        let awaited = self.router.request_headers(&mut proxy).unwrap();
        Request { proxy, awaited }
    }

    fn body(&self, request: &mut Request, part: &[u8], is_whole: bool) -> Step {
        let Request { proxy, awaited } = request;
        proxy.request_body.extend_from_slice(part);
        let size = proxy.request_body.len();
        let awaited = awaited.as_mut().expect("an awaited body");
        let routed = self.router.request_body(awaited, base_models, proxy, (size, is_whole), |proxy, _| {
            let header = |name| proxy.request_header(name).map(str::to_owned);
            Step::Routed(header(MODEL_NAME), header(BASE_MODEL_NAME))
        });
        let rejected = || proxy.local_answer.as_ref().map(|answer| Step::Rejected(answer.status));
        routed.or_else(rejected).unwrap_or(Step::Held)
    }

    fn whole(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Step {
        self.body(&mut self.request(path, headers), body.as_bytes(), true)
    }

    fn counted(&self, outcome: &str) -> u64 {
        self.sink.get(&format!("body_based_routing|{outcome}"))
    }
}

fn small(unread_body: UnreadBody) -> Limits {
    Limits { peek_bytes: 1024, max_held_bytes: 4096, unread_body, ..Limits::default() }
}

fn routed(model: &str, base_model: &str) -> Step {
    Step::Routed(Some(model.to_owned()), Some(base_model.to_owned()).filter(|name| !name.is_empty()))
}

const WITHOUT: Step = Step::Routed(None, None);

#[test]
fn a_model_becomes_two_headers_whatever_the_path() {
    let routing = Routing::new(Limits::default());
    for path in
        [CHAT, TEXT, "/v1/embeddings", "/anything/else", "/v1/conversations", "/gateway/v1/chat/completions"]
    {
        assert_eq!(routing.whole(path, &[], HI), routed("lora", "llama"), "{path}");
    }
    for (model, expected, base_model) in [
        (json!("llama"), "llama", "llama"),
        (json!("unknown"), "unknown", ""),
        (json!(" lora "), " lora ", "llama"),
        (json!("é"), "é", ""),
        (json!(5), "5", ""),
        (json!(true), "true", ""),
        (json!(["a", 1]), r#"["a",1]"#, ""),
    ] {
        let body = json!({"model": model}).to_string();
        assert_eq!(routing.whole(CHAT, &[], &body), routed(expected, base_model), "{body}");
    }
    assert_eq!((routing.counted("model"), routing.counted("no_model")), (13, 0));
}

#[test]
fn headers_of_a_client_are_overwritten_or_removed() {
    let routing = Routing::new(Limits::default());
    let of_client = [(MODEL_NAME, "other"), (BASE_MODEL_NAME, "other")];
    assert_eq!(routing.whole(CHAT, &of_client, HI), routed("lora", "llama"));
    assert_eq!(routing.whole(CHAT, &of_client, r#"{"messages": []}"#), WITHOUT);
    assert_eq!(routing.whole("/x", &of_client, "{}"), WITHOUT);
}

#[test]
fn a_body_without_a_model_has_no_headers() {
    let routing = Routing::new(Limits::default());
    let long = json!({"model": "m".repeat(1025)}).to_string();
    let bodies = ["{}", "null", r#"{"model": ""}"#, r#"{"model": null}"#, &long];
    for body in bodies {
        assert_eq!(routing.whole(CHAT, &[], body), WITHOUT, "{body}");
    }
    assert_eq!(routing.counted("no_model"), bodies.len() as u64);
    // An empty body is not read, as if there was none.
    assert_eq!(routing.whole(CHAT, &[], ""), WITHOUT);
    assert_eq!(routing.counted("no_model"), bodies.len() as u64);
}

#[test]
fn a_model_cannot_write_a_header_of_its_own() {
    let routing = Routing::new(Limits::default());
    for body in [r#"{"model": "m\r\nx-admin: 1"}"#, r#"{"model": "m\u0000"}"#, "{\"model\": [1,\n2]}"] {
        assert_eq!(routing.whole(CHAT, &[], body), WITHOUT, "{body}");
    }
    assert_eq!(routing.counted("no_model"), 3);
}

#[test]
fn a_body_that_is_not_an_object_is_rejected() {
    let routing = Routing::new(Limits::default());
    for (path, body) in [("/anything", "{"), ("/anything", "x"), (CHAT, "[]"), (CHAT, "\"m\"")] {
        let mut request = routing.request(path, &[]);
        assert_eq!(routing.body(&mut request, body.as_bytes(), true), Step::Rejected(400), "{body}");
        let answer = request.proxy.local_answer.unwrap();
        assert_eq!(answer.headers, [("content-type".to_owned(), "application/json".to_owned())]);
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert!(error["error"]["message"].as_str().unwrap().starts_with("failed to parse request body: "));
    }
    assert_eq!(routing.counted("malformed"), 4);
}

#[test]
fn a_form_names_its_model_where_its_path_takes_forms() {
    let routing = Routing::new(Limits::default());
    let form = "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nlora\r\n--b--\r\n";
    let headers = [("content-type", "multipart/form-data; boundary=b")];
    assert_eq!(routing.whole("/v1/audio/transcriptions", &headers, form), routed("lora", "llama"));
    assert_eq!(routing.whole(CHAT, &headers, form), Step::Rejected(400));
}

#[test]
fn grpc_and_tunnels_are_not_awaited() {
    let routing = Routing::new(Limits::default());
    for headers in [
        [("content-type", "application/grpc"), ("x", "y")],
        [("content-type", "Application/gRPC+proto"), ("x", "y")],
        [(":method", "CONNECT"), ("x", "y")],
        [(":method", "GET"), ("upgrade", "websocket")],
    ] {
        assert!(routing.request(CHAT, &headers).awaited.is_none(), "{headers:?}");
    }
    assert!(routing.request(CHAT, &[("content-type", "application/json")]).awaited.is_some());
}

#[test]
fn a_long_body_is_routed_by_its_beginning() {
    let routing = Routing::new(small(UnreadBody::Reject));
    let mut request = routing.request(TEXT, &[]);
    assert_eq!(routing.body(&mut request, &HI.as_bytes()[..30], false), Step::Held);
    assert_eq!(routing.body(&mut request, &[b' '; 900], false), Step::Held);
    assert_eq!(routing.body(&mut request, &[b' '; 100], false), routed("lora", "llama"));
    assert_eq!(request.proxy.body_reads.take(), [1024]);
}

#[test]
fn a_model_beyond_the_bytes_that_may_be_held_is_treated_as_the_limits_demand() {
    let body = format!(r#"{{"prompt": "{}"#, "a".repeat(5000));
    for (unread_body, expected) in [(UnreadBody::Reject, Step::Rejected(413)), (UnreadBody::Abstain, WITHOUT)]
    {
        let routing = Routing::new(small(unread_body));
        let mut request = routing.request(TEXT, &[(MODEL_NAME, "other")]);
        assert_eq!(routing.body(&mut request, body.as_bytes(), false), expected);
        assert_eq!(request.proxy.body_reads.take(), [1024, 2048, 4096]);
        assert_eq!(routing.counted("body_too_large"), 1);
    }
}

#[test]
fn a_refused_call_routes_the_request_without_its_model() {
    let routing = Routing::new(Limits::default());
    let mut request = routing.request(CHAT, &[]);
    request.proxy.refused = vec!["request_body"];
    assert_eq!(routing.body(&mut request, HI.as_bytes(), true), WITHOUT);
    let mut request = routing.request(CHAT, &[]);
    request.proxy.refused = vec!["set_request_header"];
    assert_eq!(routing.body(&mut request, HI.as_bytes(), true), WITHOUT);
}

/// A request over its router and the pool of its route.
fn through(fixture: &mut Fixture, path: &str, body: &str, is_whole: bool) -> (FakeProxy, Flow) {
    let routing = Routing::new(small(UnreadBody::Reject));
    let mut request = routing.request(path, &[]);
    request.proxy.now.set(crate::fixture::START);
    request.proxy.request_body = body.as_bytes().to_vec();
    let mut exchange = Exchange::new(&fixture.pool.config.limits);
    let awaited = request.awaited.as_mut().unwrap();
    let size = body.len();
    let arrived = (size, is_whole);
    let flow =
        routing.router.request_body(awaited, base_models, &mut request.proxy, arrived, |proxy, read_body| {
            match exchange.request_headers(&mut fixture.pool, proxy, false) {
                Flow::Hold => exchange.request_body_read(&mut fixture.pool, proxy, size, read_body.unwrap()),
                flow => flow,
            }
        });
    exchange.end(&mut fixture.pool);
    (request.proxy, flow.expect("a routed request"))
}

#[test]
fn the_pool_decides_by_the_reading_that_found_its_route() {
    let mut fixture = Fixture::new();
    let (proxy, flow) = through(&mut fixture, CHAT, HI, true);
    assert_eq!((flow, proxy.request_header(MODEL_NAME)), (Flow::Continue, Some("lora")));
    assert_eq!(proxy.request_header("x-gateway-destination-endpoint"), Some(address(1).as_str()));
    assert_eq!(proxy.body_reads.take(), [usize::MAX], "the body is read once");
    // So is the beginning of a long one.
    let mut fixture = Fixture::with_config(&json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 4096}}));
    let long = format!(r#"{{"model": "lora", "prompt": "{}"#, "a".repeat(3000));
    let (proxy, flow) = through(&mut fixture, TEXT, &long, false);
    assert_eq!((flow, proxy.body_reads.take()), (Flow::Continue, vec![1024]));
    assert!(proxy.request_header("x-gateway-destination-endpoint").is_some());
    assert_eq!(fixture.counted("routed"), 1);
}

#[test]
fn the_pool_refuses_and_renames_by_that_reading() {
    let policy = v1::Policy { epp_rules: v1::EppRules::V010.into(), ..fewest_waiting() };
    let mut fixture = Fixture::with_policy(&json!({}), policy);
    let (proxy, _) = through(&mut fixture, CHAT, r#"{"model": "lora"}"#, true);
    assert_eq!(proxy.local_answer.unwrap().status, 400, "a chat without messages");
    assert_eq!(proxy.request_headers.iter().filter(|(name, _)| name == MODEL_NAME).count(), 1);

    let target = v1::Target { model: "canary".to_owned(), weight: None };
    let rule = v1::RewriteRule {
        resource: "rule".to_owned(),
        models: vec!["lora".to_owned()],
        targets: vec![target],
    };
    let policy = v1::Policy { rewrite_rules: vec![rule], ..fewest_waiting() };
    let mut fixture = Fixture::with_policy(&json!({}), policy);
    let (proxy, _) = through(&mut fixture, CHAT, HI, true);
    assert!(proxy.request_body.starts_with(br#"{"model": "canary", "#));
    assert_eq!(proxy.request_header(MODEL_NAME), Some("lora"), "the header has the client's model");
    assert_eq!(proxy.body_reads.take(), [usize::MAX]);
}

#[test]
fn a_body_beyond_the_room_for_all_that_are_awaited_is_rejected() {
    let limits = Limits { max_held_bytes_in_all: Some(5_000), ..small(UnreadBody::Reject) };
    let used = Arc::<UsedBytes>::default();
    let Routing { router, sink } = Routing::new(limits);
    let routing = Routing { router: router.with_held_bodies(&used), sink };
    let part = format!(r#"{{"prompt": "{}"#, "x".repeat(2_988));
    let mut first = routing.request(TEXT, &[]);
    assert_eq!(routing.body(&mut first, part.as_bytes(), false), Step::Held);
    let mut second = routing.request(TEXT, &[]);
    assert_eq!(routing.body(&mut second, part.as_bytes(), false), Step::Rejected(503));
    let answer = second.proxy.local_answer.as_ref().unwrap();
    assert!(answer.headers.contains(&("retry-after".to_owned(), "1".to_owned())), "{answer:?}");
    assert_eq!((routing.counted("held_bodies"), used.get()), (1, part.len()));
    assert_eq!(routing.body(&mut first, br#"", "model": "lora"}"#, true), routed("lora", "llama"));
    assert_eq!(used.get(), 0, "the pool of the route counts it from here on");
    let mut gone = routing.request(TEXT, &[]);
    assert_eq!(routing.body(&mut gone, part.as_bytes(), false), Step::Held);
    drop(gone);
    assert_eq!(used.get(), 0);
}
