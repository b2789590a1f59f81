//! The subset hint: an earlier filter narrows the choice through metadata.

use crate::scene::{assert_no_endpoints, forget_requests, fresh_chat, prefer, request_counts};
use endpoint_picker_tests::model_server::ModelServer;
use endpoint_picker_tests::stack::Stack;
use endpoint_picker_tests::{client, subset_hint};
use reqwest::{Client, Response, StatusCode};

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
