//! The proxies of a run: one, or several that share or do not.

use super::conditions::Proxies;
use super::pickers::{Picker, Variant};
use super::request::mixed;
use crate::world::SYNC_EVERY;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::agent::AgentResponse;
use endpoint_picker_engine::sharing::{Identity, Positions, SharingClient, SyncOutcome};
use endpoint_picker_engine::testing::{AgentFeed, START};
use endpoint_picker_wire::Message;
use endpoint_picker_wire::changes::Sync;
use std::time::Duration;

/// Proxies at work, each with its picker.
#[derive(Debug)]
pub(super) struct RunningProxies {
    pickers: Vec<Picker>,
    sharing: Option<Sharing>,
    rng: SplitMix64,
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
        proxies: Proxies,
        variant: &Variant,
        servers: usize,
        limit: Option<Duration>,
        seed: u64,
    ) -> Self {
        let picker = |number: usize| Picker::new(variant, servers, limit, seed, number);
        let client = |number: usize| {
            let identity = Identity { sender: number as u64 + 1, epoch: 1 };
            SharingClient::new("default", format!("envoy-{number}"), identity, Positions::default())
        };
        let sharing = match proxies {
            Proxies::One | Proxies::Alone => None,
            Proxies::Sharing(delay) => {
                let mut feed = AgentFeed::new(1);
                feed.delay = delay;
                Some(Sharing { feed, clients: (0..proxies.number()).map(client).collect() })
            }
        };
        Self {
            pickers: (0..proxies.number()).map(picker).collect(),
            sharing,
            rng: SplitMix64::new(mixed(seed ^ PROXIES)),
        }
    }

    /// Number of proxies.
    pub(super) fn len(&self) -> usize {
        self.pickers.len()
    }

    /// Random numbers of clients and proxies.
    pub(super) fn rng(&mut self) -> &mut SplitMix64 {
        &mut self.rng
    }

    /// The proxy to which the next request comes.
    pub(super) fn draw(&mut self) -> usize {
        if self.pickers.len() == 1 { 0 } else { self.rng.below(self.pickers.len()) }
    }

    /// The picker of a proxy.
    pub(super) fn picker(&mut self, proxy: usize) -> &mut Picker {
        &mut self.pickers[proxy]
    }

    /// All pickers.
    pub(super) fn pickers(&mut self) -> impl Iterator<Item = &mut Picker> {
        self.pickers.iter_mut()
    }

    /// When a proxy sends its changes for the first time; `None`: it never does.
    pub(super) fn first_sync(&mut self) -> Option<Duration> {
        self.sharing.as_ref()?;
        Some(SYNC_EVERY.mul_f64(self.rng.unit()))
    }

    /// Lets a proxy send its changes and read the other proxies' changes. Returns the time until it does so
    /// again.
    pub(super) fn sync(&mut self, proxy: usize, now: Duration) -> Duration {
        let Self { pickers, sharing, rng } = self;
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
}

/// Makes these random numbers differ from the requests'.
const PROXIES: u64 = 0x0070_726f_7869_6573;
