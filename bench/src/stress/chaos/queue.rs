//! Chaos with flow control: more requests than the servers have places for, so that some of every band wait
//! whenever something breaks.

use metrics_agent_status::pool::PoolStatus;

use crate::load::senders::{BANDS, Sender, TENANTS};
use crate::stress::proxies::{Calm, Proxies, SHIPPED};
use crate::stress::stack::SERVERS;
use anyhow::{Context, Result, ensure};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::Behaviour;
use std::fs;
use std::time::Duration;

/// Relative to the repository's root.
const MANIFESTS: &str = "bench/flow-control/chaos.yaml";
/// Requests that each server takes at once, by that file.
const PLACES: usize = 2;
/// Requests per second, as a multiple of what the servers have places for.
const OVERLOAD: f64 = 1.4;
/// The pauses of a server for one request of the mix: 19 in a streamed response, 11 of 39 requests with a
/// body, and one in another.
const PAUSES_PER_REQUEST: f64 = (11.0 * 19.0 + 28.0) / 39.0;
/// Number of each band in [`PARTS`] requests, the highest first: the two upper bands together ask for nearly
/// all places.
const BAND_PARTS: [usize; 3] = [5, 2, 3];
const PARTS: usize = 10;

/// The agent shows queues a second late.
const FILL_DEADLINE: Duration = Duration::from_secs(30);

/// Requests that wait, of each band, the highest first.
pub(super) type Waiting = [u64; BANDS.len()];

/// The native module with a queue, and servers that respond too slowly for this many requests per second.
pub(super) fn calm(rate: u32) -> Result<Calm> {
    let manifests =
        fs::read_to_string(tools::root().join(MANIFESTS)).with_context(|| MANIFESTS.to_owned())?;
    let behaviour = Behaviour::SlowChunks(pause(OVERLOAD, SERVERS * PLACES, rate));
    Ok(Calm { filter: Filter::Native, config: SHIPPED, manifests, behaviour, has_access_log: true })
}

/// The pause before each chunk of a response with which this many requests per second ask for this multiple
/// of the servers' places.
pub(in crate::stress) fn pause(load: f64, places: usize, rate: u32) -> Duration {
    Duration::from_secs_f64(load * places as f64 / (PAUSES_PER_REQUEST * f64::from(rate)))
}

/// Draws who sends a request.
pub(in crate::stress) fn sender(rng: &mut SplitMix64) -> Sender {
    let part = rng.below(PARTS);
    let mut end = 0;
    let band = BAND_PARTS.iter().position(|parts| {
        end += parts;
        part < end
    });
    Sender { band: band.unwrap_or_default(), tenant: rng.below(TENANTS.len()) }
}

/// Waits until requests of every band wait; returns how many.
pub(super) async fn until_full(proxies: &Proxies) -> Result<Waiting> {
    let full = within(FILL_DEADLINE, async || {
        let waiting = waiting(&proxies.statuses().await?);
        ensure!(waiting.iter().all(|&requests| requests > 0), "{waiting:?} requests wait");
        Ok(waiting)
    });
    full.await.map_err(anyhow::Error::msg).context("the queue did not fill in every band")
}

/// The requests that wait in all proxies.
fn waiting(statuses: &[PoolStatus]) -> Waiting {
    let mut waiting = Waiting::default();
    // Agents list the bands in the same order.
    for queue in statuses.iter().filter_map(|status| status.queue.as_ref()) {
        for (sum, band) in waiting.iter_mut().zip(&queue.bands) {
            *sum += band.requests;
        }
    }
    waiting
}
