//! The log in which the filter's VMs tell each other what they did: whatever it holds, what is counted can be taken back.
#![no_main]

use core::time::Duration;

use endpoint_picker::avoidance::Avoidance;
use endpoint_picker::config::PickerConfig;
use endpoint_picker::cycle::{Headers, Load, Request, View};
use endpoint_picker::in_flight::InFlight;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::profile::Instance;
use endpoint_picker::restarts::Restarts;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_wire::log::{self, Entry, What};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let words: Vec<u64> = log::words(input).collect();
    let endpoint = |n: u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), Vec::new());
    let pool = Pool::new("p".to_owned(), (0..3).map(endpoint).collect()).expect("three endpoints");
    let pipeline = remembering();
    let mut states = pipeline.new_states();
    let mut in_flight = InFlight::default();
    in_flight.adopt(&pool);
    let mut avoidance = Avoidance::default();
    avoidance.adopt(&pool, Duration::from_millis(250));
    let mut restarts = Restarts::default();
    for mut entry in log::read(&words).flatten() {
        let mut written = Vec::new();
        entry.write(&mut written);
        let written: Vec<u64> = log::words(&written).collect();
        assert!(log::read(&written).eq([Ok(entry)]), "what was read is written alike");
        // Random bytes do not name our endpoints and plugins, so numbers modulo theirs do.
        let key = |number: u64| pool.endpoints()[usize::try_from(number % 3).expect("below 3")].key();
        let key_of = |plugin: u64| {
            let index = plugin % pipeline.plugins().len() as u64;
            pipeline.plugins()[usize::try_from(index).expect("few plugins")].key()
        };
        entry.endpoint = key(entry.endpoint);
        let Entry { vm, endpoint, .. } = entry;
        match &mut entry.what {
            What::Started(load) => in_flight.start(vm, endpoint, *load),
            What::Moved { to, load } => in_flight.transfer(vm, endpoint, key(*to), *load),
            What::Failed { at } => avoidance.failed(endpoint, *at),
            What::Answered { at } => avoidance.answered(endpoint, *at),
            What::Ended(load) => in_flight.end(vm, endpoint, *load),
            What::Loads(loads) => {
                let load = |&[endpoint, requests, tokens]: &[u64; 3]| (endpoint, Load { requests, tokens });
                in_flight.set(vm, loads.iter().map(load));
            }
            What::Restarted { since } => {
                if restarts.report(endpoint, *since) {
                    states.forget(pool.index_of(endpoint).expect("one of them"), pool.endpoints().len());
                }
            }
            What::SentPrompt { plugin, .. }
            | What::SentCold { plugin }
            | What::BoundSession { plugin, .. } => {
                *plugin = key_of(*plugin);
                if let Some(event) = entry.event(&pool) {
                    states.apply(&event);
                }
            }
        }
    }
    let view = View {
        pool: &pool,
        readings: &[],
        readings_arrived: Duration::ZERO,
        in_flight: in_flight.loads(),
        avoided: avoidance.avoided(),
        states: &states,
    };
    let headers = [("x-session-id".to_owned(), b"a".to_vec())];
    let request = Request { headers: Headers(&headers), ..Request::default() };
    let decision = pipeline.decide(&request, &view, Duration::from_secs(1), &mut SplitMix64::new(1));
    assert!(decision.destination().is_some_and(|endpoint| endpoint < 3));
    states.remap(&[Some(1), None, Some(0)]);
    let senders: Vec<u64> = in_flight.senders().collect();
    for sender in senders {
        in_flight.forget(sender);
    }
    assert_eq!(in_flight.loads(), [Load::default(); 3], "nobody is left who has anything in flight");
});

/// All plugins that remember anything.
fn remembering() -> Pipeline {
    let plugin = |type_name: &str, parameters: &str| {
        Instance::unnamed(read_plugin(type_name, parameters).expect("a good plugin"))
    };
    let plugins = vec![
        plugin("prefix-cache-scorer", "{}"),
        plugin("approx-prefix-cache-producer", "{}"),
        plugin("no-hit-lru-scorer", "{}"),
        plugin("session-affinity-scorer", r#"{"strategy": "session_id"}"#),
        plugin("active-request-scorer", "{}"),
    ];
    Pipeline::compile(PickerConfig { plugins, ..PickerConfig::default() }).expect("a good configuration")
}
