//! The picker's configuration, and how it becomes a pipeline.

mod compile;
pub mod duration;
mod needs;
mod plugins;
mod profiles;

use core::fmt;

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
    /// `flowControl.saturationDetector.pluginRef`.
    pub saturation_detector: Option<String>,
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
    /// What its score counts; 1 if not given.
    pub weight: Option<f64>,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Where, as a path in the EPP's document: `schedulingProfiles[0].plugins[2].pluginRef`.
    pub at: String,
    /// What is there and what is allowed.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.problem)
    }
}

impl core::error::Error for ConfigError {}

/// All that is wrong with a configuration; at least one thing.
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
