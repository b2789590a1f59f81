//! The command over HTTP.

use std::net::SocketAddr;
use std::process::{Output, Stdio};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_util::task::AbortOnDropHandle;

use super::fixture::Recorded;
use crate::authority::Authority;
use crate::harness::{Agent, eventually, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// An admin interface that responds with these texts.
pub(super) struct Admin {
    pub(super) address: SocketAddr,
    _serving: AbortOnDropHandle<()>,
}

impl Admin {
    async fn start(answer: impl Fn(&str) -> Response + Clone + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(move |request: Request| {
            let response = answer(&request.uri().to_string());
            async move { response }
        });
        let serving = async move { axum::serve(listener, router).await.unwrap() };
        Self { address, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    pub(super) async fn of(envoy: &Recorded) -> Self {
        let texts = [envoy.dump.to_string(), envoy.clusters.to_string(), envoy.statistics.join("\n")];
        Self::start(move |path| {
            let [dump, clusters, statistics] = texts.clone();
            match path {
                "/config_dump" => dump.into_response(),
                "/clusters?format=json" => clusters.into_response(),
                _ if path.starts_with("/stats?filter=endpoint%5Fpicker%7C") => statistics.into_response(),
                _ => StatusCode::NOT_FOUND.into_response(),
            }
        })
        .await
    }
}

pub(super) async fn doctor(admin: &str, agent: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics-agent"));
    command
        .args(["doctor", "--envoy-admin", admin, "--agent", agent])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command.output().await.unwrap()
}

#[tokio::test]
async fn a_mistake_is_printed_with_its_fix_and_none_is_success() {
    let server = ScriptedServer::start(Behaviour::Text(load(3, 7))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    eventually("a reading", async || {
        let status = agent.get("/v1/pools/default").await.text();
        status.contains(r#""waiting":3"#).then_some(())
    })
    .await;
    let mut envoy = Recorded::wasm();
    envoy.hosts("model-servers").truncate(1);
    envoy.hosts("model-servers")[0]["address"]["socket_address"]["port_value"] =
        server.address().port().into();
    let (admin, agent) = (Admin::of(&envoy).await, agent.address.to_string());
    let output = doctor(&admin.address.to_string(), &agent).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.ends_with("\nno mistakes found\n"), "{text}");
    assert!(text.contains("\nok       Envoy has the pool's endpoints as hosts\n"), "{text}");

    envoy.filters().swap(0, 1);
    envoy.manager()["merge_slashes"] = false.into();
    let admin = Admin::of(&envoy).await;
    let output = doctor(&format!("http://{}", admin.address), &agent).await;
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().skip(3).take(6).collect();
    let [error, at, fix, warning, _, second_fix] = lines.try_into().unwrap();
    assert!(error.starts_with("error    the filter destination-metadata copies"), "{text}");
    assert!(at.starts_with("         at:  cluster model-servers, route configuration inference"), "{text}");
    assert_eq!(fix, "         fix: move destination-metadata behind the picker in http_filters", "{text}");
    assert!(warning.starts_with("warning  paths are not normalized"), "{text}");
    assert_eq!(second_fix, "         fix: set merge_slashes: true", "{text}");
    assert!(text.ends_with("\n1 error, 1 warning\n"), "{text}");
}

#[tokio::test]
async fn an_admin_interface_that_cannot_be_read_is_an_error() {
    const TOO_LONG: usize = 64 * 1024 * 1024 + 1;
    for (answer, part) in [
        (
            (|_| StatusCode::NOT_FOUND.into_response()) as fn(&str) -> Response,
            "is it Envoy's admin interface?",
        ),
        (|_| "<html>".into_response(), "the response to /config_dump cannot be read"),
        (|_| vec![b' '; TOO_LONG].into_response(), "has more than 67108864 bytes"),
    ] {
        let admin = Admin::start(answer).await;
        let output = doctor(&admin.address.to_string(), "127.0.0.1:1").await;
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("(--envoy-admin)") && message.contains(part), "{message}");
    }
    let output = doctor("127.0.0.1:1", "127.0.0.1:1").await;
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty() && message.contains("cannot connect"), "{message}");
    let output = doctor("https://127.0.0.1:1", "127.0.0.1:1").await;
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("allowed is 127.0.0.1:9901 or http://127.0.0.1:9901"), "{message}");
}

#[tokio::test]
async fn a_server_with_tls_that_is_scraped_by_http_is_named() {
    let authority = Authority::new();
    let config = authority.server(&authority.issue("server.example"));
    let server = ScriptedServer::start_secured(Behaviour::Text(load(3, 7)), config).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let admin = Admin::of(&Recorded::wasm()).await;
    let address = server.address().to_string();
    eventually("the finding", async || {
        let output = doctor(&admin.address.to_string(), &agent.address.to_string()).await;
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines =
            text.lines().skip_while(|line| !line.contains("the agent has never read the server's metrics"));
        let (_, at, fix) = (lines.next()?, lines.next()?, lines.next()?);
        (at.ends_with(&address)
            && fix.contains("scrape it with --model-server-metrics-scheme https and --scrape-ca"))
        .then_some(())
    })
    .await;
}
