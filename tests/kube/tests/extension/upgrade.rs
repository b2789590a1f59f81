//! The whole release upgraded to another version and rolled back under load: chart, agents, native module and
//! proxies.

use crate::fixture::{CHAT, GROUND, Models, backend, rule};
use anyhow::{Context, ensure};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::tools;
use endpoint_picker_kube::{Load, NextVersion, PROXIES, Registry, accepted_reports};
use serde_json::json;
use std::time::Duration;

/// The replacement of all pods: a proxy that ends drains for up to a minute.
const REPLACED: Duration = Duration::from_secs(180);

/// Both versions come from charts in a registry. Their formats differ, so agents and modules of different
/// versions refuse each other.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a build of the next version: make test-upgrade"]
async fn no_request_is_lost_while_the_chart_is_upgraded_and_rolled_back() {
    let _ground = GROUND.write().await;
    // Several pools are polled in batches, whose format the agent refuses.
    let rules = json!([rule("/", &[backend("large", 3), backend("small", 1)])]);
    let models = Models::new(&[("large", 3), ("small", 1)], &rules, CHAT).await;
    let registry = Registry::start(models.extension.cluster().logs()).await.unwrap();
    let this = tools::root().join("deploy/chart");
    let this = registry.push_chart("inference", &this).await.unwrap();
    let next = NextVersion::built().unwrap();
    let next = registry.push_chart("inference", &next.chart()).await.unwrap();

    let load = Load::start(&models.url(CHAT), 4, Duration::from_millis(10));
    for chart in [&this, &next] {
        models.extension.upgrade_to(chart).await.unwrap();
        until_all_are_of(&models, chart.version()).await;
    }
    models.extension.roll_back().await.unwrap();
    until_all_are_of(&models, this.version()).await;
    let answers = load.stop().await;
    println!("{} to {} and back: {} requests", this.version(), next.version(), answers.all().len());
    answers.assert_none_lost();
    models.remove().await;
}

/// Waits until all agents and the Gateway's proxies are of a version, and an agent has taken a report: it has
/// the format of the module.
async fn until_all_are_of(models: &Models, version: &str) {
    let replaced = within(REPLACED, async || {
        let tag = format!(":{version}");
        let proxies = format!("gateway.envoyproxy.io/owning-gateway-namespace={}", models.namespace);
        for proxy in models.ready_pods(PROXIES, &proxies, 1).await? {
            let volumes = proxy["spec"]["volumes"].as_array().context("no volumes")?;
            let module = volumes.iter().find_map(|volume| volume["image"]["reference"].as_str());
            ensure!(module.is_some_and(|module| module.ends_with(&tag)), "a proxy has {module:?}");
        }
        let mut agents = Vec::new();
        for agent in models.ready_pods("inference", "app.kubernetes.io/component=agent", 2).await? {
            let image = agent["spec"]["containers"][0]["image"].as_str().context("no image")?;
            ensure!(image.ends_with(&tag), "an agent is {image}");
            let address = agent["status"]["podIP"].as_str().context("no address")?;
            agents.push(format!("http://{address}:9095"));
        }
        ensure!(accepted_reports(&agents).await? > 0, "no agent has taken a report");
        Ok(())
    });
    replaced.await.unwrap_or_else(|reason| panic!("not all are of {version} within {REPLACED:?}: {reason}"));
}
