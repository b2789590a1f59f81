//! `token-producer`: how prompts become tokens.

use serde::Deserialize;

use super::Plugin;

/// The estimate back end, four bytes to a token ([`crate::prompt`]); there is no other here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenProducer {
    estimate: Option<Estimate>,
}

/// The estimate back end has nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Estimate {}

impl Plugin for TokenProducer {}
