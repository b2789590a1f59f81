//! A queue, and what its requests experience.

use core::time::Duration;

use endpoint_picker::flow_control::{BandConfig, Config, Event, Eviction, Machine, Outcome, Ticket, Tokens};
use endpoint_picker::plugin::Arrival;
use endpoint_picker::plugin::Roles;
use endpoint_picker::plugin::registry::read_plugin;

/// The roles of a policy.
pub(crate) fn policy(type_name: &str, parameters: &str) -> Roles {
    let plugin = read_plugin(type_name, parameters).unwrap();
    plugin.check().unwrap();
    plugin.roles()
}

const TTL: Option<Duration> = Some(Duration::from_secs(60));

pub(crate) fn band(ordering: &str, fairness: &str) -> BandConfig {
    BandConfig {
        max_bytes: 1_000,
        max_requests: 100,
        request_ttl: TTL,
        ordering: policy(ordering, "{}").ordering.unwrap(),
        fairness_name: fairness.into(),
        fairness: policy(fairness, "{}").fairness.unwrap(),
    }
}

pub(crate) fn default_band() -> BandConfig {
    band("fcfs-ordering-policy", "global-strict-fairness-policy")
}

/// The EPP's defaults, with bands for 1, 0 and -1.
pub(crate) fn config() -> Config {
    Config {
        max_bytes: None,
        max_requests: None,
        no_endpoint_request_ttl: TTL,
        bands: Vec::new(),
        default_band: default_band(),
        default_negative_band: default_band(),
        usage_limit: policy("static-usage-limit-policy", "{}").usage_limit.unwrap(),
        service_decays_in_use: false,
        eviction: None,
    }
    .with_priorities([1, 0, -1])
}

/// All bands of [`config`] with these policies.
pub(crate) fn config_of(ordering: &str, fairness: &str) -> Config {
    let band = band(ordering, fairness);
    Config { bands: [1, 0, -1].map(|priority| (priority, band.clone())).to_vec(), ..config() }
}

pub(crate) fn evicting() -> Config {
    Config { eviction: Some(Eviction { grace: Duration::from_millis(10) }), ..config() }
}

/// A queue in front of a saturated pool, whose time the test sets. Tickets count from 1.
pub(crate) struct Queue {
    pub(crate) machine: Machine,
    pub(crate) now: Duration,
    tickets: u64,
}

impl Queue {
    pub(crate) fn new(config: Config) -> Self {
        let now = Duration::from_secs(100);
        let mut machine = Machine::new(config);
        machine.capacity(1.0, true, now);
        Self { machine, now, tickets: 0 }
    }

    pub(crate) fn offer(&mut self, arrival: &Arrival<'_>) -> u64 {
        self.tickets += 1;
        self.machine.offer(Ticket(self.tickets), arrival, self.now);
        self.tickets
    }

    /// Offers a request of a flow and priority.
    pub(crate) fn request(&mut self, fairness_id: &str, priority: i32) -> u64 {
        self.offer(&Arrival { fairness_id, priority, ..Arrival::default() })
    }

    pub(crate) fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    pub(crate) fn saturation(&mut self, saturation: f64) {
        self.machine.capacity(saturation, true, self.now);
    }

    pub(crate) fn cancel(&mut self, ticket: u64) {
        self.machine.cancel(Ticket(ticket), self.now);
    }

    pub(crate) fn finish(&mut self, ticket: u64, input: u64, output: u64) {
        self.machine.finish(Ticket(ticket), Some(Tokens { input, output }), self.now);
    }

    /// All events at this time.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        core::iter::from_fn(|| self.machine.poll(self.now)).collect()
    }

    /// Opens the pool until the queue is empty, and returns the requests in the order of their dispatch.
    pub(crate) fn drain(&mut self) -> Vec<u64> {
        self.saturation(0.0);
        let mut dispatched = Vec::new();
        while let Some(wake_at) = self.machine.wake_at() {
            self.now = self.now.max(wake_at);
            dispatched.extend(dispatches(&self.events()));
        }
        dispatched
    }

    /// The waiting requests of each band, the highest priority first.
    pub(crate) fn waiting(&self) -> Vec<u64> {
        self.machine.bands().map(|band| band.requests).collect()
    }
}

pub(crate) fn dispatches(events: &[Event]) -> Vec<u64> {
    let dispatch = |event: &Event| match event {
        Event::Dispatch { ticket, .. } => Some(ticket.0),
        Event::Reject { .. } | Event::Expire { .. } | Event::Evict { .. } => None,
    };
    events.iter().filter_map(dispatch).collect()
}

/// The requests that are answered, and how.
pub(crate) fn drops(events: &[Event]) -> Vec<(u64, Outcome)> {
    let drop = |event: &Event| match event {
        Event::Reject { ticket, outcome } | Event::Expire { ticket, outcome, .. } => {
            Some((ticket.0, *outcome))
        }
        Event::Dispatch { .. } | Event::Evict { .. } => None,
    };
    events.iter().filter_map(drop).collect()
}

pub(crate) fn evictions(events: &[Event]) -> Vec<u64> {
    let evict = |event: &Event| match event {
        Event::Evict { ticket } => Some(ticket.0),
        Event::Dispatch { .. } | Event::Reject { .. } | Event::Expire { .. } => None,
    };
    events.iter().filter_map(evict).collect()
}
