//! `pd-profile-handler`, and `data-parallel-profile-handler`: handlers that send requests to one port of a server for all its
//! ranks.

use serde::Deserialize;
use serde_json::{Value as Json, json};

/// The port of `data-parallel-profile-handler` where none is given.
const DEFAULT_PRIMARY_PORT: u16 = 8000;

/// The parameters of `data-parallel-profile-handler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DataParallelProfileHandler {
    /// 0 counts as 8000.
    primary_port: u32,
}

impl DataParallelProfileHandler {
    /// The parameters of `single-profile-handler`.
    pub(super) fn lower(self) -> Result<Json, String> {
        Ok(json!({"primaryPort": port(self.primary_port)?.unwrap_or(DEFAULT_PRIMARY_PORT)}))
    }
}

/// The parameters of `pd-profile-handler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PdProfileHandler {
    /// Empty: `decode`.
    decode_profile: String,
    /// Empty: `prefill`.
    prefill_profile: String,
    /// Empty: `prefix-based-pd-decider`.
    decider_plugin_name: String,
    /// 0: ranks are sent their requests themselves.
    primary_port: u32,
    /// The prefix producer that has to be there; empty: the default one.
    prefix_match_info_producer_name: String,
    /// Accepted, without effect.
    #[serde(rename = "prefixPluginType")]
    _prefix_plugin_type: String,
    /// Accepted, without effect.
    #[serde(rename = "prefixPluginName")]
    _prefix_plugin_name: String,
}

impl PdProfileHandler {
    /// The parameters of `disagg-profile-handler`.
    pub(super) fn lower(self) -> Result<Json, String> {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let decider = given(self.decider_plugin_name);
        Ok(json!({
            "profiles": {"decode": given(self.decode_profile), "prefill": given(self.prefill_profile)},
            "deciders": {"prefill": decider.as_deref().unwrap_or("prefix-based-pd-decider")},
            "primaryPort": port(self.primary_port)?,
            "prefixMatchInfoProducerName": given(self.prefix_match_info_producer_name),
        }))
    }
}

/// A TCP port; `None` for 0.
fn port(configured: u32) -> Result<Option<u16>, String> {
    let port = u16::try_from(configured);
    let port = port.map_err(|_| format!("primaryPort is {configured}; allowed is 0 to 65535"))?;
    Ok(Some(port).filter(|&port| port > 0))
}
