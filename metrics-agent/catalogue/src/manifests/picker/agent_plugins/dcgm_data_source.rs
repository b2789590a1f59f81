//! `dcgm-data-source`: how the DCGM exporters of endpoints are scraped.

use core::time::Duration;

use serde::Deserialize;

use super::metrics_data_source::{Scheme, check_source, interval};

/// The parameters of `dcgm-data-source`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifests::picker) struct DcgmDataSource {
    pub(in crate::manifests::picker) scheme: Scheme,
    /// Path of the metrics page; starts with `/`.
    pub(in crate::manifests::picker) path: String,
    /// Port of the exporters, 1..=65535.
    pub(in crate::manifests::picker) port: u32,
    /// Accepted, without effect: the agent's flags name the trusted certificates.
    #[serde(rename = "insecureSkipVerify")]
    _insecure_skip_verify: bool,
    /// Whether an exporter has the address of the pod's node, where that is known, in place of the
    /// endpoint's.
    pub(in crate::manifests::picker) use_node_address: bool,
    /// Time between scrapes, above 0. `None`: the agent's own.
    #[serde(deserialize_with = "interval")]
    pub(in crate::manifests::picker) interval: Option<Duration>,
}

impl Default for DcgmDataSource {
    fn default() -> Self {
        Self {
            scheme: Scheme::Http,
            path: "/metrics".to_owned(),
            port: 9400,
            _insecure_skip_verify: true,
            use_node_address: false,
            interval: None,
        }
    }
}

impl DcgmDataSource {
    pub(super) fn check(&self) -> Result<(), String> {
        check_source(&self.path, Some(self.port), self.interval)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn source(parameters: Value) -> DcgmDataSource {
        serde_json::from_value(parameters).unwrap()
    }

    /// Example of `dcgm-data-source`.
    #[test]
    fn the_exporter_is_at_its_usual_port_and_path() {
        let source = source(json!({}));
        assert_eq!((source.port, &*source.path, source.use_node_address), (9400, "/metrics", false));
        assert_eq!((source.scheme, source.interval, source.check()), (Scheme::Http, None, Ok(())));
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let refused = |parameters| source(parameters).check().unwrap_err();
        assert_eq!(refused(json!({"port": 0})), "port is 0; allowed is 1 to 65535");
        assert_eq!(refused(json!({"path": "m"})), "path is \"m\"; it must start with '/'");
        assert_eq!(refused(json!({"interval": "0s"})), "interval is 0; it must be above 0");
    }
}
