//! `models-data-source`: how servers are asked for their models.

use core::time::Duration;

use serde::Deserialize;

use super::metrics_data_source::{Scheme, check_source, interval};

/// The parameters of `models-data-source`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifests::picker) struct ModelsDataSource {
    pub(in crate::manifests::picker) scheme: Scheme,
    /// Path of the list; starts with `/`.
    pub(in crate::manifests::picker) path: String,
    /// Accepted, without effect: the agent's flags name the trusted certificates.
    #[serde(rename = "insecureSkipVerify")]
    _insecure_skip_verify: bool,
    ca_cert_path: String,
    client_cert_path: String,
    client_key_path: String,
    /// Time between scrapes, above 0.
    #[serde(deserialize_with = "interval")]
    pub(in crate::manifests::picker) interval: Option<Duration>,
}

impl Default for ModelsDataSource {
    fn default() -> Self {
        Self {
            scheme: Scheme::Http,
            path: "/v1/models".to_owned(),
            _insecure_skip_verify: true,
            ca_cert_path: String::new(),
            client_cert_path: String::new(),
            client_key_path: String::new(),
            interval: None,
        }
    }
}

impl ModelsDataSource {
    pub(super) fn check(&self) -> Result<(), String> {
        check_source(&self.path, None, self.interval)
    }

    /// PEM files of authorities, certificate and key, none of which is supported.
    pub(in crate::manifests::picker) fn certificates(&self) -> [&String; 3] {
        [&self.ca_cert_path, &self.client_cert_path, &self.client_key_path]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_list_is_at_openais_path() {
        let source: ModelsDataSource = serde_json::from_value(json!({})).unwrap();
        assert_eq!((&*source.path, source.interval, source.check()), ("/v1/models", None, Ok(())));
        let source: ModelsDataSource = serde_json::from_value(json!({"path": "m"})).unwrap();
        assert_eq!(source.check(), Err("path is \"m\"; it must start with '/'".to_owned()));
    }
}
