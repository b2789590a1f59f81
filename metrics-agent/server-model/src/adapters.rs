//! The places for LoRA adapters on an accelerator.

use std::collections::HashMap;

/// Adapters that are loaded. One that no running request uses goes when another needs its place.
#[derive(Debug)]
pub(super) struct LoadedAdapters {
    places: usize,
    loaded: HashMap<String, AdapterUse>,
    clock: u64,
}

#[derive(Debug, Default)]
struct AdapterUse {
    running: usize,
    last: u64,
}

impl LoadedAdapters {
    pub(super) fn new(places: usize) -> Self {
        Self { places, loaded: HashMap::new(), clock: 0 }
    }

    pub(super) fn is_loaded(&self, name: &str) -> bool {
        self.loaded.contains_key(name)
    }

    /// Adapters that running requests use.
    pub(super) fn running(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.loaded.iter().filter(|(_, used)| used.running > 0).map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Whether one more request with this adapter could run now.
    pub(super) fn has_room(&self, name: &str) -> bool {
        self.is_loaded(name) || self.loaded.values().filter(|used| used.running > 0).count() < self.places
    }

    /// A request with it runs; true when it has to be loaded first. There must be room.
    pub(super) fn begin(&mut self, name: &str) -> bool {
        let must_load = !self.is_loaded(name);
        if must_load && self.loaded.len() >= self.places.max(1) {
            let idle = self.loaded.iter().filter(|(_, used)| used.running == 0);
            let oldest = idle.min_by_key(|(_, used)| used.last).map(|(name, _)| name.clone());
            self.loaded.remove(&oldest.expect("there is room"));
        }
        self.clock += 1;
        let used = self.loaded.entry(name.to_owned()).or_default();
        used.running += 1;
        used.last = self.clock;
        must_load
    }

    /// A request with it has ended.
    pub(super) fn end(&mut self, name: &str) {
        self.loaded.get_mut(name).expect("the adapter of a running request is loaded").running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_stays_until_its_place_is_needed() {
        let mut adapters = LoadedAdapters::new(1);
        assert!(adapters.begin("a"));
        assert!(adapters.has_room("a") && !adapters.has_room("b"));
        assert!(!adapters.begin("a"));
        adapters.end("a");
        adapters.end("a");
        assert!(adapters.running().is_empty() && adapters.is_loaded("a"));
        assert!(adapters.has_room("b") && adapters.begin("b"));
        assert!(!adapters.is_loaded("a"));
    }

    #[test]
    fn the_one_unused_for_longest_goes_first() {
        let mut adapters = LoadedAdapters::new(2);
        for name in ["a", "b", "a"] {
            adapters.begin(name);
            adapters.end(name);
        }
        adapters.begin("c");
        assert_eq!([adapters.is_loaded("a"), adapters.is_loaded("b")], [true, false]);
    }
}
