//! An agent whose responses are cut off.

use endpoint_picker_e2e::fixture::RELOADS;
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const FAILED: &str = r#"snapshot_failures{pool="default"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_off_is_a_failed_poll_and_costs_no_vm() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let agent = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            // Also the checks of the agent's health get this; an error is Envoy's way to end.
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\ncut").await;
        }
    });
    let stack = Stack::builder().workers(1).own_agent(agent).start().await;
    eventually("five polls have failed", async || match statistics(&stack).await.count(FAILED) {
        polls if polls >= 5 => Ok(()),
        polls => Err(polls),
    })
    .await;
    assert_eq!(stack.envoy().stat(RELOADS).await.unwrap(), 0);
    serving.abort();
}
