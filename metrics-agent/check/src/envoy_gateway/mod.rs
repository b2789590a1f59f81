//! `metrics-agent check --cluster --envoy-gateway NAMESPACE`: checks Envoy Gateway's configuration,
//! certificates and rights, and the status of routes and pools, as the API server has them.

mod certificates;
mod entry;
mod pools;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use certificates::Certificates;
use entry::{ManagerEntry, SecretRef};
use hyper::Method;
use metrics_agent_doctor::doctor::{Finding, Report};
use metrics_agent_sources::kubernetes::{ApiError, Client, ClusterObject, Reason};
use rustls::pki_types::UnixTime;
use serde_json::{Value as Json, json};

/// Maximum number of bytes of an object that is read.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The `ConfigMap` of Envoy Gateway's chart, and the key in it.
const CONFIG_MAP: &str = "envoy-gateway-config";
const CONFIG_KEY: &str = "envoy-gateway.yaml";

/// The `ServiceAccount` of Envoy Gateway's chart.
const ACCOUNT: &str = "envoy-gateway";

const POOLS: &str = "/apis/inference.networking.k8s.io/v1/inferencepools?limit=1";

/// The parts of Envoy Gateway that the API server has.
#[derive(Debug)]
pub(super) struct GatewayFacts {
    /// Its namespace.
    namespace: String,
    /// The agents' entry in its configuration, or why it cannot be read.
    entry: Result<Option<ManagerEntry>, String>,
    /// `None` without an entry.
    certificates: Option<Certificates>,
    /// Whether the definition of `InferencePool` is installed.
    has_pools: bool,
    /// Whether it may watch pools, or why that is not known.
    may_watch_pools: Result<bool, String>,
    pools: Vec<Arc<ClusterObject>>,
    routes: Vec<Arc<ClusterObject>>,
}

impl GatewayFacts {
    /// Reads them. `pools` and `routes` were read before.
    pub(super) async fn read(
        client: &Client,
        namespace: String,
        pools: Vec<Arc<ClusterObject>>,
        routes: Vec<Arc<ClusterObject>>,
    ) -> Self {
        let entry = match text(client, &namespace, "configmaps", CONFIG_MAP, CONFIG_KEY).await {
            Ok(text) => ManagerEntry::find(&text).map_err(|problem| format!("{CONFIG_KEY}: {problem}")),
            Err(problem) => Err(problem),
        };
        let certificates = match &entry {
            Ok(Some(entry)) => {
                let tls = entry.tls();
                let authority = certificate(client, &namespace, tls.certificate_ref).await;
                let client = certificate(client, &namespace, tls.client_certificate_ref).await;
                authority.zip(client).map(|(authority, client)| Certificates { authority, client })
            }
            Ok(None) | Err(_) => None,
        };
        let listed = client.get(POOLS, MAX_BYTES).await;
        let has_pools = !listed.is_err_and(|error| error.reason() == Reason::NotFound);
        let may_watch_pools = may_watch_pools(client, &namespace).await.map_err(|error| error.to_string());
        Self { namespace, entry, certificates, has_pools, may_watch_pools, pools, routes }
    }

    /// Runs all checks.
    pub(super) fn diagnose(&self, now: UnixTime) -> Report {
        let mut report = Report::new(vec![format!("Envoy Gateway in the namespace {}", self.namespace)]);
        let config_map = format!("ConfigMap {}/{CONFIG_MAP}, extensionManagers", self.namespace);
        report.add("Envoy Gateway has the agents as its extension server", self.registration(&config_map));
        if let Some(certificates) = &self.certificates {
            let findings = certificates.findings(&format!("{config_map}, service.tls"), now);
            report.add("the agents accept Envoy Gateway's certificate", findings);
        }
        report.add("Envoy Gateway can read InferencePools", self.rights());
        report.add("routes to InferencePools are resolved", pools::routes(&self.routes));
        report.add("the agents serve the pools of routes", pools::pools(&self.pools, &self.routes));
        report
    }

    fn registration(&self, place: &str) -> Vec<Finding> {
        match &self.entry {
            Ok(Some(entry)) => entry.findings(place),
            Ok(None) => vec![Finding::error(
                place,
                "no entry has InferencePool among its backendResources: routes to pools are not served",
                "enter the agents, as docs/install/envoy-gateway.md has it: the values are in the chart's ConfigMap …-envoy-gateway",
            )],
            Err(problem) => vec![Finding::error(
                place,
                format!("Envoy Gateway's configuration cannot be read: {problem}"),
                "name the namespace of Envoy Gateway with --envoy-gateway",
            )],
        }
    }

