//! The filter's statistics as Prometheus reads them.

use crate::scene::{CHAT, fresh_chat};
use endpoint_picker_tests::stack::Stack;
use reqwest::StatusCode;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn pool_status_and_reason_are_labels() {
    let stack = Stack::builder().start().await;
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
    assert_eq!(stack.post(CHAT, &json!({"messages": []})).await.status(), StatusCode::BAD_REQUEST);
    let text = stack.envoy().admin_text("/stats/prometheus").await.unwrap();
    let value = |series: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let own =
            || text.lines().filter(|line| line.contains("endpoint_picker")).collect::<Vec<_>>().join("\n");
        line.unwrap_or_else(|| panic!("no {series} in:\n{}", own())).parse::<u64>().unwrap()
    };
    assert!(value(r#"endpoint_picker_routed{pool="default"}"#) > 0);
    assert_eq!(value(r#"endpoint_picker_rejected{pool="default",status="400"}"#), 1);
    assert_eq!(value(r#"endpoint_picker_abstained{pool="default",reason="body_too_large"}"#), 0);
    value(r#"endpoint_picker_in_flight{pool="default"}"#);
}
