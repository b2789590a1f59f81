//! The profiles of a configuration, and their handler.

use std::sync::Arc;

use hashbrown::HashSet;

use super::plugins::Plugins;
use super::{ProfileConfig, ProfilePlugin};
use crate::pipeline::{Profile, Slot};
use crate::plugin::{Instance, MaxScorePicker, Picker, ProfileHandler, SingleProfileHandler};

impl Plugins {
    /// The profile handler; an error unless there is one that can work with these profiles.
    pub(super) fn handler(&mut self, profiles: &[ProfileConfig]) -> Option<Arc<dyn ProfileHandler>> {
        let declared = self.all.iter().enumerate();
        let handlers: Vec<(usize, Arc<dyn ProfileHandler>)> = declared
            .filter_map(|(index, declared)| Some((index, declared.roles.profile_handler.clone()?)))
            .collect();
        let handler = match &handlers[..] {
            [] if profiles.len() > 1 => {
                self.refuse("plugins", "no profile handler is declared; with several profiles one is needed");
                return None;
            }
            [] => {
                self.add(SingleProfileHandler::default());
                Arc::new(SingleProfileHandler::default())
            }
            [(_, handler)] => handler.clone(),
            [_, (second, _), ..] => {
                let problem = "multiple profile handlers found; one is allowed";
                self.refuse(format_args!("plugins[{second}]"), problem);
                return None;
            }
        };
        let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        if let Err(problem) = handler.check_profiles(&names) {
            self.refuse("schedulingProfiles", problem);
        }
        Some(handler)
    }

    pub(super) fn profiles(&mut self, profiles: &[ProfileConfig]) -> Vec<Profile> {
        let mut names = HashSet::new();
        let mut compiled = Vec::with_capacity(profiles.len());
        for (index, profile) in profiles.iter().enumerate() {
            let at = format!("schedulingProfiles[{index}]");
            if profile.name.is_empty() {
                self.refuse(format_args!("{at}.name"), "a profile needs a name");
            } else if !names.insert(profile.name.as_str()) {
                let problem = format!("{:?} is taken; profile names are unique", profile.name);
                self.refuse(format_args!("{at}.name"), problem);
            }
            compiled.push(self.profile(profile, &at));
        }
        compiled
    }

    fn profile(&mut self, profile: &ProfileConfig, at: &str) -> Profile {
        let (mut filters, mut scorers, mut picker) = (Vec::new(), Vec::new(), None);
        for (index, ProfilePlugin { name, weight }) in profile.plugins.iter().enumerate() {
            let at = format!("{at}.plugins[{index}]");
            if weight.is_some_and(|weight| !weight.is_finite()) {
                self.refuse(format_args!("{at}.weight"), "a weight is a finite number");
            }
            let Some(declared) = self.require(name, format_args!("{at}.pluginRef")) else { continue };
            let roles = declared.roles.clone();
            filters.extend(roles.filter.map(|filter| declared.slot(filter)));
            scorers.extend(roles.scorer.map(|scorer| (declared.slot(scorer), weight.unwrap_or(1.0))));
            if let Some(own) = roles.picker.map(|picker| declared.slot(picker))
                && picker.replace(own).is_some()
            {
                self.refuse(at, "the profile has a picker already; one is allowed");
            }
        }
        let picker = picker.unwrap_or_else(|| self.default_picker());
        Profile { name: profile.name.clone(), filters, scorers, picker }
    }

    /// The first picker declared, or else the EPP's default.
    fn default_picker(&mut self) -> Slot<dyn Picker> {
        if let Some(declared) = self.slots(|roles| roles.picker.clone()).into_iter().next() {
            return declared;
        }
        let instance = Instance::unnamed(MaxScorePicker::default());
        let (name, key) = (instance.name.as_str().into(), instance.key());
        self.add(MaxScorePicker::default());
        Slot { name, key, plugin: Arc::new(MaxScorePicker::default()) }
    }
}
