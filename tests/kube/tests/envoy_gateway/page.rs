//! The way from an empty cluster with Envoy Gateway to a picked request, with the commands of
//! docs/install/envoy-gateway.md.
//!
//! Differences here, because the cluster has no containers:
//! - `registry.example` is a registry of this test, without TLS: helm gets the flag for that. It has the
//!   chart, and the image of the wasm module, which Envoy Gateway fetches. Programs of the build stand for
//!   the other images. `make test-release` assembles, pushes and pulls all of them.
//! - The second command gets further values: Envoy is a process and not a pod, so it reads the agents' token
//!   from a folder of this test.
//! - No cloud gives the Gateway an address. The test sets it; Envoy listens there.

use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::{Filter, client, tools};
use endpoint_picker_kube::{EnvoyGateway, GatewayGround, ProxyToken, Registry};
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

/// The registry in the page.
const REGISTRY: &str = "registry.example/inference";

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_lead_to_a_picked_request() {
    let ground = GatewayGround::shared().await;
    let cluster = ground.cluster();
    let [pull, install, request] = commands().unwrap();
    let registry = Registry::start(cluster.logs()).await.unwrap();
    let image = concat!("inference/endpoint-picker-wasm:", env!("CARGO_PKG_VERSION"));
    registry.push(image, &Filter::Wasm.module().unwrap(), "plugin.wasm").await.unwrap();
    registry.push_chart("inference", &tools::root().join("deploy/chart")).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display();

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "inference"}});
    cluster.apply("default", &namespace.to_string()).await.unwrap();
    let token = ProxyToken::create(cluster, "inference").await.unwrap();
    let proxy = json!({
        "gateway": {"proxy": EnvoyGateway::proxy_settings(), "tokenFolder": token.folder()},
        "agent": {"token": {"secret": ProxyToken::SECRET}},
    });
    let values = folder.path().join("values.json");
    fs::write(&values, proxy.to_string()).unwrap();
    for command in [&pull, &install] {
        assert!(command.contains(REGISTRY) && command.contains(env!("CARGO_PKG_VERSION")), "{command}");
    }
    let began = Instant::now();
    let here_too = |command: &str| command.replace(REGISTRY, &format!("{}/inference", registry.address()));
    cluster.shell(&format!("cd {here}\n{} --plain-http", here_too(&pull))).await.unwrap();
    let values = values.display();
    cluster
        .shell(&format!("cd {here}\n{} --plain-http --values {values}", here_too(&install)))
        .await
        .unwrap();
    assert_images_are_built(ground).await.unwrap();

    let address = json!({"spec": {"addresses": [{"type": "IPAddress", "value": Ipv4Addr::LOCALHOST}]}});
    let address = address.to_string();
    let patch = ["patch", "gateway", "endpoint-picker", "--namespace=inference", "--type=merge", "--patch"];
    cluster.kubectl(patch.into_iter().chain([address.as_str()])).await.unwrap();
    eventually("the request is answered", async || {
        let answer = cluster.shell(&request).await?;
        let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
        ensure!(answer["choices"][0]["message"]["content"].is_string(), "{answer}");
        anyhow::Ok(())
    })
    .await;
    println!("answered {:.0?} after the first command began", began.elapsed());
    // The same way, to a path whose response shows what the server has received.
    eventually("requests are picked", async || {
        let answer = client::http1().get(ground.url(80, "/")).send().await?.error_for_status()?;
        let echo: Value = answer.json().await?;
        let picked = echo["headers"]["x-gateway-destination-endpoint"].as_str().context("no pick")?;
        ensure!(picked.parse::<SocketAddr>().is_ok(), "picked {picked}");
        anyhow::Ok(())
    })
    .await;
    cluster.shell("helm uninstall endpoint-picker --namespace inference --wait").await.unwrap();
}

/// The commands of the page's section about routes to Services.
fn commands() -> Result<[String; 3]> {
    let text = fs::read_to_string(tools::root().join("docs/install/envoy-gateway.md"))?;
    let (_, section) = text.split_once("\n### A picked request in three commands\n").context("no section")?;
    let (_, block) = section.split_once("\n```sh\n").context("no commands")?;
    let (block, _) = block.split_once("\n```\n").context("no end of the commands")?;
    let commands: Vec<_> = block.replace("\\\n", " ").lines().map(str::to_owned).collect();
    commands.try_into().map_err(|commands| anyhow::anyhow!("{commands:?} are not three commands"))
}

/// Checks that `make images` builds each image that runs.
async fn assert_images_are_built(ground: &GatewayGround) -> Result<()> {
    let script = fs::read_to_string(tools::root().join("tools/release/images"))?;
    let get =
        ["get", "pods", "--namespace=inference", "--output=jsonpath={.items[*].spec.containers[*].image}"];
    let images = ground.cluster().kubectl(get).await?;
    ensure!(images.split_whitespace().count() >= 5, "two agents and three servers run: {images}");
    for image in images.split_whitespace() {
        let (_, name) = image.rsplit_once('/').context(image.to_owned())?;
        let (name, version) = name.split_once(':').context(image.to_owned())?;
        ensure!(script.contains(&format!(":{name}")), "make images does not build {name}");
        ensure!(version == env!("CARGO_PKG_VERSION"), "{image} has another version");
    }
    Ok(())
}
