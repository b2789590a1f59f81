//! Whether the plugins and metrics that plugins need are there.

use super::plugins::{Plugins, wrong_role};
use crate::plugin::registry::AnyPlugin;
use crate::plugin::{ApproxPrefixCacheProducer, Need, NeedKind, Roles};

impl Plugins {
    /// Adds the default prefix producer where a plugin needs it and none of its name is declared.
    pub(super) fn add_missing_prefix_producer(&mut self) {
        let default = AnyPlugin::from(ApproxPrefixCacheProducer::default());
        let is_default =
            |need: &Need<'_>| need.kind == NeedKind::PrefixProducer && need.name == default.type_name();
        let is_needed =
            self.all.iter().any(|declared| declared.instance.plugin.needs().iter().any(is_default));
        if is_needed && self.find(default.type_name()).is_none() {
            self.add(default);
        }
    }

    /// Refuses every need that is not met.
    pub(super) fn check_needs(&mut self) {
        for index in 0..self.all.len() {
            let Some(declared) = self.all.get(index) else { continue };
            let (plugin, own) = (declared.instance.plugin.clone(), declared.instance.name.clone());
            for need in plugin.needs() {
                let parameter = if need.parameter.is_empty() { "" } else { "." };
                let at = format!("plugins[{index}].parameters{parameter}{}", need.parameter);
                let problem = match need.kind {
                    NeedKind::Decider | NeedKind::PrefixProducer | NeedKind::SessionProducer => {
                        self.problem_with_plugin(&own, &need, &at)
                    }
                    NeedKind::LoadProducer => self.problem_with_load(need.name),
                    // The agent, which reads the metrics, checks that they are published.
                    NeedKind::CustomMetric => None,
                };
                if let Some(problem) = problem {
                    self.refuse(at, problem);
                }
            }
        }
    }

    fn problem_with_plugin(&mut self, own: &str, need: &Need<'_>, at: &str) -> Option<String> {
        let needed = self.require(need.name, at)?;
        let wrong_role = (!is_met(need.kind, &needed.roles)).then(|| wrong_role(needed, need.kind.as_str()));
        let circle = self.way_back(need.name, own);
        let circle =
            circle.map(|way| format!("plugins refer to each other in a circle: {}", way.join(" → ")));
        circle.or(wrong_role)
    }

    fn problem_with_load(&self, name: &str) -> Option<String> {
        let (producer, _) = self.load_producer();
        let problem = || format!("reads the load that {name:?} counts, but it is counted by {producer:?}");
        (name != producer).then(problem)
    }

    /// The plugins on a way by needs from `from` to `to`, beginning and ending with `to`.
    fn way_back<'a>(&'a self, from: &'a str, to: &'a str) -> Option<Vec<&'a str>> {
        // Each with the plugin that it was reached from.
        let mut reached = vec![(from, to)];
        let mut next = 0;
        while let Some(&(at, _)) = reached.get(next) {
            if at == to {
                return Some(way(&reached, to));
            }
            let needs = self.find(at).map(|declared| declared.instance.plugin.needs()).unwrap_or_default();
            // Reading a load makes no circle: the pipeline counts it, whichever plugins read it.
            let plugins = needs
                .iter()
                .filter(|need| !matches!(need.kind, NeedKind::CustomMetric | NeedKind::LoadProducer));
            for need in plugins {
                let is_new = reached.iter().all(|(name, _)| *name != need.name);
                if let Some(found) = self.find(need.name).filter(|_| is_new) {
                    reached.push((&found.instance.name, at));
                }
            }
            next += 1;
        }
        None
    }
}

/// The way from `to` back to itself through plugins given with the one that each was reached from.
fn way<'a>(reached: &[(&'a str, &'a str)], to: &'a str) -> Vec<&'a str> {
    let mut way = vec![to];
    let mut at = to;
    while let Some(&(_, before)) = reached.iter().find(|(name, _)| *name == at) {
        way.push(before);
        at = before;
        if at == to {
            break;
        }
    }
    way.reverse();
    way
}

/// Whether a plugin with these roles meets a need.
fn is_met(kind: NeedKind, roles: &Roles) -> bool {
    match kind {
        NeedKind::Decider => roles.decider.is_some(),
        NeedKind::PrefixProducer => roles.prefix_producer.is_some(),
        NeedKind::SessionProducer => roles.session_producer.is_some(),
        NeedKind::LoadProducer => roles.load_estimator.is_some(),
        NeedKind::CustomMetric => false,
    }
}
