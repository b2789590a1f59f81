//! Changes of other proxies, as the agent hands them on: whatever they hold, requests go to endpoints of the
//! pool, this proxy's own load stays, and the loads of the others expire.
#![no_main]

use core::time::Duration;

use endpoint_picker::headers::Headers;
use endpoint_picker::pool::load::Load;
use endpoint_picker::request::Request;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_engine::agent::AgentResponse;
use endpoint_picker_engine::ledger::{Change, ChangeKind};
use endpoint_picker_engine::sharing::{Identity, LocalPeer, Positions, SharingClient};
use endpoint_picker_wire::changes::{Changes, Feed};
use endpoint_picker_wire::{CHANGES_FORMAT, Message};
use libfuzzer_sys::fuzz_target;

#[path = "../parts/picker.rs"]
mod picker;
use picker::{pool, stateful};

const NOW: Duration = Duration::from_secs(1_000);

/// Longer than the loads of a silent proxy count.
const SILENCE: Duration = Duration::from_secs(2);

const OWN: Load = Load { requests: 1, tokens: 100 };

fuzz_target!(|input: &[u8]| {
    let pipeline = stateful();
    let plugins: Vec<u64> = pipeline.initial_states().map(|(key, _)| key).collect();
    let endpoints = pool(&[0, 1, 2]);
    let keys: Vec<u64> = endpoints.as_slice().iter().map(|endpoint| endpoint.key()).collect();
    let mut peer = LocalPeer::new(endpoints, &pipeline, Duration::from_millis(250));
    peer.apply([Change::Endpoint { endpoint: keys[0], kind: ChangeKind::Started(OWN) }]);
    let identity = Identity { sender: 1, epoch: 1 };
    let mut client = SharingClient::new("p", "proxy".to_owned(), identity, Positions::default());
    let mut now = NOW;
    for body in [input.to_vec(), with_known_keys(input, &keys, &plugins)] {
        client.next_sync(&mut peer, now);
        client.finish(Ok(AgentResponse { status: 200, body }), &mut peer, now);
        assert!(peer.ledger().own_loads().eq([OWN, Load::default(), Load::default()]));
        let headers = [("x-session-id", "a")].into_iter().collect();
        let request = Request { headers: Headers(&headers), ..Request::default() };
        let view = peer.ledger().input(&[], now);
        let decision = pipeline.decide(&request, &view, now, &mut SplitMix64::new(1));
        assert!(decision.destination().is_some_and(|endpoint| endpoint < 3));
        now += SILENCE;
    }
    client.next_sync(&mut peer, now);
    assert_eq!(peer.ledger().loads(), [OWN, Load::default(), Load::default()]);
});

/// The same feed about endpoints and plugins of the pool: random bytes name none of them, so they are taken
/// modulo their number.
fn with_known_keys(input: &[u8], keys: &[u64], plugins: &[u64]) -> Vec<u8> {
    let Ok(mut feed) = Feed::decode(input) else { return Vec::new() };
    feed.format = CHANGES_FORMAT;
    let of = |all: &[u64], number: u64| all[usize::try_from(number % all.len() as u64).expect("few")];
    for delivery in &mut feed.deliveries {
        let Ok(mut changes) = Changes::decode(delivery.changes.clone()) else { continue };
        changes.format = CHANGES_FORMAT;
        changes.loads.iter_mut().for_each(|it| it.endpoint = of(keys, it.endpoint));
        changes.failures.iter_mut().for_each(|it| it.endpoint = of(keys, it.endpoint));
        changes.plugins = plugins.to_vec();
        for it in &mut changes.states {
            it.endpoint = of(keys, it.endpoint);
            // One more than there are, so that some messages are refused.
            it.plugin %= plugins.len() as u32 + 1;
        }
        delivery.changes = changes.encode_to_vec().into();
    }
    feed.encode_to_vec()
}
