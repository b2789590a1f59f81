//! Agents over TLS, with client certificates and tokens.

use std::fs;
use std::sync::{Arc, Mutex};

use endpoint_picker_native::agent::PoolHandle;
use serde_json::json;

use crate::authority::Authority;
use crate::fixture::{Current, answer, attach, direct, eventually, eventually_has, snapshot, unique_pool};
use crate::server::{Reply, Server, free_port};

/// An agent that requires a client certificate and a token.
struct Secured {
    authority: Authority,
    current: Current,
    token: Arc<Mutex<String>>,
    server: Server,
}

impl Secured {
    /// An agent with a certificate for this name or address.
    fn start(name: &str) -> Self {
        let authority = Authority::new();
        authority.issue(name, "agent");
        authority.issue("envoy", "client");
        let current = Current::new(Mutex::new(snapshot(2, 1)));
        let token = Arc::new(Mutex::new("first".to_owned()));
        let handler = {
            let (current, token) = (Arc::clone(&current), Arc::clone(&token));
            move |request: &crate::server::Request| {
                if !request.has(&format!("authorization: bearer {}", token.lock().unwrap())) {
                    return Reply::Answer(401, vec![]);
                }
                answer(request, &current.lock().unwrap())
            }
        };
        let server = Server::on(free_port(), Some(authority.server("agent")), handler);
        fs::write(authority.file("token"), "first\n").unwrap();
        Self { authority, current, token, server }
    }

    fn attach(&self) -> PoolHandle {
        let file = |name: &str| self.authority.file(name);
        let fields = json!({
            "tls": {"caFile": file("ca.pem"), "certFile": file("client.pem"), "keyFile": file("client.key")},
            "tokenFile": file("token"),
        });
        let address = format!("https://{}", self.server.address());
        attach(&unique_pool(), &direct(&[address], &fields))
    }
}

#[test]
fn snapshots_come_over_tls_with_a_client_certificate_and_a_token() {
    let secured = Secured::start("127.0.0.1");
    let attachment = secured.attach();
    eventually_has(&attachment, 2, 1);
    assert_eq!(attachment.pool().take_polls().failed, 0);
}

#[test]
fn a_changed_token_and_certificate_are_taken_up() {
    let secured = Secured::start("127.0.0.1");
    let attachment = secured.attach();
    eventually_has(&attachment, 2, 1);
    *secured.token.lock().unwrap() = "second".to_owned();
    *secured.current.lock().unwrap() = snapshot(2, 2);
    eventually("a refused poll", || attachment.pool().take_polls().failed > 0);
    // An unusable file changes nothing, and the next good one counts.
    fs::write(secured.authority.file("client.key"), "no key").unwrap();
    secured.authority.issue("envoy", "client");
    fs::write(secured.authority.file("token"), "second\n").unwrap();
    eventually_has(&attachment, 2, 2);
}

#[test]
fn files_that_are_missing_at_first_are_read_when_they_are_there() {
    let secured = Secured::start("127.0.0.1");
    let token = secured.authority.file("token");
    fs::remove_file(&token).unwrap();
    let attachment = secured.attach();
    eventually("a failed poll", || attachment.pool().take_polls().failed > 0);
    assert_eq!(secured.server.open(), 0, "no connection without credentials");
    fs::write(&token, "first").unwrap();
    eventually_has(&attachment, 2, 1);
}

#[test]
fn an_agent_with_a_certificate_of_another_name_or_authority_is_not_believed() {
    let of_another_name = Secured::start("10.9.9.9");
    let of_another_authority = Secured::start("127.0.0.1");
    fs::copy(of_another_name.authority.file("ca.pem"), of_another_authority.authority.file("ca.pem"))
        .unwrap();
    // The agent still presents a certificate of the first authority.
    for secured in [&of_another_name, &of_another_authority] {
        let attachment = secured.attach();
        eventually("failed polls", || attachment.pool().take_polls().failed > 0);
        assert!(attachment.pool().view().versions().is_none());
    }
}
