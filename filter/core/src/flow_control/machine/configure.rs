//! Adopting a configuration.

use core::cmp::Reverse;
use core::time::Duration;
use std::sync::Arc;

use super::{Config, Machine};
use crate::flow_control::band::Band;
use crate::flow_control::config::BandConfig;
use crate::flow_control::flows::programs::Programs;
use crate::flow_control::time::Nanos;
use crate::plugin::DEFAULT_FLOW;
use crate::plugin::Fairness;

impl Machine {
    /// Adopts another configuration. Waiting requests are put into its order, and none is dropped. A band that is not configured
    /// any more remains while requests wait in it. Where flows and programs did not count until now, those of tenants without
    /// [figures of their own](Self::tenants) are of one flow.
    pub fn configure(&mut self, config: Config, now: Duration) {
        self.advance(now);
        let in_use = self.bands.iter().filter(|band| !band.is_empty()).map(|band| band.priority);
        let config = config.with_priorities(in_use.collect::<Vec<_>>());
        let mut waiting = Vec::with_capacity(self.waiting.len());
        while let Some((slot, _)) = self.waiting.oldest() {
            let id = self.flow_id(slot).cloned();
            let Some(request) = self.remove(slot) else { continue };
            let id = id.or_else(|| self.tenants.id(request.tenant).cloned());
            waiting.push((request, id.unwrap_or_else(|| Arc::from(DEFAULT_FLOW))));
        }
        self.apply(config);
        for (mut request, id) in waiting {
            request.tenant = self.join_tenant(request.priority, &id);
            self.insert(request, &id);
        }
    }

    /// Replaces the configuration of a queue in which nothing waits.
    pub(super) fn apply(&mut self, config: Config) {
        let mut config = config.with_priorities([]);
        config.bands.sort_by_key(|(priority, _)| Reverse(*priority));
        let ttl = config.request_ttl.map_or(Nanos::MAX, Nanos::from);
        let mut programs = Vec::new();
        let mut bands: Vec<Band> = Vec::with_capacity(config.bands.len());
        for (priority, band) in &config.bands {
            let memory = self.memory(band, &mut programs);
            let mut new = Band::new(*priority, band.clone(), ttl, memory);
            if let Some(older) = self.bands.iter().find(|older| older.priority == *priority) {
                new.continue_from(older);
            }
            bands.push(new);
        }
        self.priorities = bands.iter().map(|band| band.priority).collect();
        (self.bands, self.programs) = (bands, programs);
        self.tenants.retain_bands(|priority| self.priorities.contains(&priority));
        self.reclamation = config.eviction.map(|eviction| {
            let mut reclamation = self.reclamation.take().unwrap_or_default();
            reclamation.adopt(eviction);
            reclamation
        });
        self.config = config;
    }

    /// The place in `programs` of what a band's policy remembers, added to it where it is not there.
    fn memory(&mut self, band: &BandConfig, programs: &mut Vec<Programs>) -> Option<usize> {
        let Fairness::ProgramAware(policy) = &band.fairness else { return None };
        let is_same = |programs: &Programs| programs.name == band.fairness_name;
        if let Some(place) = programs.iter().position(is_same) {
            return Some(place);
        }
        let mut memory = if let Some(place) = self.programs.iter().position(is_same) {
            self.programs.swap_remove(place)
        } else {
            let mut memory = Programs::new(Arc::clone(&band.fairness_name), Arc::clone(policy));
            self.in_flight.programs().for_each(|id| memory.begin(id, self.now));
            memory
        };
        memory.adopt(Arc::clone(policy));
        programs.push(memory);
        Some(programs.len() - 1)
    }
}
