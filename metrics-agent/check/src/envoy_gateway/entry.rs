//! The agents' entry in Envoy Gateway's configuration.

use metrics_agent_doctor::doctor::Finding;
use metrics_agent_support::files::yaml_problem;
use serde::Deserialize;

const POOLS: &str = "inference.networking.k8s.io";

/// The fields of Envoy Gateway's configuration that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configuration {
    extension_managers: Vec<ManagerEntry>,
    extension_manager: Option<ManagerEntry>,
}

/// An extension server, as Envoy Gateway's configuration describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ManagerEntry {
    backend_resources: Vec<BackendResource>,
    hooks: Hooks,
    service: EntryService,
    max_message_size: Option<serde_json::Value>,
    /// Whether another extension with `InferencePool`s is called after it.
    #[serde(skip)]
    is_followed: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct BackendResource {
    group: String,
    kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Hooks {
    xds_translator: Translator,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Translator {
    post: Vec<String>,
    translation: EntryTranslation,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EntryTranslation {
    listener: TranslationPart,
    route: TranslationPart,
    cluster: TranslationPart,
    secret: TranslationPart,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TranslationPart {
    /// `None`: no for listeners and routes, yes for clusters and secrets.
    include_all: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct EntryService {
    tls: Option<EntryTls>,
}

/// The Secrets of an entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct EntryTls {
    pub(super) certificate_ref: Option<SecretRef>,
    pub(super) client_certificate_ref: Option<SecretRef>,
}

/// A reference to a Secret.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct SecretRef {
    pub(super) name: String,
    /// `None`: Envoy Gateway's own.
    pub(super) namespace: Option<String>,
}

impl ManagerEntry {
    /// The last entry with `InferencePool`s that has the hook Endpoints, or else the last one: the others are
    /// other extensions, such as Envoy AI Gateway. `None`: there is none.
    pub(super) fn find(text: &str) -> Result<Option<Self>, String> {
        let configuration: Configuration =
            serde_saphyr::from_str(text).map_err(|error| yaml_problem(&error))?;
        let Configuration { extension_managers, extension_manager } = configuration;
        let has_pools = |entry: &Self| {
            entry.backend_resources.iter().any(|it| it.group == POOLS && it.kind == "InferencePool")
        };
        let mut entries: Vec<_> =
            extension_managers.into_iter().chain(extension_manager).filter(has_pools).collect();
        let own = entries.iter().rposition(|entry| entry.calls("Endpoints"));
        let Some(own) = own.or(entries.len().checked_sub(1)) else { return Ok(None) };
        let is_followed = own + 1 < entries.len();
        Ok(Some(Self { is_followed, ..entries.swap_remove(own) }))
    }

    fn calls(&self, hook: &str) -> bool {
        self.hooks.xds_translator.post.iter().any(|it| it == hook)
    }

    /// Its Secrets.
    pub(super) fn tls(&self) -> EntryTls {
        self.service.tls.clone().unwrap_or_default()
    }

    /// Its mistakes, except for certificates. `place` is where it is.
    pub(super) fn findings(&self, place: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let translation = &self.hooks.xds_translator.translation;
        if self.is_followed {
            findings.push(Finding::error(
                place,
                "another extension server with InferencePools is called after the agents: requests to pools are refused if it is Envoy AI Gateway's",
                "enter the agents last in extensionManagers",
            ));
        }
        for (hook, effect) in [
            ("Route", "routes to InferencePools are not found"),
            ("Endpoints", "all pools of a rule have the same weight"),
            ("Translation", "routes to InferencePools do not get the filter"),
        ] {
            if !self.calls(hook) {
                let problem = format!("the hook {hook} is missing: {effect}");
                let fix = "set hooks.xdsTranslator.post: [Route, Endpoints, Translation]";
                findings.push(Finding::error(place, problem, fix));
            }
        }
        for (part, includes, effect) in [
            ("listener", translation.listener.include_all == Some(true), "listeners do not get the filter"),
            (
                "route",
                translation.route.include_all == Some(true),
                "routes do not get their pools' configuration",
            ),
            (
                "cluster",
                translation.cluster.include_all != Some(false),
                "the pools' clusters lack the settings of Envoy Gateway's policies",
            ),
        ] {
            if !includes {
                let problem = format!("the agents do not get the {part}s of Gateways: {effect}");
                let fix = format!("set hooks.xdsTranslator.translation.{part}: {{includeAll: true}}");
                findings.push(Finding::error(place, problem, fix));
            }
        }
        if translation.secret.include_all != Some(false) {
            findings.push(Finding::warning(
                place,
                "Envoy Gateway sends the agents the private keys of the Gateways",
                "set hooks.xdsTranslator.translation.secret: {includeAll: false}",
            ));
        }
        if self.max_message_size.is_none() {
            findings.push(Finding::warning(
                place,
                "maxMessageSize is not set: from 4 MiB on, changes of a Gateway do not take effect",
                "set maxMessageSize: 64Mi",
            ));
        }
        let EntryTls { certificate_ref, client_certificate_ref } = self.tls();
        for (field, is_missing) in [
            ("certificateRef", certificate_ref.is_none()),
            ("clientCertificateRef", client_certificate_ref.is_none()),
        ] {
            if is_missing {
                findings.push(Finding::error(
                    place,
                    format!("service.tls.{field} is missing: the agents require TLS with certificates of both sides"),
                    format!("set service.tls.{field} to the chart's Secret"),
                ));
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the chart has it, in a list behind another extension.
    const ENTRY: &str = "
extensionManagers:
  - name: other
    backendResources: [{group: inference.networking.k8s.io, version: v1, kind: InferencePool}]
  - name: endpoint-picker
    backendResources: [{group: inference.networking.k8s.io, version: v1, kind: InferencePool}]
    hooks:
      xdsTranslator:
        post: [Route, Endpoints, Translation]
        translation:
          listener: {includeAll: true}
          route: {includeAll: true}
          cluster: {includeAll: true}
          secret: {includeAll: false}
    service:
      fqdn: {hostname: agents, port: 9097}
      tls:
        certificateRef: {name: ca, namespace: inference}
        clientCertificateRef: {name: client}
    maxMessageSize: 64Mi
";

    fn problems(text: &str) -> Vec<String> {
        let entry = ManagerEntry::find(text).unwrap().unwrap();
        entry.findings("here").into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn the_charts_entry_has_no_mistake() {
        assert_eq!(problems(ENTRY), [""; 0]);
        let tls = ManagerEntry::find(ENTRY).unwrap().unwrap().tls();
        let certificate = SecretRef { name: "ca".to_owned(), namespace: Some("inference".to_owned()) };
        assert_eq!(tls.certificate_ref, Some(certificate));
        assert_eq!(tls.client_certificate_ref.unwrap().namespace, None);
    }

    #[test]
    fn each_missing_part_is_named() {
        for (from, to, problem) in [
            (
                "post: [Route, Endpoints, Translation]",
                "post: [Endpoints, Translation]",
                "the hook Route is missing",
            ),
            (
                "post: [Route, Endpoints, Translation]",
                "post: [Route, Translation]",
                "the hook Endpoints is missing",
            ),
            ("listener: {includeAll: true}", "listener: {}", "do not get the listeners"),
            ("route: {includeAll: true}", "route: {includeAll: false}", "do not get the routes"),
            ("cluster: {includeAll: true}", "cluster: {includeAll: false}", "do not get the clusters"),
            ("secret: {includeAll: false}", "secret: {}", "private keys"),
            ("maxMessageSize: 64Mi", "failOpen: false", "maxMessageSize is not set"),
            ("clientCertificateRef: {name: client}", "other: {}", "clientCertificateRef is missing"),
        ] {
            let found = problems(&ENTRY.replace(from, to));
            assert!(found.len() == 1 && found[0].contains(problem), "{to}: {found:?}");
        }
    }

    #[test]
    fn the_agents_are_the_last_extension_with_pools() {
        let other =
            ENTRY.lines().filter(|line| line.contains("name: other") || line.contains("version: v1")).take(2);
        let after: Vec<_> = other.collect();
        let found = problems(&format!("{ENTRY}{}\n", after.join("\n")));
        assert!(found.len() == 1 && found[0].contains("called after the agents"), "{found:?}");
    }

    #[test]
    fn without_pools_there_is_no_entry() {
        assert!(ManagerEntry::find("{}").unwrap().is_none());
        assert!(ManagerEntry::find(&ENTRY.replace("InferencePool", "Backend")).unwrap().is_none());
        let single =
            ENTRY.replace("extensionManagers:\n  - name: other", "extensionManager:\n    name: other");
        let single = single.split("  - name: endpoint-picker").next().unwrap();
        assert!(ManagerEntry::find(single).unwrap().is_some(), "{single}");
        assert!(ManagerEntry::find("[").unwrap_err().contains("YAML"));
    }
}
