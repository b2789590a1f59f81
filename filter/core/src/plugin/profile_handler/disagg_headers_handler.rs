//! `disagg-headers-handler` and its first name `prefill-header-handler`: accepted, without effect.
//!
//! In the EPP they write the headers that tell the destination of other stages where the profile handler does not.
//! Here profile handlers do.

use crate::plugin::Plugin;
use serde::Deserialize;

/// `disagg-headers-handler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DisaggHeadersHandler {
    prefill_profile: String,
    encode_profile: String,
}

impl Plugin for DisaggHeadersHandler {}

/// `prefill-header-handler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct PrefillHeaderHandler(DisaggHeadersHandler);

impl Plugin for PrefillHeaderHandler {}
