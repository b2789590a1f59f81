//! The main job: a request goes to the best model server.

use endpoint_picker_e2e::fixture::{DESTINATION, fresh_chat, until_all_go_to};
use endpoint_picker_e2e::statistics::{IN_FLIGHT, ROUTED, published_statistics, statistics};
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, Metrics};
use reqwest::{Method, StatusCode};

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_to_the_best_server_and_elsewhere_when_the_metrics_have_changed() {
    let stack = Stack::builder().start().await;
    // (waiting, KV cache usage) of each server.
    let cases = [
        (2, [(7, 0.0), (3, 0.0), (1, 0.0)], "has the shortest queue"),
        (0, [(1, 0.0), (3, 0.0), (2, 0.0)], "has the shortest queue"),
        (1, [(9, 0.0), (0, 0.0), (9, 0.0)], "has no queue"),
        (2, [(0, 0.9), (0, 0.5), (0, 0.2)], "has the emptiest cache"),
        (0, [(0, 0.3), (0, 0.95), (0, 0.7)], "has the emptiest cache"),
        (1, [(4, 0.5), (4, 0.1), (4, 0.5)], "has the emptiest cache and the same queue"),
        (2, [(8, 0.3), (9, 0.3), (0, 0.6)], "has a fuller cache, but no queue"),
        (0, [(1, 0.1), (0, 0.9), (4, 0.5)], "has a queue, but a much emptier cache"),
        (1, [(5, 0.6), (0, 0.1), (5, 0.6)], "has the shorter queue and the emptier cache"),
    ];
    for (best, metrics_of_servers, why) in cases {
        for (server, (waiting, kv_cache_usage)) in stack.servers().iter().zip(metrics_of_servers) {
            server.update_metrics(|metrics| {
                *metrics = Metrics { waiting, kv_cache_usage, ..Metrics::default() };
            });
        }
        eprintln!("server {best} {why}: {metrics_of_servers:?}");
        until_all_go_to(&stack, best).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn header_metadata_and_serving_endpoint_agree() {
    let stack = Stack::builder().start().await;
    let paths = ["/v1/chat/completions", "/v1/completions", "/v1/models", "/some/path"];
    for (round, path) in (0..4).flat_map(|round| paths.map(|path| (round, path))) {
        let path = format!("{path}?round={round}");
        let client = if round % 2 == 0 { client::http1() } else { client::h2c() };
        let request = match path.as_str() {
            chat if chat.starts_with("/v1/chat") => client.post(stack.url(&path)).json(&fresh_chat()),
            text if text.starts_with("/v1/comp") => {
                client.post(stack.url(&path)).json(&client::completion("hi"))
            }
            _ => client.request(Method::GET, stack.url(&path)),
        };
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");

        let server = &stack.servers()[stack.served_by(&response)];
        let received = server.take_requests();
        assert_eq!(received.len(), 1, "{path}");
        let at_the_server: Vec<_> = received[0].headers.get_all(DESTINATION).iter().collect();
        assert_eq!(at_the_server, [&server.endpoint()], "{path}");
        let entry = stack.logged(&path).await;
        for field in ["header", "metadata", "upstream"] {
            assert_eq!(entry[field], server.endpoint(), "field {field} of {entry}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picker_twice_in_one_chain_counts_each_request_once() {
    let stack = Stack::builder().change(Config::repeat_picker).start().await;
    let before = published_statistics(&stack).await.count(ROUTED);
    for client in [client::http1(), client::h2c()] {
        for request in [
            client.post(stack.url("/v1/chat/completions")).json(&fresh_chat()),
            client.get(stack.url("/v1/models")),
        ] {
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let server = &stack.servers()[stack.served_by(&response)];
            assert_eq!(server.take_requests()[0].header(DESTINATION), Some(server.endpoint().as_str()));
        }
    }
    assert_eq!(published_statistics(&stack).await.count(ROUTED) - before, 4);

    for server in stack.servers() {
        server.behave(Behaviour::Hang);
    }
    let request = client::http1().post(stack.url("/v1/chat/completions")).json(&fresh_chat());
    let request = tokio::spawn(request.send());
    let in_flight = eventually("a request is in flight", async || {
        let in_flight = statistics(&stack).await.count(IN_FLIGHT);
        if in_flight > 0 { Ok(in_flight) } else { Err("none is") }
    })
    .await;
    assert_eq!(in_flight, 1);
    request.abort();
}