    fn rights(&self) -> Vec<Finding> {
        let place = "inferencepools.inference.networking.k8s.io";
        if !self.has_pools {
            return vec![Finding::error(
                place,
                "the definition is not installed, and Envoy Gateway does not look for it again",
                "install the CRDs of the Gateway API Inference Extension, and then restart Envoy Gateway",
            )];
        }
        let account = format!("ServiceAccount {}/{ACCOUNT}", self.namespace);
        match &self.may_watch_pools {
            Ok(true) => Vec::new(),
            Ok(false) => vec![Finding::error(
                account,
                format!("it may not list and watch {place}: Envoy Gateway does not see the pools"),
                "set gateway.controllerNamespace of the chart to Envoy Gateway's namespace, or give the rights get, list and watch to the \
                 ServiceAccount that it has",
            )],
            Err(problem) => vec![Finding::warning(
                account,
                format!("its rights are not checked: {problem}"),
                "run the check with the right to create subjectaccessreviews",
            )],
        }
    }
}

/// The certificate in a Secret; `None` without a reference.
async fn certificate(
    client: &Client,
    own_namespace: &str,
    secret: Option<SecretRef>,
) -> Option<Result<Vec<u8>, String>> {
    let SecretRef { name, namespace } = secret?;
    let namespace = namespace.as_deref().unwrap_or(own_namespace);
    let read = text(client, namespace, "secrets", &name, "tls.crt").await;
    let decoded = read.and_then(|text| {
        STANDARD.decode(text).map_err(|error| format!("Secret {namespace}/{name}, tls.crt: {error}"))
    });
    Some(decoded)
}

/// The value of a key of an object's `data`.
async fn text(client: &Client, namespace: &str, kind: &str, name: &str, key: &str) -> Result<String, String> {
    let refuse = |problem: String| format!("{kind} {namespace}/{name}: {problem}");
    let path = format!("/api/v1/namespaces/{namespace}/{kind}/{name}");
    let bytes = client.get(&path, MAX_BYTES).await.map_err(|error| refuse(error.to_string()))?;
    let object: Json = serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
    let value = object["data"][key].as_str();
    value.map(str::to_owned).ok_or_else(|| refuse(format!("{key} is missing")))
}

/// Whether Envoy Gateway's account may list and watch pools.
async fn may_watch_pools(client: &Client, namespace: &str) -> Result<bool, ApiError> {
    for verb in ["list", "watch"] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{namespace}:{ACCOUNT}"),
                "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"],
                "resourceAttributes": {"group": "inference.networking.k8s.io", "resource": "inferencepools", "verb": verb},
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let sent = client.send(Method::POST, path, "application/json", review.to_string().into_bytes());
        let reviewed: Json =
            serde_json::from_slice(&sent.await?).map_err(|error| ApiError::Malformed(error.to_string()))?;
        if reviewed["status"]["allowed"] != true {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> GatewayFacts {
        let pools = "extensionManagers: [{backendResources: [{group: inference.networking.k8s.io, kind: InferencePool}]}]";
        GatewayFacts {
            namespace: "envoy-gateway-system".to_owned(),
            entry: ManagerEntry::find(pools),
            certificates: None,
            has_pools: true,
            may_watch_pools: Ok(true),
            pools: Vec::new(),
            routes: Vec::new(),
        }
    }

    fn problems(facts: &GatewayFacts) -> String {
        facts.diagnose(UnixTime::now()).to_string()
    }

    #[test]
    fn mistakes_of_envoy_gateway_are_named_with_their_place() {
        let report = problems(&facts());
        assert!(report.contains("the hook Translation is missing"), "{report}");
        assert!(report.contains("at:  ConfigMap envoy-gateway-system/envoy-gateway-config"), "{report}");
        let report = problems(&GatewayFacts { entry: Ok(None), ..facts() });
        assert!(report.contains("no entry has InferencePool among its backendResources"), "{report}");
        let report = problems(&GatewayFacts { entry: Err("configmaps x/y: 404".to_owned()), ..facts() });
        assert!(report.contains("cannot be read: configmaps x/y: 404"), "{report}");
        let report = problems(&GatewayFacts { has_pools: false, ..facts() });
        assert!(report.contains("the definition is not installed"), "{report}");
        let report = problems(&GatewayFacts { may_watch_pools: Ok(false), ..facts() });
        assert!(report.contains("it may not list and watch"), "{report}");
        let report = problems(&GatewayFacts { may_watch_pools: Err("403".to_owned()), ..facts() });
        assert!(report.contains("its rights are not checked: 403"), "{report}");
    }
}
