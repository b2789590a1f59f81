//! The proxies of a run: one, or several that share or do not.

use super::conditions::{Conditions, Proxies as Number};
use super::variant::Variant;
use crate::world::SYNC_EVERY;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::agent::AgentResponse;
use endpoint_picker_engine::sharing::{Identity, Positions, SharingClient, SyncOutcome};
use endpoint_picker_engine::testing::AgentFeed;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::changes::Sync;
use metrics_agent_replay::simulation::pickers::{Picker, START};
use metrics_agent_replay::simulation::proxies::{Proxies, Way};
use metrics_agent_replay::simulation::request::mixed;
use std::time::Duration;

/// Proxies at work, each with its picker.
#[derive(Debug)]
pub(super) struct RunningProxies {
    pickers: Vec<Picker>,
    sharing: Option<Sharing>,
    rng: SplitMix64,
    /// Share of the requests that go past all pickers.
    foreign: f64,
    /// Maximum by which a chunk is late.
    jitter: Duration,
}

/// The agent's feed, and each proxy's client.
#[derive(Debug)]
struct Sharing {
    feed: AgentFeed,
    clients: Vec<SharingClient>,
}

/// Maximum by which the time between two messages of a proxy is longer than [`SYNC_EVERY`], so that proxies
/// drift apart as real ones do.
const DRIFT: Duration = Duration::from_millis(1);

impl RunningProxies {
    /// Proxies whose pickers have seen no request.
    pub(super) fn new(
        conditions: &Conditions,
        variant: &Variant,
        servers: usize,
        limit: Option<Duration>,
        seed: u64,
    ) -> Self {
        let Conditions { proxies, foreign, jitter, .. } = *conditions;
        let mechanism = variant.mechanism();
        let picker = |number: usize| {
            let picker = Picker::new(&mechanism, servers, limit, seed, number);
            picker.unwrap_or_else(|error| panic!("{}: {error}", variant.name))
        };
        let client = |number: usize| {
            let identity = Identity { sender: number as u64 + 1, epoch: 1 };
            SharingClient::new("default", format!("envoy-{number}"), identity, Positions::default())
        };
        let sharing = match proxies {
            Number::One | Number::Alone => None,
            Number::Sharing(delay) => {
                let mut feed = AgentFeed::new(1);
                feed.delay = delay;
                Some(Sharing { feed, clients: (0..proxies.number()).map(client).collect() })
            }
        };
        Self {
            pickers: (0..proxies.number()).map(picker).collect(),
            sharing,
            rng: SplitMix64::new(mixed(seed ^ PROXIES)),
            foreign,
            jitter,
        }
    }
}

impl Proxies for RunningProxies {
    fn pickers(&mut self) -> &mut [Picker] {
        &mut self.pickers
    }

    fn way(&mut self, servers: usize) -> Way {
        if self.foreign > 0.0 && self.rng.unit() < self.foreign {
            return Way::Past(self.rng.below(servers));
        }
        Way::Proxy(if self.pickers.len() == 1 { 0 } else { self.rng.below(self.pickers.len()) })
    }

    fn first_syncs(&mut self) -> Vec<Duration> {
        let sharing = if self.sharing.is_some() { self.pickers.len() } else { 0 };
        (0..sharing).map(|_| SYNC_EVERY.mul_f64(self.rng.unit())).collect()
    }

    fn sync(&mut self, proxy: usize, now: Duration) -> Duration {
        let Self { pickers, sharing, rng, .. } = self;
        if let (Some(Sharing { feed, clients }), Some(peer)) = (sharing, pickers[proxy].peer()) {
            let now = START + now;
            let client = &mut clients[proxy];
            if let Some(request) = client.next_sync(peer, now) {
                let sync = Sync::decode(request.body.unwrap_or_default().as_slice()).unwrap();
                let body = feed.take(&sync, now).encode_to_vec();
                let outcome = client.finish(Ok(AgentResponse { status: 200, body }), peer, now);
                assert_eq!(outcome, SyncOutcome::Synced { passed_over: None });
            }
        }
        SYNC_EVERY + DRIFT.mul_f64(rng.unit())
    }

    fn lateness(&mut self) -> Option<Duration> {
        (!self.jitter.is_zero()).then(|| self.jitter.mul_f64(self.rng.unit()))
    }
}

/// Makes these random numbers differ from the requests'.
const PROXIES: u64 = 0x0070_726f_7869_6573;
