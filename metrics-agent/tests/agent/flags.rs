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
fn a_file_beyond_the_limit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.yaml");
    std::fs::write(&path, vec![b'#'; (4 << 20) + 1]).unwrap();
    let path = path.to_str().unwrap();
    let message = refusal(&["check", path]);
    assert!(message.contains("m.yaml: is larger than the allowed 4194304 bytes"), "{message}");
    let endpoint = ["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"];
    let message = refusal(&[&endpoint[..], &["--bearer-token-file", path]].concat());
    assert!(message.contains("m.yaml is larger than the allowed 4194304 bytes"), "{message}");
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
