//! Messages in any order and more than once.

use core::time::Duration;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::pool::load::Load;
use endpoint_picker::state::prefix::{Capacity, PrefixIndex};
use endpoint_picker::state::{ColdOrder, PluginState, SessionBindings};
use endpoint_picker_engine::ledger::Ledger;
use endpoint_picker_wire::changes::{Changes, EndpointLoad, Feed, StateChange};
use endpoint_picker_wire::{CHANGES_FORMAT, Message, pipeline_into_core, v1};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use crate::fixture::{START, client, delivery, key, peer};
use crate::for_all;

const HOSTS: usize = 3;
const SENDERS: usize = 3;
const PROMPTS: u64 = 3;
const SESSIONS: u64 = 3;

/// When all messages have arrived, after the start: the first ones are still live.
const END_MS: u64 = 1000;

/// What one sender does until it sends its next message. Times are in milliseconds after the start.
#[derive(Clone, Debug)]
struct Step {
    sender: usize,
    at_ms: u64,
    /// New loads of hosts.
    loads: Vec<Option<u64>>,
    sends_all_loads: bool,
    /// A prompt's number and length, and its host.
    prompt: Option<(u64, usize, usize)>,
    /// A session and its host, and how long ago.
    session: Option<(u64, usize, u64)>,
    cold: Option<(usize, u64)>,
}

fn steps() -> impl Strategy<Value = Step> {
    let loads = vec(of(0..3_u64), HOSTS);
    let prompt = of((0..PROMPTS, 1..6_usize, 0..HOSTS));
    let session = of((0..SESSIONS, 0..HOSTS, 0..20_u64));
    let cold = of((0..HOSTS, 0..20_u64));
    let all = (0..SENDERS, 20..900_u64, loads, prop::bool::weighted(0.2), prompt, session, cold);
    all.prop_map(|(sender, at_ms, loads, sends_all_loads, prompt, session, cold)| Step {
        sender,
        at_ms,
        loads,
        sends_all_loads,
        prompt,
        session,
        cold,
    })
}

/// Plugins with each kind of state.
fn pipeline() -> Pipeline {
    let plugin = |r#type: &str, parameters: &str| v1::Plugin {
        name: r#type.to_owned(),
        r#type: r#type.to_owned(),
        parameters: parameters.to_owned(),
    };
    let plugins = vec![
        plugin("prefix-cache-scorer", "{}"),
        plugin("no-hit-lru-scorer", "{}"),
        plugin("session-affinity-scorer", r#"{"strategy": "session_id"}"#),
        plugin("max-score-picker", "{}"),
    ];
    let of_profile = |plugin: &v1::Plugin| v1::PluginRef { name: plugin.name.clone(), weight: None };
    let profile =
        v1::Profile { name: "default".to_owned(), plugins: plugins.iter().map(of_profile).collect() };
    let config = v1::PickerConfig { plugins, profiles: vec![profile], ..v1::PickerConfig::default() };
    pipeline_into_core(&mut v1::Policy { picker_config: Some(config), ..v1::Policy::default() }).unwrap()
}

/// The keys of the plugins with prefixes, cold order and sessions.
fn state_keys(pipeline: &Pipeline) -> [u64; 3] {
    [
        state_key::<PrefixIndex>(pipeline),
        state_key::<ColdOrder>(pipeline),
        state_key::<SessionBindings>(pipeline),
    ]
}

fn state_key<S: PluginState>(pipeline: &Pipeline) -> u64 {
    let peer = peer(&[1], pipeline);
    let mut keys = pipeline.plugins().iter().map(Instance::key);
    keys.find(|key| peer.ledger().states().of::<S>(*key).is_some()).unwrap()
}

fn host(index: usize) -> u64 {
    key(u16::try_from(index).unwrap() + 1)
}

/// The block hashes of a prompt of this length.
fn chain(prompt: u64, length: usize) -> Vec<u64> {
    (1..=length as u64).map(|block| (prompt << 32) + block * 7919).collect()
}

