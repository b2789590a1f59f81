//! Plugins of the EPP that are checked and have no effect here. The reasons are in the table of types.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A plugin without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::manifests::picker) struct WithoutEffect {
    parameters: UnusedParameters,
}

/// A plugin's parameters, of which only the types and ranges count.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UnusedParameters {
    None,
    Kind(KubernetesKind),
    Rollout(RolloutScreener),
}

impl WithoutEffect {
    /// The types, in alphabetical order.
    pub(super) const TYPES: [&'static str; 6] = [
        "disaggregatedset-rollout-screener",
        "endpoint-notification-source",
        "k8s-notification-source",
        "outlen-bucket",
        "priority-then-time-eviction-order-policy",
        "sheddable-eviction-filter",
    ];

    /// Reads a plugin of the type with this name, one of [`TYPES`](Self::TYPES).
    pub(super) fn read<'de, D: Deserializer<'de>>(type_name: &str, parameters: D) -> Result<Self, D::Error> {
        let parameters = match type_name {
            "disaggregatedset-rollout-screener" => {
                UnusedParameters::Rollout(RolloutScreener::deserialize(parameters)?)
            }
            "k8s-notification-source" => UnusedParameters::Kind(KubernetesKind::deserialize(parameters)?),
            "endpoint-notification-source"
            | "outlen-bucket"
            | "priority-then-time-eviction-order-policy"
            | "sheddable-eviction-filter" => {
                NoParameters::deserialize(parameters).map(|NoParameters {}| UnusedParameters::None)?
            }
            _ => return Err(D::Error::unknown_variant(type_name, &Self::TYPES)),
        };
        Ok(Self { parameters })
    }

    /// Refuses parameters that are out of range.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.parameters {
            UnusedParameters::None => Ok(()),
            UnusedParameters::Kind(kind) => kind.check(),
            UnusedParameters::Rollout(screener) => screener.check(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

/// `k8s-notification-source`: a kind of objects that the EPP watches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct KubernetesKind {
    #[serde(rename = "group")]
    _group: String,
    version: String,
    kind: String,
}

impl KubernetesKind {
    fn check(&self) -> Result<(), String> {
        if self.version.is_empty() || self.kind.is_empty() {
            return Err("version and kind are required".to_owned());
        }
        Ok(())
    }
}

/// `disaggregatedset-rollout-screener`: the revisions of a rollout among which the EPP draws.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RolloutScreener {
    scope: RolloutScope,
    #[serde(rename = "headerSelectors")]
    _header_selectors: Vec<HeaderSelector>,
    revision_gating: Option<RevisionGating>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RolloutScope {
    label_selector: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HeaderSelector {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "headerName")]
    _header_name: String,
    #[serde(rename = "labelKey")]
    _label_key: String,
    #[serde(rename = "mode")]
    _mode: HeaderMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HeaderMode {
    Strict,
    Prefer,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RevisionGating {
    mode: GatingMode,
    #[serde(default)]
    require_roles: RequiredRoles,
    /// The later name of `requireRoles.values`.
    #[serde(default)]
    required_roles: Vec<String>,
    #[serde(default, rename = "revisionLabelKey")]
    _revision_label_key: String,
    #[serde(default, rename = "roleLabelKey")]
    _role_label_key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct RequiredRoles {
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum GatingMode {
    Sum,
    MaxRole,
    Disabled,
}

impl RolloutScreener {
    fn check(&self) -> Result<(), String> {
        if self.scope.label_selector.is_empty() {
            return Err("scope.labelSelector is required".to_owned());
        }
        let Some(RevisionGating { mode, require_roles, required_roles, .. }) = &self.revision_gating else {
            return Err("revisionGating is required".to_owned());
        };
        let has_roles = !require_roles.values.is_empty() || !required_roles.is_empty();
        if !has_roles && *mode != GatingMode::Disabled {
            return Err("revisionGating.requiredRoles is required, unless the mode is disabled".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(type_name: &str, parameters: Value) -> Result<(), String> {
        WithoutEffect::read(type_name, parameters).map_err(|error| error.to_string())?.check()
    }

    #[test]
    fn an_object_that_is_watched_has_a_version_and_a_kind() {
        let kind = "k8s-notification-source";
        assert_eq!(checked(kind, json!({"version": "v1", "kind": "Pod"})), Ok(()));
        for parameters in [json!({}), json!({"version": "v1"}), json!({"kind": "Pod", "version": ""})] {
            assert_eq!(checked(kind, parameters), Err("version and kind are required".to_owned()));
        }
    }
    #[test]
    fn a_rollout_has_a_scope_and_roles_under_either_name() {
        let rollout = |gating: Value| {
            let scope = json!({"labelSelector": "app=a"});
            checked("disaggregatedset-rollout-screener", json!({"scope": scope, "revisionGating": gating}))
        };
        let roles = json!(["prefill", "decode"]);
        assert_eq!(rollout(json!({"mode": "max-role", "requiredRoles": roles})), Ok(()));
        assert_eq!(rollout(json!({"mode": "sum", "requireRoles": {"values": roles}})), Ok(()));
        assert_eq!(rollout(json!({"mode": "disabled"})), Ok(()));
        for refused in [json!({"mode": "sum"}), json!(null), json!({"mode": "most", "requiredRoles": roles})]
        {
            assert!(rollout(refused.clone()).is_err(), "{refused}");
        }
    }
}
