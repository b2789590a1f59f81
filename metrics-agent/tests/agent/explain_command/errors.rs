//! Bodies that the filter refuses, and input that `explain` cannot read.

use std::path::Path;

use super::fixture::{Fixture, run};

#[tokio::test]
async fn a_body_that_is_refused_is_answered_as_the_filter_answers_it() {
    let fixture = Fixture::with(&[0], None).await;
    for (body, path, reason) in [
        ("{\"model\":", "/v1/chat/completions", "answered 400 BadRequest: "),
        ("[]", "/v1/chat/completions", "body must be a JSON object, not an array"),
        ("{\"model\":\"m\"} x", "/v1/completions", "answered 400 BadRequest: "),
    ] {
        fixture.write("bad.json", body);
        let (output, code) = fixture.explain_body("bad.json", &["--path", path]).await;
        assert_eq!(code, 3, "{output}");
        assert!(
            output.contains("rejected before any endpoint was considered") && output.contains(reason),
            "{output}"
        );
    }
}

#[tokio::test]
async fn errors_of_explain_name_the_place_and_the_allowed_values() {
    let fixture = Fixture::with(&[0], None).await;
    let (snapshot, body) = (fixture.path("snapshot"), fixture.path("body.json"));
    fixture.write("status.json", &fixture.agent.get("/v1/pools/default").await.text());
    let bytes = std::fs::read(Path::new(&snapshot)).unwrap();
    std::fs::write(fixture.path("half"), &bytes[..bytes.len() / 2]).unwrap();
    let unknown = format!("{body}=10.0.0.9:1");
    let (status, half) = (fixture.path("status.json"), fixture.path("half"));
    for (flags, parts) in [
        (vec!["--snapshot", &snapshot, "/nowhere/body"], vec!["/nowhere/body", "No such file"]),
        (vec!["--snapshot", "/nowhere/at/all", &body], vec!["/nowhere/at/all", "No such file"]),
        (vec!["--snapshot", &status, &body], vec!["status.json", "snapshot --save FILE"]),
        (vec!["--snapshot", &half, &body], vec!["half", "malformed"]),
        (
            vec!["--snapshot", &snapshot, &body, "--after", &unknown],
            vec!["10.0.0.9:1", "allowed: 127.0.0.1:"],
        ),
        (vec!["--snapshot", &snapshot, &body, "--after", "x=y"], vec!["--after", "body.json=10.0.0.1:8000"]),
        (vec!["--snapshot", &snapshot, &body, "--header", "x"], vec!["--header", "a name and a value"]),
        (vec!["--snapshot", &snapshot, "--agent", "http://127.0.0.1:1", &body], vec!["cannot be used with"]),
        (vec!["--agent", "http://127.0.0.1:1", &body], vec!["--agent", "cannot connect"]),
        (vec![], vec!["<BODY>"]),
    ] {
        let output = run(&[&["explain"], &flags[..]].concat()).await;
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(
            matches!(output.status.code(), Some(1 | 2)) && output.stdout.is_empty(),
            "{flags:?}: {message}"
        );
        for part in parts {
            assert!(message.contains(part), "{flags:?}: {message:?} lacks {part:?}");
        }
    }
}
