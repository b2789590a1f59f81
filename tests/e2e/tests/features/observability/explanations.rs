//! Explanations of picks, in the access log and for clients with the secret.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, prefer};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use reqwest::StatusCode;
use serde_json::json;
use std::fs;
use std::process::Command;

const EXPLANATION: &str = "x-endpoint-picker-explanation";
const SECRET: &str = "let-me-see-why-it-is-so";

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_has_the_explanation_and_servers_do_not() {
    let stack = Stack::builder().picker_field("explain", json!({"accessLog": true})).start().await;
    prefer(&stack, 1).await;
    let path = format!("{CHAT}?why");
    let response = stack.post(&path, &fresh_chat()).await;
    assert!(!response.headers().contains_key(EXPLANATION));
    let entry = stack.logged(&path).await;
    let text = entry["explanation"].as_str().unwrap_or_default();
    let picked = format!("routed; {} queue-scorer 1.000x2 ", stack.servers()[1].endpoint());
    assert!(text.starts_with(&picked) && text.contains(" picked 1; "), "{entry}");
    for server in stack.servers() {
        assert!(text.contains(&server.endpoint()), "{entry}");
        assert!(server.requests().iter().all(|request| request.header(EXPLANATION).is_none()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_client_with_the_secret_gets_the_explanation() {
    let explain = json!({"header": "x-why", "secret": SECRET});
    let stack = Stack::builder().picker_field("explain", explain).start().await;
    let ask = async |secret: &str, body: &serde_json::Value| {
        let request = client::http1().post(stack.url(CHAT)).header("x-why", secret);
        request.header(EXPLANATION, "forged").json(body).send().await.unwrap()
    };
    let explained = ask(SECRET, &fresh_chat()).await;
    let text = explained.headers()[EXPLANATION].to_str().unwrap();
    let served = &stack.servers()[stack.served_by(&explained)];
    assert!(text.starts_with(&format!("routed; {} ", served.endpoint())), "{text}");
    let received = served.take_requests().pop().unwrap();
    assert_eq!((received.header("x-why"), received.header(EXPLANATION)), (None, None));
    for secret in ["", "x", "let-me-see-why-it-is-s0", &SECRET[1..]] {
        let unexplained = ask(secret, &fresh_chat()).await;
        assert_eq!(unexplained.status(), StatusCode::OK);
        assert!(!unexplained.headers().contains_key(EXPLANATION), "{secret:?}");
    }
    for server in stack.servers() {
        server.refuse().await.unwrap();
    }
    // A decision against the request is explained as well.
    eventually("no endpoint is ready", async || {
        let refused = ask(SECRET, &fresh_chat()).await;
        let text = refused.headers().get(EXPLANATION).map(|text| text.to_str().unwrap().to_owned());
        match text {
            Some(text) if text.starts_with("rejected: ") && text.contains("not ready") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// The numbers of each endpoint in an explanation: its scores, and the total.
fn numbers(words: &str) -> Vec<f64> {
    // Without the readings behind the scores, which are in parentheses.
    let scores = words.split('(').map(|part| part.split_once(')').map_or(part, |(_, scores)| scores));
    let scores = scores.flat_map(|part| part.split([' ', 'x']));
    scores.filter(|word| word.contains('.')).filter_map(|word| word.parse().ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_explains_offline_as_the_filter_does() {
    let explain = json!({"header": "x-why", "secret": SECRET});
    let stack = Stack::builder().picker_field("explain", explain).start().await;
    prefer(&stack, 1).await;
    let folder = tempfile::tempdir().unwrap();
    let (snapshot, file) = (folder.path().join("snapshot"), folder.path().join("body.json"));
    let agent = format!("http://{}", stack.agent_address());
    let run = |flags: &[&str]| {
        let output = Command::new(tools::metrics_agent().unwrap()).args(flags).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["snapshot", "--agent", &agent, "--save", snapshot.to_str().unwrap()]);
    let body = fresh_chat();
    fs::write(&file, body.to_string()).unwrap();
    let offline = run(&["explain", "--snapshot", snapshot.to_str().unwrap(), file.to_str().unwrap()]);

    let request = client::http1().post(stack.url(CHAT)).header("x-why", SECRET).json(&body);
    let text = request.send().await.unwrap().headers()[EXPLANATION].to_str().unwrap().to_owned();
    for server in stack.servers() {
        let endpoint = server.endpoint();
        let row = offline.lines().find(|line| line.split_whitespace().nth(1) == Some(&endpoint)).unwrap();
        let part = text.split("; ").find(|part| part.starts_with(&format!("{endpoint} "))).unwrap();
        let (mut of_row, of_filter) = (numbers(row), numbers(part));
        // The last number of the row is how often the endpoint is picked.
        of_row.pop();
        assert_eq!((of_row.len(), of_row), (4, of_filter), "{offline}\n{text}");
        assert_eq!(row.ends_with("picked"), part.ends_with("picked 1"), "{offline}\n{text}");
    }
}
