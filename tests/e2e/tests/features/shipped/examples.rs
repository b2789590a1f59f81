//! The shipped examples, each with its differences from `envoy.yaml`.

use endpoint_picker_e2e::fixture::{
    CHAT, DESTINATION, TEXT, forget_requests, fresh_chat, prefer, request_counts, until_picked,
};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_harness::{client, subset_hint};
use endpoint_picker_model_server::{Behaviour, ModelServer};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::fs;

/// Picks by queue, and names up to three endpoints in the header.
const LIST_OF_THREE: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - { type: queue-scorer }
  - { type: max-score-picker, parameters: { maxNumOfEndpoints: 3 } }
";

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_and_a_foreign_backend_share_a_listener() {
    const FOREIGN_PORT: &str = "/static_resources/clusters/2/load_assignment/endpoints/0/lb_endpoints/0/endpoint\
                                /address/socket_address/port_value";
    let foreign = ModelServer::start().unwrap();
    // The test's endpoints have their own label.
    let pools = fs::read_to_string(tools::root().join("examples/two-pools/pools.yaml")).unwrap();
    let pools = pools.replace("serves: chat", "side: left").replace("serves: embeddings", "side: right");
    let builder = Stack::builder().servers(4).config("examples/two-pools").manifests(&pools);
    let builder = builder.one_eds_file_per_pool().value_at(FOREIGN_PORT, foreign.address().port());
    let stack = builder.start().await;
    until_picked(&stack, "/embed/picking").await;
    forget_requests(&stack);

    for (prefix, side) in [("", 0), ("/embed", 1)] {
        for _ in 0..8 {
            let response = stack.post(&format!("{prefix}{CHAT}"), &fresh_chat()).await;
            assert_eq!(response.status(), StatusCode::OK);
            let served = stack.served_by(&response);
            assert_eq!(served % 2, side, "{prefix}");
            let received = stack.servers()[served].take_requests();
            assert_eq!(received[0].header(DESTINATION), Some(stack.servers()[served].endpoint().as_str()));
        }
    }
    assert_eq!(foreign.requests().len(), 0);

    // What a client sends in the picker's place does not count, and no picker reads the body: one without a
    // model is served.
    let request = client::http1().post(stack.url("/hosted/v1/chat/completions"));
    let request = request.header(DESTINATION, stack.servers()[0].endpoint()).json(&json!({"messages": []}));
    assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
    let received = foreign.take_requests();
    assert_eq!((received.len(), received[0].header(DESTINATION)), (1, None));
    assert_eq!(request_counts(&stack), [0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_request_is_not_picked_and_tokens_are_counted_under_the_clients_model() {
    const BUCKET: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters/0\
                          /typed_config/token_bucket";
    const REWRITE: &str = "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: { name: canary }
spec: { poolRef: { name: default }, rules: [{ targets: [{ modelRewrite: demo-canary }] }] }
";
    // Enough for the start, and no more for an hour.
    const REQUESTS: u32 = 400;
    const LIMITED: u64 = 6;
    let builder = Stack::builder().config("examples/rate-limit-and-tokens").manifests(REWRITE);
    let bucket = json!({"max_tokens": REQUESTS, "tokens_per_fill": 1, "fill_interval": "3600s"});
    let stack = builder.value_at(BUCKET, bucket).start().await;

    let path = format!("{CHAT}?counted");
    let answer: Value = stack.post(&path, &fresh_chat()).await.json().await.unwrap();
    let received: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
    let received: Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!(received["model"], "demo-canary");
    let entry = stack.logged(&path).await;
    assert_eq!(entry["model"], "demo-model", "{entry}");
    assert_eq!(entry["tokens"], answer["usage"]["total_tokens"], "{entry}");

    let mut allowed = 0;
    loop {
        let response = stack.post(CHAT, &fresh_chat()).await;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            break;
        }
        assert_eq!(response.status(), StatusCode::OK);
        allowed += 1;
        assert!(allowed <= REQUESTS, "no request was limited");
    }
    for _ in 1..LIMITED {
        let response = stack.post(CHAT, &fresh_chat()).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    eventually("the picker has decided all requests but the limited ones", async || {
        let completed = stack.envoy().stat("http.inference.downstream_rq_completed").await?;
        let decided = statistics(&stack).await.decided();
        anyhow::ensure!(decided + LIMITED == completed, "it has decided {decided} of {completed}");
        anyhow::Ok(())
    })
    .await;
}

/// Endpoints of two zones, as the agent reads them.
fn in_zones(stack: &Stack) -> String {
    let zones = ["a", "b", "a"];
    let endpoints = stack.servers().iter().zip(zones).map(|(server, zone)| {
        let (address, port) = (server.address().ip().to_string(), server.address().port().to_string());
        json!({"name": format!("server-{port}"), "address": address, "port": port, "labels": {"zone": zone}})
    });
    json!({"endpoints": endpoints.collect::<Vec<_>>()}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_subset_load_balancer_takes_the_picked_endpoint_and_else_those_with_a_label() {
    let builder = Stack::builder().config("examples/subset").manifests(LIST_OF_THREE);
    let builder = builder.filter_before_picker(subset_hint::filter());
    let stack = builder.route_without_picker("/unpicked/").start().await;
    for best in [1, 2, 0] {
        prefer(&stack, best).await;
    }
    hints_hold_beside_the_subset_load_balancer(&stack).await;

    stack.set_endpoints_text(&in_zones(&stack)).unwrap();
    eventually("requests without a choice stay in the zone", async || {
        forget_requests(&stack);
        for _ in 0..20 {
            let response = client::http1().get(stack.url("/unpicked/v1/models")).send().await?;
            anyhow::ensure!(response.status() == StatusCode::OK, "{}", response.status());
        }
        let counts = request_counts(&stack);
        anyhow::ensure!(counts[0] > 0 && counts[1] == 0 && counts[2] > 0, "{counts:?}");
        anyhow::Ok(())
    })
    .await;
    // The picker's choice is not bound to the label.
    prefer(&stack, 1).await;
}

/// The first server is the best, and outside of the hints.
async fn hints_hold_beside_the_subset_load_balancer(stack: &Stack) {
    let endpoints: Vec<String> = stack.servers().iter().map(ModelServer::endpoint).collect();
    let ask = async |hint: &[String]| {
        let request = client::http1().post(stack.url(CHAT)).json(&fresh_chat());
        request.header(subset_hint::HEADER, subset_hint::list(hint)).send().await.unwrap()
    };
    for hint in [&endpoints[1..2], &endpoints[1..]] {
        for _ in 0..10 {
            let response = ask(hint).await;
            assert_eq!(response.status(), StatusCode::OK);
            let served = stack.served_by(&response);
            assert!(hint.contains(&endpoints[served]), "{hint:?}: {served}");
            let received = stack.servers()[served].take_requests();
            assert_eq!(received[0].header(DESTINATION), Some(endpoints[served].as_str()), "one endpoint");
        }
    }
    stack.servers()[1].behave(Behaviour::Reset);
    for _ in 0..6 {
        assert_eq!(ask(&endpoints[1..2]).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    stack.servers()[1].behave(Behaviour::Answer);
    assert_eq!(request_counts(stack)[0], 0);
}

/// The example with an `ORIGINAL_DST` cluster, whose hosts are those that the picker chooses.
async fn original_dst() -> Stack {
    Stack::builder().config("examples/original-dst").start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_dst_cluster_serves_from_the_best_server_and_header_and_upstream_agree() {
    let stack = original_dst().await;
    for best in [2, 0, 1] {
        prefer(&stack, best).await;
        let endpoint = stack.servers()[best].endpoint();
        for (index, client) in [client::http1(), client::h2c()].iter().enumerate() {
            for path in [CHAT, TEXT] {
                let path = format!("{path}?best={best}&client={index}");
                let body = if path.starts_with(CHAT) { fresh_chat() } else { client::completion("hello") };
                let response = client.post(stack.url(&path)).json(&body).send().await.unwrap();
                assert_eq!(response.status(), StatusCode::OK);
                let served = &stack.servers()[stack.served_by(&response)];
                let received = served.take_requests();
                assert_eq!(received[0].header(DESTINATION), Some(served.endpoint().as_str()));
                assert_eq!(received[0].body, body.to_string());
                let entry = stack.logged(&path).await;
                assert_eq!(entry["header"], served.endpoint(), "{entry}");
                assert_eq!(entry["metadata"], served.endpoint(), "{entry}");
                assert_eq!(entry["upstream"], served.endpoint(), "{entry}");
                if path.starts_with(CHAT) {
                    assert_eq!(served.endpoint(), endpoint);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_dst_cluster_serves_streams_bodiless_requests_and_new_endpoints() {
    let stack = original_dst().await;
    let mut body = fresh_chat();
    body["stream"] = json!(true);
    let answer = stack.post(CHAT, &body).await.text().await.unwrap();
    assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}");

    let models = client::http1().get(stack.url("/v1/models")).send().await.unwrap();
    assert_eq!(models.json::<Value>().await.unwrap()["object"], "list");

    forget_requests(&stack);
    let extra = ModelServer::start().unwrap();
    stack.set_endpoints(&[extra.address()]);
    eventually("the new endpoint serves", async || {
        let response = stack.post(CHAT, &fresh_chat()).await;
        let served = response.headers()["x-served-by"].clone();
        if served == extra.endpoint() { Ok(()) } else { Err(format!("{served:?} does")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_dst_cluster_serves_from_the_first_endpoint_of_a_list() {
    let builder = Stack::builder().config("examples/original-dst").manifests(LIST_OF_THREE);
    let stack = builder.start().await;
    prefer(&stack, 1).await;
    let path = format!("{CHAT}?list");
    let response = stack.post(&path, &fresh_chat()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(stack.served_by(&response), 1);
    let entry = stack.logged(&path).await;
    let list: Vec<_> = entry["header"].as_str().unwrap().split(',').collect();
    assert_eq!((list.len(), list[0]), (3, stack.servers()[1].endpoint().as_str()), "{entry}");
    assert_eq!(entry["metadata"], entry["header"], "{entry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_dst_cluster_leaves_a_server_that_refuses_once_the_agent_has_seen_it() {
    let stack = original_dst().await;
    prefer(&stack, 1).await;
    stack.servers()[1].refuse().await.unwrap();
    eventually("another server serves", async || {
        let status = stack.post(CHAT, &fresh_chat()).await.status();
        if status == StatusCode::OK { Ok(()) } else { Err(status) }
    })
    .await;
}
