//! Plugins of the EPP that are checked and have no effect here, each with the reason.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A plugin without effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::manifests::picker) struct WithoutEffect {
    /// The reason, for a warning.
    pub(in crate::manifests::picker) reason: &'static str,
    /// Whether the EPP counts it as experimental.
    pub(super) is_alpha: bool,
    parameters: UnusedParameters,
}

/// A plugin's parameters, of which only the types and ranges count.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UnusedParameters {
    None,
    Kind(KubernetesKind),
}

const EVICTION: &str = "flowControl.enableEviction alone decides whether requests are evicted, here as in the EPP, and it uses this rule";

impl WithoutEffect {
    /// The types, in alphabetical order.
    pub(super) const TYPES: [&'static str; 4] = [
        "endpoint-notification-source",
        "k8s-notification-source",
        "priority-then-time-eviction-order-policy",
        "sheddable-eviction-filter",
    ];

    /// Reads a plugin of the type with this name, one of [`TYPES`](Self::TYPES).
    pub(super) fn read<'de, D: Deserializer<'de>>(type_name: &str, parameters: D) -> Result<Self, D::Error> {
        let (reason, is_alpha) = match type_name {
            "endpoint-notification-source" => ("discovery reports endpoints to every plugin", false),
            "k8s-notification-source" => ("no plugin reads other objects of the cluster", false),
            "priority-then-time-eviction-order-policy" | "sheddable-eviction-filter" => (EVICTION, true),
            _ => return Err(D::Error::unknown_variant(type_name, &Self::TYPES)),
        };
        let parameters = match type_name {
            "k8s-notification-source" => UnusedParameters::Kind(KubernetesKind::deserialize(parameters)?),
            _ => NoParameters::deserialize(parameters).map(|NoParameters {}| UnusedParameters::None)?,
        };
        Ok(Self { reason, is_alpha, parameters })
    }

    /// Refuses parameters that are out of range.
    pub(super) fn check(&self) -> Result<(), String> {
        match &self.parameters {
            UnusedParameters::None => Ok(()),
            UnusedParameters::Kind(kind) => kind.check(),
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
}
