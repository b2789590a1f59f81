//! Requests that are empty, odd, never end or are too large get a clear response, and the next one is served.

use endpoint_picker_e2e::fixture::{
    CHAT, MESSAGES, TEXT, assert_a_good_request_works, faults, openai_error, request_counts,
};
use endpoint_picker_harness::client::{self, Ending};
use endpoint_picker_harness::stack::Stack;
use futures_util::future::join_all;
use futures_util::stream;
use reqwest::{Body, StatusCode};
use std::convert::Infallible;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_body_is_answered_400_in_the_shape_of_the_openai_api() {
    let stack = Stack::builder().start().await;
    let before = faults(&stack).await;
    for client in [client::http1(), client::h2c()] {
        for path in [CHAT, TEXT] {
            let response =
                client.post(stack.url(path)).header("content-length", "0").body("").send().await.unwrap();
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{path}");
            openai_error(response.status(), &response.text().await.unwrap());
        }
        assert_a_good_request_works(&stack, &client).await;
    }
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n"
    );
    let answer = client::raw(stack.envoy().listener(), chunked.as_bytes(), Ending::KeepOpen).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(faults(&stack).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_but_legal_bodies_are_served() {
    let stack = Stack::builder().start().await;
    let before = faults(&stack).await;
    let long = "m".repeat(1 << 20);
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let chat = |rest: &str| format!(r#"{{"model":"m",{MESSAGES}{rest}}}"#);
    let bodies = [
        ("a model name of a mebibyte", format!(r#"{{"model":"{long}",{MESSAGES}}}"#)),
        (
            "a model name with line breaks",
            format!(r#"{{"model":"a\r\nx-evil: 1\r\n\r\n\u0000",{MESSAGES}}}"#),
        ),
        ("a model named twice", format!(r#"{{"model":5,{MESSAGES},"model":"m"}}"#)),
        ("the name of a field of a mebibyte", chat(&format!(r#","{long}":1"#))),
        ("100 000 fields", chat(&r#","x":1"#.repeat(100_000))),
        ("100 levels in an ignored field", chat(&format!(r#","x":{deep}"#))),
        ("huge and tiny numbers", chat(r#","max_tokens":1e308,"x":-1e-400"#)),
        ("wrong types of what the picker can do without", chat(r#","stream":"yes","max_tokens":"5""#)),
    ];
    for client in [client::http1(), client::h2c()] {
        for (case, body) in &bodies {
            let response = client.post(stack.url(CHAT)).body(body.clone()).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{case}");
            let received = stack.servers()[stack.served_by(&response)].take_requests();
            assert!(received[0].body == *body, "{case}");
        }
    }
    assert_eq!(faults(&stack).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_ends_times_out_and_reaches_no_server() {
    let stack = Stack::builder().request_timeout(Duration::from_secs(1)).start().await;
    let before = faults(&stack).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n");
    let (start, whole) = (r#"{"model":"m","messages":["#, format!(r#"{{"model":"m",{MESSAGES}}}"#));
    let cases = [
        ("a chunk cut off", format!("transfer-encoding: chunked\r\n\r\n40\r\n{start}")),
        (
            "the last chunk missing",
            format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{whole}\r\n", whole.len()),
        ),
        ("less than the content-length", format!("content-length: 5000\r\n\r\n{whole}")),
        ("no body after the headers", "content-length: 5000\r\n\r\n".to_owned()),
    ];
    let exchanges = cases.iter().map(async |(case, rest)| {
        let bytes = format!("{head}{rest}");
        let waits = client::raw(stack.envoy().listener(), bytes.as_bytes(), Ending::KeepOpen);
        let answer = waits.await.unwrap_or_else(|hang| panic!("{case}: {hang}"));
        assert!(answer.starts_with("HTTP/1.1 408"), "{case}: {answer:?}");
        let leaves = client::raw(stack.envoy().listener(), bytes.as_bytes(), Ending::HalfClose);
        let answer = leaves.await.unwrap_or_else(|hang| panic!("{case}: {hang}"));
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{case}: {answer:?}");
    });
    join_all(exchanges).await;
    let no_chunk = format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{start}\r\n");
    let answer = client::raw(stack.envoy().listener(), no_chunk.as_bytes(), Ending::KeepOpen).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer:?}");
    assert_eq!(request_counts(&stack), [0, 0, 0]);
    assert_a_good_request_works(&stack, &client::http1()).await;
    assert_eq!(faults(&stack).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_above_the_limit_is_answered_413() {
    let stack = Stack::builder().start().await;
    let before = faults(&stack).await;
    let body = format!(r#"{{"prompt":"{}","model":"m"}}"#, "x".repeat(33 << 20));
    for client in [client::http1(), client::h2c()] {
        for size in [body.len(), 1 << 14] {
            let pieces: Vec<_> =
                body.as_bytes().chunks(size).map(|it| Ok::<_, Infallible>(it.to_vec())).collect();
            let chunked = Body::wrap_stream(stream::iter(pieces));
            for body in [body.clone().into(), chunked] {
                let response = client.post(stack.url(TEXT)).body(body).send().await.unwrap();
                assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
                let message = openai_error(response.status(), &response.text().await.unwrap());
                assert!(message.contains("33554432 bytes"), "{message}");
            }
        }
        assert_a_good_request_works(&stack, &client::http1()).await;
    }
    assert_eq!(faults(&stack).await, before);
}