/// The messages that the senders send, with their ages at the end.
fn messages(steps: &[Step], keys: [u64; 3]) -> Vec<(Changes, Duration)> {
    let mut steps: Vec<&Step> = steps.iter().collect();
    steps.sort_by_key(|step| step.at_ms);
    let mut sequences = [0; SENDERS];
    let mut loads = [[0; HOSTS]; SENDERS];
    let message = |step: &Step| {
        let sequence = &mut sequences[step.sender];
        *sequence += 1;
        let own = &mut loads[step.sender];
        let mut changed = Vec::new();
        for (index, load) in step.loads.iter().enumerate() {
            let is_sent = load.is_some() || step.sends_all_loads && own[index] > 0;
            own[index] = load.unwrap_or(own[index]);
            if is_sent {
                changed.push(EndpointLoad {
                    endpoint: host(index),
                    requests: own[index],
                    tokens: 5 * own[index],
                });
            }
        }
        let state = |plugin, endpoint, age_ms, words| StateChange { endpoint, plugin, age_ms, words };
        let prompt = step.prompt.map(|(prompt, length, index)| {
            state(
                0,
                host(index),
                0,
                PrefixIndex::words(Capacity::first(10_000), &chain(prompt, length)).into_vec(),
            )
        });
        let cold = step.cold.map(|(index, age_ms)| state(1, host(index), age_ms, vec![]));
        let session =
            step.session.map(|(session, index, age_ms)| state(2, host(index), age_ms, vec![session]));
        let changes = Changes {
            format: CHANGES_FORMAT,
            sender: step.sender as u64 + 10,
            epoch: 1,
            sequence: *sequence,
            resyncs: 1,
            has_all_loads: step.sends_all_loads,
            loads: changed,
            plugins: keys.to_vec(),
            states: [prompt, session, cold].into_iter().flatten().collect(),
            failures: vec![],
            recoveries: vec![],
        };
        (changes, Duration::from_millis(END_MS - step.at_ms))
    };
    steps.into_iter().map(message).collect()
}

/// Everything that the messages may change.
#[derive(Debug, PartialEq)]
struct Known {
    loads: Vec<Load>,
    matched: Vec<Vec<u32>>,
    cold: Vec<Option<usize>>,
    sessions: Vec<Option<usize>>,
}

fn known(ledger: &Ledger, [prefixes, cold, sessions]: [u64; 3]) -> Known {
    let index = ledger.states().of::<PrefixIndex>(prefixes).unwrap();
    let order = ledger.states().of::<ColdOrder>(cold).unwrap();
    let bindings = ledger.states().of::<SessionBindings>(sessions).unwrap();
    let matched = |prompt| {
        let mut matched = vec![0; HOSTS];
        index.count_matches(&chain(prompt, 5), &mut matched);
        matched
    };
    let now = START + Duration::from_millis(END_MS);
    Known {
        loads: ledger.loads().to_vec(),
        matched: (0..PROMPTS).map(matched).collect(),
        cold: order.positions(HOSTS),
        sessions: (0..SESSIONS).map(|session| bindings.endpoint(session, now)).collect(),
    }
}

/// The knowledge of a proxy that reads messages in this order, some in each answer.
fn read(messages: &[&(Changes, Duration)], per_answer: usize, pipeline: &Pipeline, keys: [u64; 3]) -> Known {
    let now = START + Duration::from_millis(END_MS);
    let mut peer = peer(&[1, 2, 3], pipeline);
    let mut client = client(1, 1);
    for part in messages.chunks(per_answer) {
        let deliveries =
            part.iter().map(|(changes, age)| delivery(changes.encode_to_vec().into(), *age)).collect();
        let feed = Feed { format: CHANGES_FORMAT, deliveries, ..Feed::default() };
        let body = feed.encode_to_vec();
        let answer = endpoint_picker_engine::agent::AgentResponse { status: 200, body };
        client.finish(Ok(answer), &mut peer, now);
    }
    known(peer.ledger(), keys)
}

#[test]
fn any_order_and_repetition_of_messages_leads_to_the_same_ledger() {
    let pipeline = pipeline();
    let keys = state_keys(&pipeline);
    // Each message arrives once or more, at places that the keys decide.
    let arrivals = vec(vec(any::<u32>(), 1..4), 60);
    for_all(300, &(vec(steps(), 1..60), arrivals, 1..9_usize), |(steps, arrivals, per_answer)| {
        let messages = messages(&steps, keys);
        let in_order: Vec<_> = messages.iter().collect();
        let expected = read(&in_order, 1, &pipeline, keys);
        let places = messages
            .iter()
            .zip(&arrivals)
            .flat_map(|(it, places)| places.iter().map(move |place| (place, it)));
        let mut shuffled: Vec<_> = places.collect();
        shuffled.sort_by_key(|(place, _)| **place);
        let shuffled: Vec<_> = shuffled.into_iter().map(|(_, message)| message).collect();
        prop_assert_eq!(read(&shuffled, per_answer, &pipeline, keys), expected);
        Ok(())
    });
}

#[test]
fn the_messages_of_the_test_change_everything() {
    let pipeline = pipeline();
    let keys = state_keys(&pipeline);
    let step = |sender, at_ms, index| Step {
        sender,
        at_ms,
        loads: vec![Some(1), None, None],
        sends_all_loads: false,
        prompt: Some((1, 4, index)),
        session: Some((2, index, 0)),
        cold: Some((index, 0)),
    };
    let messages = messages(&[step(0, 20, 1), step(1, 40, 2)], keys);
    let known = read(&messages.iter().collect::<Vec<_>>(), 1, &pipeline, keys);
    assert_eq!(known.loads[0], Load { requests: 2, tokens: 10 });
    assert_eq!(known.matched[1], [0, 4, 4]);
    assert_eq!(known.cold, [None, Some(0), Some(1)]);
    assert_eq!(known.sessions, [None, None, Some(2)]);
}
