//! The policies and limits of flow control.

use core::time::Duration;
use std::sync::Arc;

use super::plugins::{Plugins, wrong_role};
use super::{FlowControlConfig, PriorityBand};
use crate::epp_rules::EppRules;
use crate::flow_control::{BandConfig, Config, Eviction, MAX_BANDS};
use crate::plugin::parameter::or_default;
use crate::plugin::registry::AnyPlugin;
use crate::plugin::{FcfsOrderingPolicy, GlobalStrictFairnessPolicy, Roles, StaticUsageLimitPolicy};

/// Default of the maximum wait, as in the EPP.
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// A maximum wait; `None` for zero, which is unlimited.
fn ending(ttl: Duration) -> Option<Duration> {
    (!ttl.is_zero()).then_some(ttl)
}

/// The EPP's limits of a band.
const DEFAULT_MAX_BYTES: u64 = 1_000_000_000;
const DEFAULT_MAX_REQUESTS: u64 = 5_000;

impl Plugins {
    /// Resolves the policies. `lag` is the time in which the saturation does not show the end of a request.
    pub(super) fn flow_control(
        &mut self,
        config: &FlowControlConfig,
        lag: Duration,
        epp_rules: EppRules,
    ) -> Option<Config> {
        let at = "flowControl.usageLimitPolicyPluginRef";
        let name = config.usage_limit_policy.as_str();
        let usage_limit =
            self.policy(name, StaticUsageLimitPolicy::default(), at, "usage limit policy", |roles| {
                roles.usage_limit.clone()
            });
        let request_ttl = config.default_request_ttl.unwrap_or(DEFAULT_TTL);
        let default = config.default_priority_band.clone().unwrap_or_default();
        let default_band = self.band(&default, request_ttl, "flowControl.defaultPriorityBand");
        let default_negative_band = match &config.default_negative_priority_band {
            Some(band) => self.band(band, request_ttl, "flowControl.defaultNegativePriorityBand"),
            None => default_band.clone(),
        };
        let mut bands: Vec<(i32, BandConfig)> = Vec::with_capacity(config.priority_bands.len());
        for (index, (priority, band)) in config.priority_bands.iter().enumerate() {
            let at = format!("flowControl.priorityBands[{index}]");
            if bands.iter().any(|(earlier, _)| earlier == priority) {
                self.refuse(
                    format_args!("{at}.priority"),
                    format!("{priority} is taken; priorities are unique"),
                );
            }
            bands.extend(self.band(band, request_ttl, &at).map(|band| (*priority, band)));
        }
        // One is left for priority 0.
        if bands.len() >= MAX_BANDS {
            let problem = format!("are {}; allowed are fewer than {MAX_BANDS}", bands.len());
            self.refuse("flowControl.priorityBands", problem);
        }
        let no_endpoint_request_ttl = config.no_endpoint_request_ttl.unwrap_or(request_ttl);
        let limited = |limit: u64| (limit > 0).then_some(limit);
        let (_, usage_limit) = usage_limit?;
        let rules = Config {
            max_bytes: limited(config.max_bytes),
            max_requests: limited(config.max_requests),
            no_endpoint_request_ttl: ending(no_endpoint_request_ttl),
            bands,
            default_band: default_band?,
            default_negative_band: default_negative_band?,
            usage_limit,
            service_decays_in_use: epp_rules.is_after_v010(),
            eviction: config.enable_eviction.then_some(Eviction { grace: lag }),
        };
        Some(rules.with_priorities([]))
    }

    /// `request_ttl` is the maximum wait of all bands.
    fn band(&mut self, band: &PriorityBand, request_ttl: Duration, at: &str) -> Option<BandConfig> {
        let ordering_at = format!("{at}.orderingPolicyRef");
        let default = FcfsOrderingPolicy::default();
        let ordering =
            self.policy(&band.ordering_policy, default, &ordering_at, "request ordering policy", |roles| {
                roles.ordering.clone()
            });
        let fairness_at = format!("{at}.fairnessPolicyRef");
        let default = GlobalStrictFairnessPolicy::default();
        let fairness =
            self.policy(&band.fairness_policy, default, &fairness_at, "fairness policy", |roles| {
                roles.fairness.clone()
            });
        let ((_, ordering), (fairness_name, fairness)) = ordering.zip(fairness)?;
        let limit_or = |limit: u64, default| if limit > 0 { limit } else { default };
        Some(BandConfig {
            max_bytes: limit_or(band.max_bytes, DEFAULT_MAX_BYTES),
            max_requests: limit_or(band.max_requests, DEFAULT_MAX_REQUESTS),
            request_ttl: ending(band.default_request_ttl.unwrap_or(request_ttl)),
            ordering,
            fairness_name,
            fairness,
        })
    }

    /// The policy of this name, with the name. The default one need not be declared.
    fn policy<T>(
        &mut self,
        name: &str,
        default: impl Into<AnyPlugin>,
        at: &str,
        role: &str,
        get: impl Fn(&Roles) -> Option<T>,
    ) -> Option<(Arc<str>, T)> {
        let default: AnyPlugin = default.into();
        let name = or_default(name, default.type_name());
        if name == default.type_name() && self.find(name).is_none() {
            self.add(default);
        }
        let declared = self.require(name, at)?;
        let policy = get(&declared.roles).map(|policy| (Arc::from(name), policy));
        if policy.is_none() {
            let problem = wrong_role(declared, role);
            self.refuse(at, problem);
        }
        policy
    }
}
