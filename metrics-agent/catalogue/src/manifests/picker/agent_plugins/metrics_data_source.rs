//! `metrics-data-source`: how model servers are scraped.

use core::time::Duration;
use std::borrow::Cow;

use endpoint_picker::plugin::parameter::duration;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The parameters of `metrics-data-source`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifests::picker) struct MetricsDataSource {
    pub(in crate::manifests::picker) scheme: Scheme,
    /// Path of the metrics page; starts with `/`.
    pub(in crate::manifests::picker) path: String,
    /// Port to scrape, 1..=65535. `None`: the endpoint's own.
    pub(in crate::manifests::picker) port: Option<u32>,
    /// Accepted, without effect: the agent's flags name the trusted certificates.
    #[serde(rename = "insecureSkipVerify")]
    _insecure_skip_verify: bool,
    /// PEM file of the certificates to trust. Not supported, so only the empty path passes
    /// [`Scraping`](crate::manifests::picker::Scraping).
    pub(in crate::manifests::picker) ca_cert_path: String,
    /// PEM file of the client's certificate. Not supported either.
    pub(in crate::manifests::picker) client_cert_path: String,
    /// PEM file of the client's key. Not supported either.
    pub(in crate::manifests::picker) client_key_path: String,
    /// Time between scrapes, above 0. `None`: the agent's own.
    #[serde(deserialize_with = "interval")]
    pub(in crate::manifests::picker) interval: Option<Duration>,
}

/// Protocol of scrapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::manifests::picker) enum Scheme {
    #[default]
    Http,
    Https,
}

impl Default for MetricsDataSource {
    fn default() -> Self {
        Self {
            scheme: Scheme::Http,
            path: "/metrics".to_owned(),
            port: None,
            _insecure_skip_verify: true,
            ca_cert_path: String::new(),
            client_cert_path: String::new(),
            client_key_path: String::new(),
            interval: None,
        }
    }
}

impl MetricsDataSource {
    pub(in crate::manifests::picker) fn check(&self) -> Result<(), String> {
        if self.client_cert_path.is_empty() != self.client_key_path.is_empty() {
            return Err("clientCertPath and clientKeyPath must be set together".to_owned());
        }
        check_source(&self.path, self.port, self.interval)
    }
}

/// Refuses a path, port or interval that no data source can have.
pub(super) fn check_source(path: &str, port: Option<u32>, interval: Option<Duration>) -> Result<(), String> {
    if !path.starts_with('/') {
        return Err(format!("path is {path:?}; it must start with '/'"));
    }
    if let Some(port) = port.filter(|port| !(1..=65_535).contains(port)) {
        return Err(format!("port is {port}; allowed is 1 to 65535"));
    }
    if interval.is_some_and(|interval| interval.is_zero()) {
        return Err("interval is 0; it must be above 0".to_owned());
    }
    Ok(())
}

/// An empty interval counts as not set.
pub(super) fn interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = Cow::<'de, str>::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    let interval = duration::parse(&text).ok_or_else(|| {
        D::Error::custom(format_args!(
            "{text:?} is not a duration; allowed are numbers with a unit such as 200ms, 1.5s, 1m30s"
        ))
    })?;
    Ok(Some(interval))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn source(parameters: Value) -> MetricsDataSource {
        serde_json::from_value(parameters).unwrap()
    }

    #[test]
    fn all_parameters_are_read() {
        let source = source(json!({
            "scheme": "https", "path": "/m", "port": 9400, "insecureSkipVerify": false, "caCertPath": "ca",
            "clientCertPath": "c", "clientKeyPath": "k", "interval": "1s",
        }));
        assert_eq!(source.check(), Ok(()));
        assert_eq!((source.scheme, source.port), (Scheme::Https, Some(9400)));
        assert_eq!(source.interval, Some(Duration::from_secs(1)));
    }

    #[test]
    fn an_empty_interval_is_not_set() {
        assert_eq!(source(json!({"interval": ""})).interval, None);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for parameters in [
            json!({"port": 0}),
            json!({"port": 65_536}),
            json!({"path": "metrics"}),
            json!({"clientCertPath": "c"}),
            json!({"interval": "0s"}),
        ] {
            assert!(source(parameters.clone()).check().is_err(), "{parameters}");
        }
        for parameters in [json!({"scheme": "ftp"}), json!({"interval": "1"})] {
            assert!(serde_json::from_value::<MetricsDataSource>(parameters.clone()).is_err(), "{parameters}");
        }
    }
}
