//! The filter's own configuration: which pool, and who tells about it.

use endpoint_picker::decision::FailureMode;
use serde::Deserialize;

/// Written as JSON into the filter's `configuration`; everything else comes from the agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// The pool's name at the agent.
    pub(crate) pool: String,
    /// The Envoy cluster that reaches the agent.
    pub(crate) agent_cluster: String,
    /// What happens to requests while the agent has not yet told about the pool.
    #[serde(default)]
    pub(crate) failure_mode: FailureMode,
}

impl Config {
    /// Reads the configuration; the error names the field, what is allowed, and where.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, String> {
        let config: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let bad = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
        if config.pool.is_empty() || config.pool.contains(bad) {
            return Err(format!("pool is {:?}; allowed are letters, digits, '-', '_' and '.'", config.pool));
        }
        if config.agent_cluster.is_empty() {
            return Err("agentCluster is empty; it names the Envoy cluster of the metrics agent".to_owned());
        }
        Ok(config)
    }
}
