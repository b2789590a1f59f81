//! The environment of a container, and `$(NAME)` in its command.

use super::{Kubelet, NODE};
use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};
use kube::Api;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The variables of a container, with what Kubernetes adds.
#[derive(Debug)]
pub(super) struct Environment(pub(super) BTreeMap<String, String>);

impl Environment {
    /// Reads the variables, some of them from objects of the API server.
    pub(super) async fn read(
        shared: &Kubelet,
        pod: &Pod,
        container: &Container,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let api_server = shared.api_server;
        let mut variables = Self(BTreeMap::from([
            ("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()),
            ("HOSTNAME".into(), pod.metadata.name.clone().unwrap_or_default()),
            ("KUBERNETES_SERVICE_HOST".into(), api_server.ip().to_string()),
            ("KUBERNETES_SERVICE_PORT".into(), api_server.port().to_string()),
            ("KUBERNETES_SERVICE_PORT_HTTPS".into(), api_server.port().to_string()),
        ]));
        if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
            bail!("container {:?}: envFrom is not supported here", container.name);
        }
        for variable in container.env.iter().flatten() {
            let value = match &variable.value_from {
                Some(source) => source_value(shared, pod, source, address)
                    .await
                    .with_context(|| format!("variable {}", variable.name))?,
                None => variables.expand(variable.value.as_deref().unwrap_or_default()),
            };
            variables.0.insert(variable.name.clone(), value);
        }
        Ok(variables)
    }

    /// Replaces `$(NAME)` by the variable's value; `$$` is one `$`, and unknown names stay.
    pub(super) fn expand(&self, text: &str) -> String {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            let reference = after.strip_prefix('(').and_then(|after| after.split_once(')'));
            let Some((name, after_reference)) = reference else {
                expanded.push('$');
                rest = after.strip_prefix('$').unwrap_or(after);
                continue;
            };
            match self.0.get(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.extend(["$(", name, ")"]),
            }
            rest = after_reference;
        }
        expanded + rest
    }
}

async fn source_value(
    shared: &Kubelet,
    pod: &Pod,
    source: &EnvVarSource,
    address: Ipv4Addr,
) -> Result<String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(field) = &source.field_ref {
        return field_value(pod, &field.field_path, address);
    }
    if let Some(key) = &source.config_map_key_ref {
        let maps: Api<ConfigMap> = Api::namespaced(shared.client.clone(), namespace);
        let map = maps.get(&key.name).await?;
        let value = map.data.and_then(|mut data| data.remove(&key.key));
        return value.with_context(|| format!("ConfigMap {} has no key {}", key.name, key.key));
    }
    if let Some(key) = &source.secret_key_ref {
        let secrets: Api<Secret> = Api::namespaced(shared.client.clone(), namespace);
        let secret = secrets.get(&key.name).await?;
        let value = secret.data.and_then(|mut data| data.remove(&key.key));
        let value = value.with_context(|| format!("Secret {} has no key {}", key.name, key.key))?;
        return Ok(String::from_utf8(value.0)?);
    }
    bail!("its source is not supported here");
}

/// A field of the pod, by its path in the downward API.
pub(super) fn field_value(pod: &Pod, path: &str, address: Ipv4Addr) -> Result<String> {
    let metadata = &pod.metadata;
    let quoted = |prefix: &str| path.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
    let member = |members: &Option<BTreeMap<String, String>>, key: &str| {
        members.as_ref().and_then(|members| members.get(key).cloned()).unwrap_or_default()
    };
    if let Some(label) = quoted("metadata.labels") {
        return Ok(member(&metadata.labels, label));
    }
    if let Some(annotation) = quoted("metadata.annotations") {
        return Ok(member(&metadata.annotations, annotation));
    }
    let account = || pod.spec.as_ref()?.service_account_name.clone();
    Ok(match path {
        "metadata.name" => metadata.name.clone().unwrap_or_default(),
        "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
        "metadata.uid" => metadata.uid.clone().unwrap_or_default(),
        "spec.nodeName" => NODE.to_owned(),
        "spec.serviceAccountName" => account().unwrap_or_default(),
        "status.podIP" | "status.podIPs" => address.to_string(),
        "status.hostIP" => crate::namespace::HOST_ADDRESS.to_string(),
        other => bail!("field {other:?} is not supported here"),
    })
}

#[cfg(test)]
mod tests {
    use super::Environment;
    use std::collections::BTreeMap;

    #[test]
    fn references_to_variables_are_replaced() {
        let variables = Environment(BTreeMap::from([("IP".into(), "10.0.0.1".into())]));
        for (text, expanded) in [
            ("$(IP):80", "10.0.0.1:80"),
            ("$$(IP)", "$(IP)"),
            ("$(NONE) $(IP", "$(NONE) $(IP"),
            ("cost $5", "cost $5"),
        ] {
            assert_eq!(variables.expand(text), expanded, "{text}");
        }
    }
}
