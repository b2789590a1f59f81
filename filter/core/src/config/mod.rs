//! The picker's configuration, and how it becomes a pipeline.

mod compile;
mod flow_control;
mod plugins;
mod warnings;

use core::fmt;
use core::time::Duration;

use crate::epp_rules::EppRules;
use crate::plugin::Instance;

/// The parts of the EPP's `EndpointPickerConfig` that decide. The default is the EPP's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PickerConfig {
    /// `plugins`. Empty: the EPP's default plugins and profile.
    pub plugins: Vec<Instance>,
    /// `schedulingProfiles`. Empty: one profile of every filter, scorer and picker declared.
    pub profiles: Vec<ProfileConfig>,
    /// `requestHandler.parsers`, by plugin name. Empty: the default parsers.
    pub parsers: Vec<String>,
    /// `requestHandler.propagatePriority`.
    pub propagate_priority: bool,
    /// `flowControl.saturationDetector.pluginRef`.
    pub saturation_detector: Option<String>,
    /// The rest of `flowControl`; `None`: requests do not wait.
    pub flow_control: Option<FlowControlConfig>,
    /// The rules that decide where ours differ from the EPP's, and its versions from each other.
    pub epp_rules: EppRules,
    /// Time between two scrapes of an endpoint; zero: unknown.
    pub scrape_interval: Duration,
}

/// `flowControl`. The default is the EPP's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowControlConfig {
    /// Maximum number of bytes that may wait in all bands together; 0: unlimited.
    pub max_bytes: u64,
    /// Maximum number of requests that may wait in all bands together; 0: unlimited.
    pub max_requests: u64,
    /// Maximum wait, where the band has none of its own; zero: unlimited. `None`: 60 s.
    pub default_request_ttl: Option<Duration>,
    /// Maximum wait while the pool has no endpoints; zero: unlimited. `None`: as `default_request_ttl`.
    pub no_endpoint_request_ttl: Option<Duration>,
    /// The bands of priorities without one of their own. `None`: the EPP's defaults.
    pub default_priority_band: Option<PriorityBand>,
    /// The same for priorities below 0. `None`: as for others.
    pub default_negative_priority_band: Option<PriorityBand>,
    /// The bands of single priorities.
    pub priority_bands: Vec<(i32, PriorityBand)>,
    /// `usageLimitPolicyPluginRef`. Empty: `static-usage-limit-policy`.
    pub usage_limit_policy: String,
    /// Whether requests in flight make room for waiting ones.
    pub enable_eviction: bool,
}

/// One of `flowControl.priorityBands`, without its priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityBand {
    /// Maximum number of bytes that may wait; 0: 1 000 000 000.
    pub max_bytes: u64,
    /// Maximum number of requests that may wait; 0: 5000.
    pub max_requests: u64,
    /// Maximum wait; zero: unlimited. `None`: as the `default_request_ttl` of all bands.
    pub default_request_ttl: Option<Duration>,
    /// `fairnessPolicyRef`. Empty: `global-strict-fairness-policy`.
    pub fairness_policy: String,
    /// `orderingPolicyRef`. Empty: `fcfs-ordering-policy`.
    pub ordering_policy: String,
}

/// One of `schedulingProfiles`.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileConfig {
    /// Its name.
    pub name: String,
    /// Its filters, scorers and picker.
    pub plugins: Vec<ProfilePlugin>,
}

/// A plugin in a profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfilePlugin {
    /// The instance's name.
    pub name: String,
    /// The factor of its score; 1 if not given.
    pub weight: Option<f64>,
}

/// A mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where, as a path in the EPP's document: `schedulingProfiles[0].plugins[2].pluginRef`.
    pub at: String,
    /// The value that is there, and the allowed values.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.problem)
    }
}

impl core::error::Error for ConfigError {}

/// All errors of a configuration; not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl core::error::Error for ConfigErrors {}
