//! The subset hint: an earlier filter narrows the choice through metadata.

use endpoint_picker_e2e::fixture::{
    DROPPED_REASON, assert_no_endpoints, forget_requests, fresh_chat, prefer, request_counts,
};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::{client, subset_hint};
use endpoint_picker_model_server::{Behaviour, ModelServer};
use reqwest::{Client, Response, StatusCode};
use serde_json::json;

async fn stack() -> Stack {
    Stack::builder().filter_before_picker(subset_hint::filter()).start().await
}

/// A chat, and a request without a body.
async fn ask(stack: &Stack, client: &Client, hint: &str) -> [Response; 2] {
    let chat = client.post(stack.url("/v1/chat/completions")).json(&fresh_chat());
    let bodiless = client.get(stack.url("/v1/models"));
    [
        chat.header(subset_hint::HEADER, hint).send().await.unwrap(),
        bodiless.header(subset_hint::HEADER, hint).send().await.unwrap(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_stay_inside_the_hint_even_when_the_best_server_is_outside() {
    let stack = stack().await;
    prefer(&stack, 1).await;
    let endpoints: Vec<String> = stack.servers().iter().map(ModelServer::endpoint).collect();
    for inside in [vec![0, 2], vec![2], vec![0], vec![1]] {
        let names: Vec<&String> = inside.iter().map(|index| &endpoints[*index]).collect();
        let strings = names.iter().map(|name| name.as_str()).collect::<Vec<_>>();
        let hints = [
            subset_hint::list(&names),
            subset_hint::string(&strings.join(",")),
            subset_hint::string(&strings.join(", ")),
            // One that is not in the pool changes nothing.
            subset_hint::list(&[strings.as_slice(), &["10.1.2.3:4"]].concat()),
            subset_hint::string(&format!("10.1.2.3:4,{}", strings.join(","))),
        ];
        for hint in hints {
            for client in [client::http1(), client::h2c()] {
                for _ in 0..6 {
                    for response in ask(&stack, &client, &hint).await {
                        assert_eq!(response.status(), StatusCode::OK, "{inside:?}");
                        let served = stack.served_by(&response);
                        assert!(inside.contains(&served), "server {served} is not in {inside:?}");
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inside_the_hint_the_best_server_is_taken() {
    let stack = stack().await;
    prefer(&stack, 2).await;
    let hint = subset_hint::list(&[stack.servers()[0].endpoint(), stack.servers()[2].endpoint()]);
    for _ in 0..10 {
        let [chat, _] = ask(&stack, &client::http1(), &hint).await;
        assert_eq!(stack.served_by(&chat), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_that_is_empty_or_matches_nothing_is_answered_503_with_the_reason() {
    let stack = stack().await;
    forget_requests(&stack);
    let port = stack.servers()[0].address().port();
    let hints = [
        ("an empty list", subset_hint::list::<&str>(&[])),
        ("an empty string", subset_hint::string("")),
        ("a list of an endpoint that is not in the pool", subset_hint::list(&["10.1.2.3:4"])),
        ("a string of endpoints that are not in the pool", subset_hint::string("10.1.2.3:4,10.1.2.3:5")),
        ("the address of a server with another port", subset_hint::list(&["127.0.0.1:1"])),
        ("the address of a server without its port", subset_hint::string("127.0.0.1")),
        ("another address with the port of a server", subset_hint::string(&format!("127.0.0.2:{port}"))),
        ("a list of something else", subset_hint::list(&["", ",", "nonsense", "127.0.0.1:99999"])),
    ];
    for (case, hint) in &hints {
        for client in [client::http1(), client::h2c()] {
            for response in ask(&stack, &client, hint).await {
                assert_no_endpoints(response, case).await;
            }
        }
    }
    assert_eq!(request_counts(&stack), [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_that_cannot_be_read_is_answered_503_with_the_reason() {
    let stack = stack().await;
    let endpoint = stack.servers()[0].endpoint();
    let hints = [
        json!(null),
        json!([null]),
        json!([endpoint, null]),
        json!([endpoint, 5]),
        json!([endpoint, true]),
        json!([endpoint, {}]),
        json!([endpoint, [endpoint]]),
        json!({"endpoint": null}),
        json!([[endpoint]]),
        json!([{"endpoint": endpoint}, [null]]),
        json!({"endpoint": endpoint}),
        json!(5.0),
        json!(true),
    ];
    for hint in hints {
        for response in ask(&stack, &client::http1(), &subset_hint::json(&hint)).await {
            assert_no_endpoints(response, &hint.to_string()).await;
        }
    }
    assert_eq!(request_counts(&stack), [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_snapshot_a_hint_is_obeyed() {
    let builder = Stack::builder().filter_before_picker(subset_hint::filter());
    let stack = builder.without_agent().start().await;
    let hint = subset_hint::list(&[stack.servers()[0].endpoint(), stack.servers()[2].endpoint()]);
    for client in [client::http1(), client::h2c()] {
        for _ in 0..20 {
            for response in ask(&stack, &client, &hint).await {
                assert_eq!(response.status(), StatusCode::OK);
            }
        }
    }
    let counts = request_counts(&stack);
    // One of 80 fair draws in a row would go to the same server once in 10^24 times.
    assert!(counts[0] > 0 && counts[1] == 0 && counts[2] > 0, "{counts:?}");

    stack.servers()[0].behave(Behaviour::Reset);
    for _ in 0..6 {
        for response in ask(&stack, &client::http1(), &hint).await {
            assert_eq!(stack.served_by(&response), 2, "the other one of the hint");
        }
    }
    forget_requests(&stack);
    for (case, hint) in [
        ("an empty list", subset_hint::list::<&str>(&[])),
        ("an empty string", subset_hint::string("")),
        ("no address", subset_hint::string("nonsense")),
        ("a list that cannot be read", subset_hint::json(&json!([stack.servers()[0].endpoint(), null]))),
    ] {
        for response in ask(&stack, &client::http1(), &hint).await {
            assert_no_endpoints(response, case).await;
        }
    }
    for response in ask(&stack, &client::http1(), &subset_hint::list(&["10.1.2.3:4"])).await {
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "Envoy has no such endpoint");
    }
    assert_eq!(request_counts(&stack), [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_best_of_a_hint_fails_the_others_serve() {
    let stack = Stack::builder().servers(6).filter_before_picker(subset_hint::filter()).start().await;
    prefer(&stack, 1).await;
    stack.servers()[1].behave(Behaviour::Reset);
    let hint = subset_hint::list(&[stack.servers()[0].endpoint(), stack.servers()[1].endpoint()]);
    for _ in 0..6 {
        for response in ask(&stack, &client::http1(), &hint).await {
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(stack.served_by(&response), 0, "the other one of the hint");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_of_a_hint_fail_no_other_serves() {
    let stack = stack().await;
    for server in &stack.servers()[..2] {
        server.behave(Behaviour::Reset);
    }
    let inside = [stack.servers()[0].endpoint(), stack.servers()[1].endpoint()];
    for hint in [subset_hint::list(&inside), subset_hint::list(&inside[..1])] {
        for client in [client::http1(), client::h2c()] {
            for _ in 0..4 {
                for response in ask(&stack, &client, &hint).await {
                    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
                    assert!(!response.headers().contains_key(DROPPED_REASON), "Envoy answers: {response:?}");
                }
            }
        }
    }
    assert_eq!(request_counts(&stack)[2], 0);
    let response = stack.post("/v1/chat/completions", &fresh_chat()).await;
    assert_eq!(stack.served_by(&response), 2, "without a hint any endpoint serves");
}
