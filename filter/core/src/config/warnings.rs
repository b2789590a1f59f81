//! Combinations of plugins that are allowed and work against each other.

use super::ConfigError;
use crate::input::slot::Slot;
use crate::pipeline::Pipeline;
use crate::plugin::{Instance, Need, NeedKind, PrefixProducer};

impl Pipeline {
    /// Combinations of plugins that are allowed and work against each other, each with its remedy.
    pub fn warnings(&self) -> Vec<ConfigError> {
        let plugins = self.plugins.iter().enumerate();
        plugins
            .filter_map(|(index, Instance { plugin, .. })| self.load_warning(index, &plugin.needs()))
            .collect()
    }

    /// Warns of a plugin that weighs prompts without the part that KV-cache events show as cached, and tokens
    /// in flight with it.
    fn load_warning(&self, index: usize, needs: &[Need<'_>]) -> Option<ConfigError> {
        let find = |kind| needs.iter().find(|need| need.kind == kind);
        let load = find(NeedKind::LoadProducer).or_else(|| find(NeedKind::PromptLoadProducer));
        let prefixes = find(NeedKind::PrefixProducer).filter(|_| load.is_some())?;
        let is_read = |producer: &&Slot<dyn PrefixProducer>| *producer.name == *prefixes.name;
        let producer = self.prefix_producers.iter().find(is_read)?;
        let counted_by = &self.providers.load_estimator.prefix_producer;
        if !producer.plugin.reads_caches() || counted_by == prefixes.name {
            return None;
        }
        let counted = match self.providers.load_prefixes {
            None => "whole prompts as tokens to read".to_owned(),
            Some(_) => format!("prompts as cached by {counted_by:?}"),
        };
        let name = prefixes.name;
        Some(ConfigError {
            at: format!("plugins[{index}].parameters.{}", prefixes.parameter),
            problem: format!(
                "is {name:?}, and tokens in flight count {counted}; give inflight-load-producer the same prefixMatchInfoProducerName"
            ),
        })
    }
}
