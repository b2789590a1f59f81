//! A filter whose capabilities leave a callback out.

use endpoint_picker_e2e::fixture::{CHAT, MESSAGES};
use endpoint_picker_e2e::policy_fixture::{PolicyFixture, model_of, rewriting};
use endpoint_picker_e2e::statistics::until_counted;
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use reqwest::StatusCode;

#[tokio::test(flavor = "multi_thread")]
async fn without_the_callback_for_answers_only_the_names_in_answers_stay_rewritten() {
    let fixture = PolicyFixture::build(rewriting(), Stack::builder().shut("proxy_on_response_body")).await;
    let body = format!(r#"{{"model":"llama",{MESSAGES},"stream":true}}"#);
    let answer = fixture.post(&client::http1(), CHAT, body).await;
    assert_eq!(answer.status(), StatusCode::OK);
    let text = answer.text().await.unwrap();
    assert!(text.contains(r#""model":"llama-canary""#) && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(model_of(&fixture.received()), "llama-canary");
    until_counted(&fixture.stack, "in_flight", 0).await;
}
