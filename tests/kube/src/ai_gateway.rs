//! Envoy AI Gateway, installed by its charts, and its server among the extension servers of Envoy Gateway.

use crate::extension::Extension;
use crate::programs::ai_gateway;
use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The namespace of its documentation.
const NAMESPACE: &str = "envoy-ai-gateway-system";
/// Its releases, each of the chart with this name.
const RELEASES: [(&str, &str); 2] = [("aieg-crd", "ai-gateway-crds-helm"), ("aieg", "ai-gateway-helm")];
/// The name of its server in Envoy Gateway's configuration.
const SERVER: &str = "ai-gateway";

/// When Envoy Gateway calls its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Before the agents, as the documentation requires.
    BeforeAgents,
    /// After the agents.
    AfterAgents,
}

/// An installed Envoy AI Gateway.
#[derive(Debug)]
pub struct AiGateway<'a>(&'a Extension);

impl<'a> AiGateway<'a> {
    /// Installs it. Envoy Gateway does not call it yet.
    pub async fn install(extension: &'a Extension) -> Result<Self> {
        for (release, chart) in RELEASES {
            let chart = ai_gateway(&format!("charts/{chart}"))?.display().to_string();
            let arguments = ["install", release, &chart, "--namespace", NAMESPACE, "--create-namespace"];
            let wait = ["--wait", "--timeout=90s"];
            extension.cluster().helm(arguments.iter().chain(&wait)).await?;
        }
        Ok(Self(extension))
    }

    /// Restarts Envoy Gateway with its server at this place.
    pub async fn enter(&self, order: Order) -> Result<()> {
        let mut gateway = self.0.gateway().await;
        gateway
            .start_again_with(|settings| {
                if let Some(servers) = servers(settings) {
                    let place = if order == Order::BeforeAgents { 0 } else { servers.len() };
                    servers.insert(place, server());
                }
            })
            .await
    }

    /// Takes its server out of Envoy Gateway's configuration, and uninstalls it.
    pub async fn remove(self) -> Result<()> {
        let without = |settings: &mut Value| {
            servers(settings);
        };
        self.0.gateway().await.start_again_with(without).await?;
        for (release, _) in RELEASES.into_iter().rev() {
            self.0.cluster().helm(["uninstall", release, "--namespace", NAMESPACE, "--wait"]).await?;
        }
        self.0.cluster().delete_namespace(NAMESPACE).await.context("its namespace")
    }
}

/// The extension servers without its own.
fn servers(settings: &mut Value) -> Option<&mut Vec<Value>> {
    let servers = settings["extensionManagers"].as_array_mut()?;
    servers.retain(|server| server["name"] != SERVER);
    Some(servers)
}

/// Its entry, as its own values for Envoy Gateway's chart have it.
fn server() -> Value {
    let all = json!({"includeAll": true});
    json!({
        "name": SERVER,
        "backendResources": [{"group": "inference.networking.k8s.io", "version": "v1", "kind": "InferencePool"}],
        "hooks": {"xdsTranslator": {
            "post": ["Translation", "Cluster", "Route"],
            "translation": {"listener": all, "route": all, "cluster": all, "secret": all},
        }},
        "service": {"fqdn": {"hostname": format!("ai-gateway-controller.{NAMESPACE}.svc.cluster.local"), "port": 1063}},
    })
}
