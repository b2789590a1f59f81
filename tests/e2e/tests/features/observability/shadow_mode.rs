//! The filter as the shadow of another picker in the same chain.

use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, LEAST_LOADED, TEXT, fresh_chat, fresh_prompt};
use endpoint_picker_e2e::statistics::{published_statistics, until_counted};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{Behaviour, ModelServer, ReceivedRequest};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

/// The header with which a test makes the other picker choose.
const CHOICE: &str = "x-test-choice";

/// The header of another picker: it has the test's choice.
fn choice_as_header() -> Value {
    let copied = json!({"key": DESTINATION, "value": format!("%REQ({CHOICE})%")});
    json!({
        "name": "other-picker",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
            "mutations": {"request_mutations": [
                {"append": {"header": copied, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}},
                {"remove": CHOICE},
            ]},
        },
    })
}

/// The metadata of another picker, which the cluster reads.
fn choice_as_metadata() -> Value {
    let target = json!({"metadata_namespace": "envoy.lb", "key": DESTINATION, "type": "STRING"});
    json!({
        "name": "other-pickers-metadata",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{"header": DESTINATION, "on_header_present": target}],
        },
    })
}

/// Counts of comparisons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    agreed: u64,
    disagreed: u64,
    rejected: u64,
    unknown_endpoint: u64,
    not_compared: u64,
}

