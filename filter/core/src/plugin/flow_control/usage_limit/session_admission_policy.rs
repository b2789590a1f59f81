//! `session-admission-policy`: sessions wait while those in work fill the caches.

use std::sync::Arc;

use serde::Deserialize;

use super::UsageLimitPolicy;
use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, Roles};

/// A session that has to read its prompt waits until it fits into `cacheShare` of a server's cache, besides
/// the sessions in work there. The saturation lets no request wait.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionAdmissionPolicy {
    /// The part of each server's cache for sessions in work, above 0, up to 1.
    cache_share: f64,
}

impl Default for SessionAdmissionPolicy {
    /// Sessions grow after they were admitted, and responses and idle sessions need room too: with 0.3, 0.6
    /// and 0.9 the servers' hits are 88, 82 and 36 % where sessions need 1.5 times the caches (`make
    /// simulate`, sessions in work for 120 s).
    fn default() -> Self {
        Self { cache_share: 0.6 }
    }
}

impl Plugin for SessionAdmissionPolicy {
    fn check(&self) -> Result<(), String> {
        let share = self.cache_share;
        allow(share > 0.0 && share <= 1.0, "cacheShare", share, "above 0, up to 1")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { usage_limit: Some(self), ..Roles::default() }
    }
}

impl UsageLimitPolicy for SessionAdmissionPolicy {
    fn ceilings(&self, _: f64, priorities: &[i32], _: &mut u64, ceilings: &mut Vec<f64>) {
        ceilings.clear();
        ceilings.resize(priorities.len(), f64::INFINITY);
    }

    fn cache_share(&self) -> Option<f64> {
        Some(self.cache_share)
    }
}
