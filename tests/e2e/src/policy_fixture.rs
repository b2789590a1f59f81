//! A stack with a scripted agent, for tests of policies.

use crate::fixture::{TEXT, fresh_prompt};
use endpoint_picker_harness::client;
use endpoint_picker_harness::scripted_agent::{Pool, ScriptedAgent};
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{ModelServer, ReceivedRequest};
use endpoint_picker_wire::v1;
use reqwest::{Body, Client, Response};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// The pool of the shipped configuration.
pub const POOL: &str = "default";

/// A stack whose agent serves the policy of a test.
#[derive(Debug)]
pub struct PolicyFixture {
    /// The stack.
    pub stack: Stack,
    /// Its agent.
    pub agent: ScriptedAgent,
}

impl PolicyFixture {
    /// Starts it with the shipped configuration.
    pub async fn start(policy: v1::Policy) -> Self {
        Self::build(policy, Stack::builder()).await
    }

    /// Starts it with the options of a stack.
    pub async fn build(policy: v1::Policy, builder: Builder) -> Self {
        let agent = ScriptedAgent::start().await.unwrap();
        let stack = builder.own_agent(agent.address()).start().await;
        let fixture = Self { stack, agent };
        fixture.set(policy);
        fixture.stack.wait_until_picking().await;
        fixture.take_requests();
        fixture
    }

    /// Lets the agent serve another policy.
    pub fn set(&self, policy: v1::Policy) {
        self.agent.set(POOL, Pool { endpoints: self.endpoints(), waiting: 0, policy });
    }

    /// The servers' addresses.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        self.stack.servers().iter().map(ModelServer::address).collect()
    }

    /// Everything the servers have received since the last call.
    pub fn take_requests(&self) -> Vec<ReceivedRequest> {
        self.stack.servers().iter().flat_map(ModelServer::take_requests).collect()
    }

    /// The one request they have received.
    pub fn received(&self) -> ReceivedRequest {
        let mut requests = self.take_requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    /// Posts a body.
    pub async fn post(&self, client: &Client, path: &str, body: impl Into<Body>) -> Response {
        client.post(self.stack.url(path)).body(body).send().await.unwrap()
    }

    /// Posts a completion for this model with these headers.
    pub async fn ask(&self, model: &str, headers: &[(&str, &str)]) -> Response {
        let mut request = client::http1().post(self.stack.url(TEXT));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.json(&json!({"model": model, "prompt": fresh_prompt()})).send().await.unwrap()
    }
}

/// A model that a rule names.
pub fn target(model: &str, weight: Option<u32>) -> v1::Target {
    v1::Target { model: model.to_owned(), weight }
}

/// A rule for the requests of a model.
pub fn rule(model: &str, targets: Vec<v1::Target>) -> v1::RewriteRule {
    v1::RewriteRule { resource: "rewrite".to_owned(), models: vec![model.to_owned()], targets }
}

/// `llama` becomes `llama-canary`.
pub fn rewriting() -> v1::Policy {
    v1::Policy {
        rewrite_rules: vec![rule("llama", vec![target("llama-canary", None)])],
        ..v1::Policy::default()
    }
}

/// The model in a request's body.
pub fn model_of(request: &ReceivedRequest) -> String {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    body["model"].as_str().unwrap().to_owned()
}