impl Counts {
    async fn of(stack: &Stack) -> Self {
        let statistics = published_statistics(stack).await;
        let count = |name: &str| statistics.count(&format!("shadow_{name}{{pool=\"default\"}}"));
        Self {
            agreed: count("agreed"),
            disagreed: count("disagreed"),
            rejected: count("rejected"),
            unknown_endpoint: count("unknown_endpoint"),
            not_compared: count("not_compared"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            agreed: self.agreed - before.agreed,
            disagreed: self.disagreed - before.disagreed,
            rejected: self.rejected - before.rejected,
            unknown_endpoint: self.unknown_endpoint - before.unknown_endpoint,
            not_compared: self.not_compared - before.not_compared,
        }
    }
}

/// Starts a stack with another picker and its shadow, and waits until every worker compares.
async fn start(builder: Builder) -> Stack {
    let builder = builder.picker_field("mode", "shadow");
    let builder = builder.filter_before_picker(choice_as_header()).filter_before_picker(choice_as_metadata());
    let mut stack = builder.without_agent().start().await;
    stack.start_agent().await;
    eventually("every worker compares", async || {
        let before = Counts::of(&stack).await;
        for _ in 0..20 {
            chosen(&stack, &stack.servers()[0].endpoint(), &fresh_chat()).await;
        }
        match Counts::of(&stack).await.since(before) {
            Counts { not_compared: 0, rejected: 0, .. } => Ok(()),
            counts => Err(format!("{counts:?}")),
        }
    })
    .await;
    forget(&stack);
    stack
}

/// A request for which the other picker has this choice, on a connection of its own.
async fn chosen(stack: &Stack, choice: &str, body: &Value) -> Response {
    client::http1().post(stack.url(CHAT)).header(CHOICE, choice).json(body).send().await.unwrap()
}

/// Sends requests that the other picker sends to this server, which must serve them; returns the counts of
/// their comparisons.
async fn compare(stack: &Stack, requests: usize, server: usize) -> Counts {
    let before = Counts::of(stack).await;
    for _ in 0..requests {
        let response = chosen(stack, &stack.servers()[server].endpoint(), &fresh_chat()).await;
        assert_eq!((response.status(), stack.served_by(&response)), (StatusCode::OK, server));
    }
    Counts::of(stack).await.since(before)
}

/// Gives every server a queue but one, and waits until the shadow picks the server without a queue.
async fn prefer(stack: &Stack, best: usize) {
    for (index, server) in stack.servers().iter().enumerate() {
        server.update_metrics(|metrics| metrics.waiting = if index == best { 0 } else { 5 });
    }
    eventually("the shadow picks the best server", async || match compare(stack, 10, best).await {
        Counts { agreed: 10, .. } => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    forget(stack);
}

fn forget(stack: &Stack) {
    take(stack);
}

/// The requests that servers have received.
fn take(stack: &Stack) -> Vec<ReceivedRequest> {
    stack.servers().iter().flat_map(ModelServer::take_requests).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_where_the_other_picker_sends_them_and_agreement_is_counted() {
    let stack = start(Stack::builder()).await;
    prefer(&stack, 1).await;
    assert_eq!(compare(&stack, 10, 1).await, Counts { agreed: 10, ..Counts::default() });
    assert_eq!(compare(&stack, 10, 2).await, Counts { disagreed: 10, ..Counts::default() });
    for request in take(&stack) {
        let headers = ["x-endpoint-picker-explanation", "x-endpoint-picker-fallback", CHOICE];
        assert!(headers.iter().all(|name| request.header(name).is_none()), "{request:?}");
        let destination = request.header(DESTINATION);
        assert!(stack.servers()[1..].iter().any(|server| destination == Some(&server.endpoint())));
    }

    let metrics = stack.agent().unwrap().metrics().await.unwrap();
    for agrees in ["true", "false"] {
        let is_counted = |line: &str| {
            line.starts_with("endpoint_picker_shadow_decisions_total{")
                && line.contains(&format!("agrees=\"{agrees}\""))
        };
        assert!(metrics.lines().any(is_counted), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_shadow_would_refuse_or_cannot_compare_passes() {
    let stack = start(Stack::builder().picker_field("failureMode", "FailClose")).await;
    let first = stack.servers()[0].endpoint();
    let before = Counts::of(&stack).await;
    let post = async |choice: Option<&str>, body: &str| {
        let mut request = client::http1().post(stack.url(TEXT)).body(body.to_owned());
        if let Some(choice) = choice {
            request = request.header(CHOICE, choice);
        }
        request.send().await.unwrap();
    };
    post(Some(&first), "not JSON").await;
    post(Some("127.0.0.1:1"), &client::completion(&fresh_prompt()).to_string()).await;
    post(None, &client::completion(&fresh_prompt()).to_string()).await;
    client::http1().get(stack.url("/v1/models")).header(CHOICE, &first).send().await.unwrap();
    assert_eq!(take(&stack).len(), 4, "all have reached a server");
    let expected = Counts { agreed: 0, disagreed: 2, rejected: 1, unknown_endpoint: 1, not_compared: 1 };
    assert_eq!(Counts::of(&stack).await.since(before), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_not_held() {
    const LIMIT: u32 = 64 << 10;
    let builder = Stack::builder().change(|config| {
        config.document()["static_resources"]["listeners"][0]["per_connection_buffer_limit_bytes"] =
            LIMIT.into();
        Ok(())
    });
    let stack = start(builder).await;
    let before = Counts::of(&stack).await;
    let body = client::chat(&fresh_prompt().repeat(5000));
    let response = chosen(&stack, &stack.servers()[2].endpoint(), &body).await;
    assert_eq!((response.status(), stack.served_by(&response)), (StatusCode::OK, 2));
    let received = take(&stack);
    assert_eq!(received.len(), 1);
    assert!(received[0].body.len() > 2 << 20 && received[0].body == body.to_string());
    let Counts { agreed, disagreed, .. } = Counts::of(&stack).await.since(before);
    assert_eq!(agreed + disagreed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_are_counted_where_the_other_picker_sends_requests() {
    let stack = start(Stack::builder().workers(4).manifests(LEAST_LOADED)).await;
    stack.servers()[0].behave(Behaviour::Hang);
    let endpoint = stack.servers()[0].endpoint();
    let held: Vec<_> = (0..4)
        .map(|_| {
            let request = client::http1().post(stack.url(CHAT)).header(CHOICE, &endpoint);
            tokio::spawn(request.json(&fresh_chat()).send())
        })
        .collect();
    until_counted(&stack, "in_flight", 4).await;
    stack.servers()[0].behave(Behaviour::Answer);
    assert_eq!(compare(&stack, 10, 0).await, Counts { disagreed: 10, ..Counts::default() });
    assert_eq!(compare(&stack, 10, 1).await, Counts { agreed: 10, ..Counts::default() });
    held.iter().for_each(tokio::task::JoinHandle::abort);
    until_counted(&stack, "in_flight", 0).await;
    assert_eq!(compare(&stack, 10, 0).await, Counts { agreed: 10, ..Counts::default() });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_has_both_picks() {
    // Each form of the filter has a place of its own for it.
    const BOTH: &str = "%DYNAMIC_METADATA(endpoint-picker:explanation)% %FILTER_STATE(wasm.endpoint-picker.explanation:PLAIN)%";
    const FORMAT: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/access_log/0/typed_config/log_format/json_format/explanation";
    let builder = Stack::builder().picker_field("explain", json!({"accessLog": true})).value_at(FORMAT, BOTH);
    let stack = start(builder).await;
    prefer(&stack, 1).await;
    let path = format!("{CHAT}?why");
    let choice = stack.servers()[2].endpoint();
    let request = client::http1().post(stack.url(&path)).header(CHOICE, &choice).json(&fresh_chat());
    assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
    let entry = stack.logged(&path).await;
    let text = entry["explanation"].as_str().unwrap_or_default();
    assert!(text.contains(&format!("routed; {} ", stack.servers()[1].endpoint())), "{entry}");
    assert!(text.contains(&format!("; the acting picker picks {choice}: different")), "{entry}");
    assert!(take(&stack).iter().all(|request| request.header("x-endpoint-picker-explanation").is_none()));
}
