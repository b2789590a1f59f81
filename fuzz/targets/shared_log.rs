//! The log of the filter's workers: whatever it holds, its entries can be applied, and every load can be
//! taken back.
#![no_main]

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::headers::Headers;
use endpoint_picker::pool::load::Load;
use endpoint_picker::request::Request;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_engine::ledger::{Change, ChangeKind, Ledger};
use endpoint_picker_workers::entry::{self, Content};
use endpoint_picker_workers::words;
use libfuzzer_sys::fuzz_target;

#[path = "../parts/picker.rs"]
mod picker;
use picker::{pool, stateful};

const AVOID: Duration = Duration::from_millis(250);

fuzz_target!(|input: &[u8]| {
    let log: Vec<u64> = words(input).collect();
    let three = pool(&[0, 1, 2]);
    let pipeline = stateful();
    let plugins: Vec<u64> = pipeline.initial_states().map(|(key, _)| key).collect();
    let mut ledger = Ledger::default();
    ledger.adopt(Arc::clone(&three), [&pipeline], AVOID);
    for entry in entry::read(&log).flatten() {
        let mut written = Vec::new();
        entry.write(&mut written);
        let written: Vec<u64> = words(&written).collect();
        assert!(entry::read(&written).eq([Ok(entry)]), "an entry is written as it was read");
        // Random bytes name none of our endpoints and plugins, so they are taken modulo their number.
        let key = |number: u64| three.as_slice()[usize::try_from(number % 3).expect("below 3")].key();
        let plugin_key = |plugin: u64| {
            let index = usize::try_from(plugin % plugins.len() as u64).expect("few plugins");
            plugins[index]
        };
        let change = match entry.content {
            Content::Change(Change::State(mut change)) => {
                (change.endpoint, change.plugin) = (key(change.endpoint), plugin_key(change.plugin));
                Change::State(change)
            }
            Content::Change(Change::Endpoint { endpoint, mut kind }) => {
                if let ChangeKind::Moved { to, .. } = &mut kind {
                    *to = key(*to);
                }
                Change::Endpoint { endpoint: key(endpoint), kind }
            }
            Content::Loads(loads) => {
                let load =
                    |&[endpoint, requests, tokens]: &[u64; 3]| (key(endpoint), Load { requests, tokens });
                ledger.set_loads(entry.worker, loads.iter().map(load));
                continue;
            }
            Content::Passed(time) => {
                ledger.pass(time);
                continue;
            }
        };
        ledger.apply(entry.worker, &change);
    }
    let headers = [("x-session-id", "a")].into_iter().collect();
    let request = Request { headers: Headers(&headers), ..Request::default() };
    let view = ledger.input(&[], Duration::ZERO);
    let decision = pipeline.decide(&request, &view, Duration::from_secs(1), &mut SplitMix64::new(1));
    assert!(decision.destination().is_some_and(|endpoint| endpoint < 3));
    ledger.adopt(pool(&[2, 0]), [&pipeline], AVOID);
    let senders: Vec<u64> = ledger.senders().collect();
    for sender in senders {
        ledger.forget_sender(sender);
    }
    assert_eq!(ledger.loads(), [Load::default(); 2], "no sender is left that has anything in flight");
});
