//! Proxies that share through one feed, with an event loop.

use crate::proxy::{Proxy, Traffic};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::testing::{AgentFeed, START};
use endpoint_picker_wire::changes::Feed;
use metrics_agent_replay::simulation::events::Events;
use std::time::Duration;

/// Time between two messages of a proxy.
pub const SYNC_EVERY: Duration = Duration::from_millis(20);

/// Proxies, the feed through which they share, and the events of a simulation.
#[derive(Debug)]
pub struct World<E> {
    /// All proxies.
    pub proxies: Vec<Proxy>,
    /// The feed that all proxies read.
    pub feed: AgentFeed,
    /// Random numbers of the simulation.
    pub rng: SplitMix64,
    events: Events<Event<E>>,
    /// Time from the agent's response until the proxy has it.
    response_delay: Duration,
    /// Maximum by which the time between two messages of a proxy is longer than [`SYNC_EVERY`].
    jitter: Duration,
}

#[derive(Debug)]
enum Event<E> {
    /// A proxy sends its changes.
    Sync { proxy: usize },
    /// A proxy has the agent's response.
    Response { proxy: usize, feed: Feed },
    /// An event of the simulation.
    Own(E),
}

impl<E> World<E> {
    /// Proxies that do not share.
    pub fn new(proxies: Vec<Proxy>, rng: SplitMix64) -> Self {
        let feed = AgentFeed::new(9);
        Self {
            proxies,
            feed,
            rng,
            events: Events::new(START),
            response_delay: Duration::ZERO,
            jitter: Duration::ZERO,
        }
    }

    /// Lets the first proxy begin to share after a time, and each of the others this much later than the one
    /// before it. Their times are exact.
    pub fn share_evenly(&mut self, first: Duration, apart: Duration) {
        let mut phase = Duration::ZERO;
        for proxy in 0..self.proxies.len() {
            self.events.plan(first + phase, Event::Sync { proxy });
            phase += apart;
            phase = phase.checked_sub(SYNC_EVERY).unwrap_or(phase);
        }
    }

    /// Lets each proxy begin to share at a random time. Like real timers, its times are not exact, so proxies
    /// drift apart.
    pub fn share(&mut self, response_delay: Duration) {
        self.response_delay = response_delay;
        self.jitter = Duration::from_millis(1);
        for proxy in 0..self.proxies.len() {
            let after = SYNC_EVERY.mul_f64(self.rng.unit());
            self.events.plan(after, Event::Sync { proxy });
        }
    }

    /// The current time.
    pub fn now(&self) -> Duration {
        self.events.now()
    }

    /// The time since the start.
    pub fn since_start(&self) -> Duration {
        self.now().saturating_sub(START)
    }

    /// Plans an event of the simulation.
    pub fn plan(&mut self, after: Duration, event: E) {
        self.events.plan(after, Event::Own(event));
    }

    /// Plans an event of the simulation at a random time within the current one.
    pub fn plan_within(&mut self, time: Duration, event: E) {
        let after = time.mul_f64(self.rng.unit());
        self.plan(after, event);
    }

    /// Lets the proxies share until the next event of the simulation.
    pub fn next_event(&mut self) -> Option<E> {
        loop {
            match self.events.pop()? {
                Event::Own(event) => return Some(event),
                Event::Sync { proxy } => self.sync(proxy),
                Event::Response { proxy, feed } => self.proxies[proxy].receive(&feed, self.events.now()),
            }
        }
    }

    fn sync(&mut self, proxy: usize) {
        let late = if self.jitter.is_zero() { Duration::ZERO } else { self.jitter.mul_f64(self.rng.unit()) };
        self.events.plan(SYNC_EVERY + late, Event::Sync { proxy });
        let Some(feed) = self.proxies[proxy].send(&mut self.feed, self.events.now()) else { return };
        if self.response_delay.is_zero() {
            self.proxies[proxy].receive(&feed, self.events.now());
        } else {
            self.events.plan(self.response_delay, Event::Response { proxy, feed });
        }
    }

    /// The bytes of all proxies.
    pub fn traffic(&self) -> Traffic {
        self.proxies.iter().fold(Traffic::default(), |sum, proxy| Traffic {
            uploaded: sum.uploaded + proxy.traffic.uploaded,
            downloaded: sum.downloaded + proxy.traffic.downloaded,
            messages: sum.messages + proxy.traffic.messages,
            message_bytes: sum.message_bytes + proxy.traffic.message_bytes,
        })
    }
}
