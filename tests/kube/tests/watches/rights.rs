//! An API server that refuses.

use std::path::{Path, PathBuf};

use endpoint_picker_harness::eventually::eventually;
use serde_json::json;

use crate::agent::Agent;
use crate::cluster::{Turn, endpoint};
use crate::kubeconfig;
use crate::pools::has_endpoints;

/// A `ServiceAccount` whose Role permits to read inference objects, and these resources of the core group.
struct Account<'a> {
    turn: &'a Turn,
}

impl<'a> Account<'a> {
    async fn create(turn: &'a Turn, core: &[&str]) -> Self {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent"}});
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "agent"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "agent"},
            "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": turn.namespace}],
        });
        let manifests = [account.to_string(), binding.to_string()].join("\n---\n");
        turn.cluster.apply(&turn.namespace, &manifests).await.unwrap();
        let account = Self { turn };
        account.permit(core).await;
        account
    }

    async fn permit(&self, core: &[&str]) {
        let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["get", "list", "watch"]});
        let kinds = ["inferencepools", "inferenceobjectives", "inferencemodelrewrites", "inferencemodels"];
        let groups = ["inference.networking.k8s.io", "inference.networking.x-k8s.io", "llm-d.ai"];
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "agent"},
            "rules": [rule(&groups, &kinds), rule(&[""], core)],
        });
        self.turn.cluster.apply(&self.turn.namespace, &role.to_string()).await.unwrap();
    }

    /// Writes a kubeconfig of the account, whose namespace is the context's.
    async fn kubeconfig(&self, folder: &Path) -> PathBuf {
        let Turn { cluster, namespace, .. } = self.turn;
        let token = cluster.kubectl(["create", "token", "agent", "--namespace", namespace]).await.unwrap();
        kubeconfig::of_token(cluster, namespace, token.trim(), folder)
    }
}

/// A pool with a pod, an account that may not read pods, and an agent with that account. The kubeconfig is in
/// the folder.
async fn without_pods<'a>(turn: &'a Turn, folder: &Path) -> (Account<'a>, Agent) {
    turn.apply_pool(&turn.namespace, "llama", "llama").await;
    turn.create_pods(&turn.namespace, "llama", 1..2).await;
    let account = Account::create(turn, &["services"]).await;
    let config = account.kubeconfig(folder).await;
    let log = turn.cluster.logs().join(format!("agent-{}.log", turn.namespace));
    let agent = Agent::start(&config, ["--pool=llama"], &log).await;
    (account, agent)
}

#[tokio::test]
async fn pods_that_were_forbidden_are_watched_as_soon_as_they_are_not() {
    let turn = Turn::begin("rights").await;
    let namespace = &turn.namespace;
    let folder = tempfile::tempdir().unwrap();
    let (account, agent) = without_pods(&turn, folder.path()).await;
    let forbidden = r#"metrics_agent_kubernetes_watches{resource="pods",state="forbidden"}"#;
    eventually("pods are forbidden", async || {
        let count = agent.count(forbidden).await?;
        if count == 1 { Ok(()) } else { Err(anyhow::anyhow!("{count}: {}", agent.log())) }
    })
    .await;
    assert!(agent.pool(namespace, "llama").await.is_err(), "a pool without a list of pods has no snapshot");
    account.permit(&["pods"]).await;
    has_endpoints(&agent, namespace, "llama", &[endpoint(namespace, "llama", 1)]).await;
    // The list of pods may be published before the watch that follows it has begun.
    eventually("pods are watched", async || {
        let count = agent.count(forbidden).await?;
        if count == 0 { Ok(()) } else { Err(anyhow::anyhow!("{count}: {}", agent.log())) }
    })
    .await;
}

#[tokio::test]
async fn a_refusal_right_after_the_start_is_tried_again() {
    let turn = Turn::begin("early").await;
    let namespace = &turn.namespace;
    let folder = tempfile::tempdir().unwrap();
    let (account, agent) = without_pods(&turn, folder.path()).await;
    let refused = r#"metrics_agent_kubernetes_watch_errors_total{resource="pods",reason="forbidden"}"#;
    eventually("pods are refused", async || {
        let count = agent.count(refused).await?;
        if count >= 1 { Ok(()) } else { Err(anyhow::anyhow!("{}", agent.log())) }
    })
    .await;
    account.permit(&["pods"]).await;
    has_endpoints(&agent, namespace, "llama", &[endpoint(namespace, "llama", 1)]).await;
}
