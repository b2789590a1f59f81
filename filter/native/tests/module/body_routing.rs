//! Body-based routing: the model of the body, the route that results, and its pool.

use endpoint_picker_wire::MODELS_FORMAT;
use endpoint_picker_wire::models::{BaseModel, Models};
use serde_json::{Value, json};

use crate::envoy::{Config, Next, Request, Route};
use crate::pool::{Agent, address, fewest_waiting, snapshot, turn};

const MODEL: &str = "x-gateway-model-name";
const BASE_MODEL: &str = "x-gateway-base-model-name";

fn chat(model: &Value) -> Vec<u8> {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string().into_bytes()
}

/// A filter in the chain that routes by bodies, and an agent with one pool. The adapter `lora` has the base
/// model `llama`.
struct Fixture {
    config: Config,
    route: Route,
    _agent: Agent,
}

fn fixture(pool: &str, fields: &Value) -> Fixture {
    let agent = Agent::start();
    agent.publish(snapshot(pool, fewest_waiting(), &[10, 0, 20]));
    let llama = BaseModel { name: "llama".to_owned(), adapters: vec!["lora".to_owned()] };
    agent.publish_models(&Models { format: MODELS_FORMAT, version: 1, base_models: vec![llama] });
    let mut chain = json!({"pool": null, "agent": agent.access(), "bodyBasedRouting": true});
    chain.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let config = Config::new(&chain).unwrap();
    let route = Route::new(&json!({"pool": pool, "agent": agent.access()})).unwrap();
    agent.wait_until_taken();
    agent.wait_until_models_taken();
    Fixture { config, route, _agent: agent }
}

impl Fixture {
    /// A chat, whose model `lora` has a route to the pool. All other requests have a route without one.
    fn chat(&self) -> Request {
        let request = Request::chat(&self.config, 0);
        request.set_route_of("lora", &self.route);
        request
    }
}

#[test]
fn the_model_leads_to_the_route_and_its_pool() {
    let _turn = turn();
    let fixture = fixture("bodies-1", &json!({}));
    let request = fixture.chat();
    request.set_header(MODEL, "of-the-client");
    let body = chat(&json!("lora"));
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(&body[..20], false), Next::Hold);
    assert_eq!((request.header(MODEL), request.cleared_routes()), (None, 0));
    assert_eq!(request.body(&body[20..], true), Next::Continue);
    assert_eq!(request.header(MODEL).as_deref(), Some("lora"));
    assert_eq!(request.header(BASE_MODEL).as_deref(), Some("llama"));
    assert_eq!((request.cleared_routes(), request.destinations()), (1, Some(address(2))));
    assert_eq!(request.sent_body().as_bytes(), body);
    request.answer_headers(&address(2), &[(":status", "200")], true);
    fixture.config.wait_for("endpoint_picker.routed", &[("pool", "bodies-1")], 1);
    // No pool has the count, so it has those of other tests too.
    fixture.config.run_until("the outcome is counted", |config| {
        let outcome = [("pool", ""), ("outcome", "model")];
        config.metric("endpoint_picker.body_based_routing", &outcome).filter(|count| *count > 0)
    });
}

#[test]
fn a_model_without_a_pool_passes_with_its_header() {
    let _turn = turn();
    let fixture = fixture("bodies-2", &json!({}));
    let request = fixture.chat();
    assert_eq!(request.headers(false), Next::Hold);
    let body = chat(&json!("other"));
    assert_eq!(request.body(&body, false), Next::Hold);
    assert_eq!(request.trailers(), Next::Continue);
    assert_eq!(request.header(MODEL).as_deref(), Some("other"));
    assert_eq!(request.header(BASE_MODEL), None);
    assert_eq!((request.cleared_routes(), request.destinations()), (1, None));
    assert_eq!(request.sent_body().as_bytes(), body);
}

#[test]
fn a_request_without_a_body_or_of_grpc_keeps_its_route_and_its_headers() {
    let _turn = turn();
    let fixture = fixture("bodies-3", &json!({}));
    let request = fixture.chat();
    request.set_header(MODEL, "lora");
    assert_eq!(request.headers(true), Next::Continue);
    assert_eq!((request.header(MODEL).as_deref(), request.cleared_routes()), (Some("lora"), 0));

    let path = (":path", "/inference.Models/Generate");
    let head = [(":method", "POST"), path, ("content-type", "application/grpc")];
    let grpc = Request::new(&fixture.config, 0, &head);
    grpc.set_route(Some(&fixture.route));
    assert_eq!(grpc.headers(false), Next::Continue);
    assert!(grpc.destinations().is_some(), "the pool of the route decides without the body");
}

#[test]
fn a_malformed_body_is_rejected_and_a_long_one_is_routed_by_its_beginning() {
    let _turn = turn();
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 4096}});
    let fixture = fixture("bodies-4", &limits);
    let request = fixture.chat();
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(b"{", true), Next::Drop);
    let reply = request.reply().unwrap();
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("failed to parse request body: "), "{reply:?}");
    assert_eq!(request.cleared_routes(), 0);

    // The pool of the route looks at more bytes than the router.
    let request = fixture.chat();
    request.replace_header("content-length", &[]);
    assert_eq!(request.headers(false), Next::Hold);
    let content = "a".repeat(5000);
    let body = format!(r#"{{"model": "lora", "messages": [{{"role": "user", "content": "{content}"}}]}}"#);
    assert_eq!(request.body(&body.as_bytes()[..3000], false), Next::Hold);
    assert_eq!((request.header(MODEL).as_deref(), request.cleared_routes()), (Some("lora"), 1));
    assert!(request.buffer_limit() > 32 << 20, "the limit of the route's pool");
    assert_eq!(request.body(&body.as_bytes()[3000..], true), Next::Continue);
    assert_eq!((request.cleared_routes(), request.destinations()), (1, Some(address(2))));
    assert_eq!(request.sent_body(), body);
}

#[test]
fn the_setting_is_refused_for_a_route_and_without_agents() {
    let _turn = turn();
    let agent = json!({"addresses": ["http://127.0.0.1:9"]});
    assert!(Config::new(&json!({"pool": null, "bodyBasedRouting": true})).is_none());
    assert!(Config::new(&json!({"pool": null, "bodyBasedRouting": 1, "agent": agent})).is_none());
    assert!(Route::new(&json!({"pool": null, "bodyBasedRouting": true, "agent": agent})).is_none());
    assert!(Config::new(&json!({"pool": null, "bodyBasedRouting": true, "agent": agent})).is_some());
}
