//! Flags, and files of flags, that the agent refuses.

use crate::authority::Authority;
use crate::process::refusal;

#[test]
fn invalid_flags_are_refused_by_name() {
    let endpoint = ["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"];
    let with = |more: &[&'static str]| refusal(&[&endpoint[..], more].concat());
    assert!(refusal(&[]).contains("--endpoints-file"));
    assert!(with(&["--eds-file", "/nonexistent/eds.json"]).contains("--eds-file"));
    assert!(with(&["--log", "a=b=c"]).contains("--log"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(refusal(&["--listen", &address, "--endpoint", "127.0.0.1:1"]).contains("--listen"));
}

#[test]
fn a_file_beyond_a_limit_is_refused_with_the_flag_that_sets_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.yaml");
    let objective = "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: batch}\n\
                     spec: {priority: -10, poolRef: {name: default}}\n";
    std::fs::write(&path, objective).unwrap();
    let path = path.to_str().unwrap();
    let message = refusal(&["check", "--max-file-bytes", "10", path]);
    assert!(message.contains("m.yaml: is larger than the allowed 10 bytes (--max-file-bytes)"), "{message}");
    let message = refusal(&["check", "--max-yaml-nodes", "5", path]);
    assert!(message.contains("m.yaml") && message.contains("--max-yaml-nodes"), "{message}");
    assert!(refusal(&["check", "--max-yaml-nodes", "0", path]).contains("allowed is a number from 1"));
    let refusal_of = |flags: &[&str]| {
        refusal(&[&["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"], flags].concat())
    };
    let message = refusal_of(&["--bearer-token-file", path, "--max-file-bytes", "10"]);
    assert!(message.contains("m.yaml is larger than the allowed 10 bytes (--max-file-bytes)"), "{message}");
}

#[test]
fn an_invalid_credential_file_is_named_and_its_text_is_not_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let authority = Authority::new();
    let (one, two) = (authority.issue("one"), authority.issue("two"));
    let certificate = one.certificate.to_str().unwrap();
    let bad = write("bad", "-----BEGIN PRIVATE hush\nhush hush\n");
    let refusal_of = |flags: &[&str]| {
        let message = refusal(&[&["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"], flags].concat());
        assert!(!message.contains("hush"), "{message}");
        message
    };
    assert!(refusal_of(&["--tls-cert", certificate]).contains("--tls-key"));
    assert!(refusal_of(&["--tls-cert", certificate, "--tls-key", &bad]).contains("bad has no private key"));
    assert!(refusal_of(&["--tls-cert", &bad, "--tls-key", &bad]).contains("bad has no certificate"));
    let other_key = two.key.to_str().unwrap();
    assert!(refusal_of(&["--tls-cert", certificate, "--tls-key", other_key]).contains("do not match"));
    assert!(refusal_of(&["--tls-client-ca", certificate]).contains("--tls-cert"));
    assert!(refusal_of(&["--bearer-token-file", &bad]).contains("bad has no valid token"));
    assert!(
        refusal_of(&["--bearer-token-file", "/nonexistent/token"])
            .contains("/nonexistent/token cannot be read")
    );
    assert!(refusal_of(&["--scrape-token-file", &bad]).contains("bad has no valid token"));
    assert!(refusal_of(&["--scrape-ca", &bad]).contains("bad has no certificate"));
    assert!(refusal_of(&["--scrape-cert", certificate]).contains("--scrape-key"));
    assert!(refusal_of(&["--model-server-metrics-scheme", "https"]).contains("--scrape-ca"));
}
