//! The cost of a LoRA adapter at an endpoint: the request waits until it is loaded, and a later request waits
//! for the adapter that has lost its place.

use core::time::Duration;

use super::cost::Costs;

/// The place that an endpoint has for an adapter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AdapterPlace {
    /// The adapter itself.
    Loaded,
    /// An empty place.
    Empty,
    /// The place of the adapter that was not used for longest, for this long.
    Unused(Duration),
    /// No place before a request in flight ends.
    Taken,
}

impl Costs<'_> {
    /// Milliseconds until the endpoint can use the model, if it is an adapter.
    pub(super) fn adapter_wait(&self, endpoint: usize) -> f64 {
        self.adapter.map_or(0.0, |adapter| self.wait_for(self.place(adapter, endpoint)))
    }

    /// [`Self::adapter_wait`], and the expected milliseconds for which a later request waits for the evicted
    /// adapter. So an adapter gets a further replica, or another server, only where that saves more, and it
    /// takes the place that the pool needs least.
    pub(super) fn adapter_cost(&self, endpoint: usize) -> f64 {
        let Some(adapter) = self.adapter else { return 0.0 };
        let place = self.place(adapter, endpoint);
        let reuse = match place {
            AdapterPlace::Loaded | AdapterPlace::Empty => 0.0,
            AdapterPlace::Unused(time) => self.reuse_probability(time),
            // The evicted adapter was in use until then.
            AdapterPlace::Taken => 1.0,
        };
        self.wait_for(place) + self.lora_load * reuse
    }

    fn wait_for(&self, place: AdapterPlace) -> f64 {
        match place {
            AdapterPlace::Loaded => 0.0,
            AdapterPlace::Empty | AdapterPlace::Unused(_) => self.lora_load,
            AdapterPlace::Taken => self.lora_load + self.formula.rest / 2.0,
        }
    }

    fn place(&self, adapter: u64, endpoint: usize) -> AdapterPlace {
        let (state, lora) = (self.state().at(endpoint), self.cycle.reading(endpoint).lora.as_ref());
        let is_running =
            lora.is_some_and(|lora| lora.running.iter().any(|name| name == self.cycle.request.model));
        let (is_in_flight, known) = state.adapters_in_flight(adapter);
        if is_in_flight || is_running {
            return AdapterPlace::Loaded;
        }
        // Of other proxies, the readings show which adapters they use.
        let running = lora.filter(|_| self.state().is_one_of_several()).map_or(0, |lora| lora.running.len());
        let max = self.max_adapters(endpoint);
        if known.max(running) >= max {
            AdapterPlace::Taken
        } else if state.is_recent(adapter, max) {
            AdapterPlace::Loaded
        } else {
            self.unused(endpoint).map_or(AdapterPlace::Empty, AdapterPlace::Unused)
        }
    }

    /// Adapters that the endpoint holds at once, at least 1.
    fn max_adapters(&self, endpoint: usize) -> usize {
        let max = self.cycle.reading(endpoint).lora.as_ref().map(|lora| lora.max).filter(|&max| max > 0);
        usize::try_from(max.unwrap_or(self.state().max_adapters()).max(1)).unwrap_or(usize::MAX)
    }

    /// How long the adapter was not used that the next one evicts there; `None`: a place is empty.
    fn unused(&self, endpoint: usize) -> Option<Duration> {
        let used = self.state().at(endpoint).next_evicted(self.max_adapters(endpoint))?;
        Some(self.cycle.now.saturating_sub(used))
    }

    /// The probability that an adapter which was not used for `unused` is needed while it could have stayed:
    /// T / (T + `unused`), T the longest time for which an adapter of the pool is not used and still has its
    /// place.
    ///
    /// Nothing is known of how often it is used but its last use. By a prior 1 / λ of the rate λ, which has
    /// no scale, the rate has the density `unused` · exp(−λ · `unused`) then, of which the probability of no
    /// use in T, exp(−λT), has the mean `unused` / (`unused` + T).
    fn reuse_probability(&self, unused: Duration) -> f64 {
        let kept = *self.adapters_kept.get_or_init(|| {
            let endpoints = 0..self.cycle.pool.as_slice().len();
            endpoints.filter_map(|endpoint| self.unused(endpoint)).max().unwrap_or_default().as_secs_f64()
        });
        if kept > 0.0 { kept / (kept + unused.as_secs_f64()) } else { 1.0 }
    }
}
