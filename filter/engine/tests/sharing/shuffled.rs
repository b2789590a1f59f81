//! Messages in any order and more than once, about every plugin with state.

use core::fmt::Debug;
use core::time::Duration;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::{TYPES, read_plugin};
use endpoint_picker::pool::load::Load;
use endpoint_picker::state::latency::LatencyState;
use endpoint_picker::state::prefix::{Capacity, PrefixIndex};
use endpoint_picker::state::{Bursts, ColdOrder, MediaItems, PluginStates, SessionBindings};
use endpoint_picker_engine::agent::AgentResponse;
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

/// Prompts, items and sessions of each plugin.
const SUBJECTS: u64 = 3;

/// When all messages have arrived, after the start: the first ones are still live.
const END_MS: u64 = 1000;

/// A plugin with state, and how a test changes and reads this state.
struct Case {
    plugin: &'static str,
    parameters: &'static str,
    /// The words of a change about this subject, of this size.
    words: fn(u64, usize) -> Vec<u64>,
    /// Everything that changes may change, at a time.
    view: fn(&PluginStates, u64, Duration) -> String,
    /// The view after changes of size 4 about the subject 1, of the host 1 and then of the host 2.
    expected: &'static str,
}

const BY_SESSION: &str = r#"{"strategy": "session_id"}"#;
const SENT_PROMPT: &str = "[[0, 0, 0], [0, 4, 4], [0, 0, 0]]";
const FIRST_OUTPUTS: &str = "[(0ns, 0), (20ms, 0), (40ms, 0)]";

/// Every plugin with state.
const CASES: [Case; 9] = [
    Case::new("approx-prefix-cache-producer", "{}", prompt_words, prompts, SENT_PROMPT),
    Case::new(
        "burst-prefix-cache-producer",
        r#"{"windowDurationMs": 10000}"#,
        |prompt, size| vec![prompt, size as u64 * 1_000_000, size as u64],
        bursts,
        "[None, Some((2, 4)), None]",
    ),
    Case::new(
        "expected-latency-scorer",
        "{}",
        |_, size| first_output(size, &[]),
        first_outputs,
        FIRST_OUTPUTS,
    ),
    Case::new(
        "mm-embeddings-cache-producer",
        "{}",
        |item, _| vec![10_000, item + 1],
        items,
        "[[0, 0, 0], [0, 1, 1], [0, 0, 0]]",
    ),
    Case::new("no-hit-lru-scorer", "{}", |_, _| vec![], cold_order, "[None, Some(0), Some(1)]"),
    Case::new("precise-prefix-cache-producer", "{}", prompt_words, prompts, SENT_PROMPT),
    Case::new(
        "predicted-latency-producer",
        "{}",
        |_, size| first_output(size, &[60_000, 50_000]),
        first_outputs,
        FIRST_OUTPUTS,
    ),
    Case::new("session-affinity-filter", BY_SESSION, |it, _| vec![it], sessions, "[None, Some(2), None]"),
    Case::new("session-affinity-scorer", BY_SESSION, |it, _| vec![it], sessions, "[None, Some(2), None]"),
];

impl Case {
    const fn new(
        plugin: &'static str,
        parameters: &'static str,
        words: fn(u64, usize) -> Vec<u64>,
        view: fn(&PluginStates, u64, Duration) -> String,
        expected: &'static str,
    ) -> Self {
        Self { plugin, parameters, words, view, expected }
    }
}

fn of_subjects<T: Debug>(view: impl Fn(u64) -> T) -> String {
    format!("{:?}", (0..SUBJECTS).map(view).collect::<Vec<_>>())
}

/// The block hashes of a prompt of this length.
fn chain(prompt: u64, length: usize) -> Vec<u64> {
    (1..=length as u64).map(|block| (prompt << 32) + block * 7919).collect()
}

fn prompt_words(prompt: u64, length: usize) -> Vec<u64> {
    PrefixIndex::words(Capacity::first(10_000), &chain(prompt, length)).into_vec()
}

fn prompts(states: &PluginStates, key: u64, _: Duration) -> String {
    let index: &PrefixIndex = states.of(key).unwrap();
    of_subjects(|prompt| {
        let mut matched = [0; HOSTS];
        index.count_matches(&chain(prompt, 5), &mut matched);
        matched
    })
}

fn items(states: &PluginStates, key: u64, _: Duration) -> String {
    let items: &MediaItems = states.of(key).unwrap();
    of_subjects(|item| {
        let mut matched = [0; HOSTS];
        items.count(&[item + 1], &mut matched);
        matched
    })
}

fn bursts(states: &PluginStates, key: u64, now: Duration) -> String {
    let bursts: &Bursts = states.of(key).unwrap();
    of_subjects(|prompt| bursts.group(prompt, now).map(|group| (group.endpoint, group.requests)))
}

fn sessions(states: &PluginStates, key: u64, now: Duration) -> String {
    let bindings: &SessionBindings = states.of(key).unwrap();
    of_subjects(|session| bindings.endpoint(session, now))
}

fn cold_order(states: &PluginStates, key: u64, _: Duration) -> String {
    format!("{:?}", states.of::<ColdOrder>(key).unwrap().positions(HOSTS))
}

/// The first output of a response, as a sample of 500 tokens, 2 requests and 60 ms, and with these further
/// words; of size 1: a request that is sent.
fn first_output(size: usize, outcome: &[u64]) -> Vec<u64> {
    if size == 1 { vec![0, 100, 100, 0] } else { [&[2, 500, 2_000, 60_000], outcome].concat() }
}

/// The last first outputs of the endpoints, after the start, and the tokens in flight: other proxies' are not
/// counted. The means of samples are left out: a sample that arrives late or twice counts late or twice.
fn first_outputs(states: &PluginStates, key: u64, _: Duration) -> String {
    let state: &LatencyState = states.of(key).unwrap();
    let of_host = |host| (state.at(host).reads_since().saturating_sub(START), state.at(host).context());
    format!("{:?}", (0..HOSTS).map(of_host).collect::<Vec<_>>())
}

/// Changes of one sender until it sends its next message. Times are in milliseconds after the start.
#[derive(Clone, Debug)]
struct Step {
    sender: usize,
    at_ms: u64,
    /// New loads of hosts.
    loads: Vec<Option<u64>>,
    sends_all_loads: bool,
    changes: Vec<Change>,
}

/// A change of one plugin's state.
#[derive(Clone, Debug)]
struct Change {
    /// The index of the plugin's case.
    case: usize,
    subject: u64,
    size: usize,
    host: usize,
    age_ms: u64,
}

fn steps() -> impl Strategy<Value = Step> {
    let loads = vec(of(0..3_u64), HOSTS);
    let change = (0..CASES.len(), 0..SUBJECTS, 1..6_usize, 0..HOSTS, 0..20_u64);
    let change =
        change.prop_map(|(case, subject, size, host, age_ms)| Change { case, subject, size, host, age_ms });
    let all = (0..SENDERS, 20..900_u64, loads, prop::bool::weighted(0.2), vec(change, 0..6));
    all.prop_map(|(sender, at_ms, loads, sends_all_loads, changes)| Step {
        sender,
        at_ms,
        loads,
        sends_all_loads,
        changes,
    })
}

/// A pipeline with the plugins of all cases.
fn pipeline() -> Pipeline {
    let plugin = |case: &Case| v1::Plugin {
        name: case.plugin.to_owned(),
        r#type: case.plugin.to_owned(),
        parameters: case.parameters.to_owned(),
    };
    let in_profile =
        |case: &&Case| read_plugin(case.plugin, case.parameters).unwrap().roles().is_for_profiles();
    let reference = |case: &Case| v1::PluginRef { name: case.plugin.to_owned(), weight: None };
    let references = CASES.iter().filter(in_profile).map(reference).collect();
    let profile = v1::Profile { name: "default".to_owned(), plugins: references };
    let config = v1::PickerConfig {
        plugins: CASES.iter().map(plugin).collect(),
        profiles: vec![profile],
        ..v1::PickerConfig::default()
    };
    pipeline_into_core(&mut v1::Policy { picker_config: Some(config), ..v1::Policy::default() }).unwrap()
}

/// The keys of the plugins of the cases.
fn state_keys(pipeline: &Pipeline) -> Vec<u64> {
    let key = |case: &Case| {
        let mut plugins = pipeline.plugins().iter();
        plugins.find(|plugin| plugin.name == case.plugin).map(Instance::key).unwrap()
    };
    CASES.iter().map(key).collect()
}

fn host(index: usize) -> u64 {
    key(u16::try_from(index).unwrap() + 1)
}

/// The messages that the senders send, with their ages at the end.
fn messages(steps: &[Step], keys: &[u64]) -> Vec<(Changes, Duration)> {
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
        let state = |change: &Change| StateChange {
            endpoint: host(change.host),
            plugin: u32::try_from(change.case).unwrap(),
            age_ms: change.age_ms,
            words: (CASES[change.case].words)(change.subject, change.size),
        };
        let changes = Changes {
            format: CHANGES_FORMAT,
            sender: step.sender as u64 + 10,
            epoch: 1,
            sequence: *sequence,
            resyncs: 1,
            has_all_loads: step.sends_all_loads,
            loads: changed,
            plugins: keys.to_vec(),
            states: step.changes.iter().map(state).collect(),
            failures: vec![],
            recoveries: vec![],
        };
        (changes, Duration::from_millis(END_MS - step.at_ms))
    };
    steps.into_iter().map(message).collect()
}

/// Everything that the messages may change: loads, and the view of each case.
#[derive(Debug, PartialEq)]
struct LedgerView {
    loads: Vec<Load>,
    states: Vec<String>,
}

fn view(ledger: &Ledger, keys: &[u64]) -> LedgerView {
    let now = START + Duration::from_millis(END_MS);
    let states = CASES.iter().zip(keys).map(|(case, key)| (case.view)(ledger.states(), *key, now));
    LedgerView { loads: ledger.loads().to_vec(), states: states.collect() }
}

/// The ledger of a proxy that reads messages in this order, some in each response.
fn read(
    messages: &[&(Changes, Duration)],
    per_response: usize,
    pipeline: &Pipeline,
    keys: &[u64],
) -> LedgerView {
    let now = START + Duration::from_millis(END_MS);
    let mut peer = peer(&[1, 2, 3], pipeline);
    let mut client = client(1, 1);
    for part in messages.chunks(per_response) {
        let deliveries =
            part.iter().map(|(changes, age)| delivery(changes.encode_to_vec().into(), *age)).collect();
        let feed = Feed { format: CHANGES_FORMAT, deliveries, ..Feed::default() };
        client.finish(Ok(AgentResponse { status: 200, body: feed.encode_to_vec() }), &mut peer, now);
    }
    view(peer.ledger(), keys)
}

#[test]
fn every_plugin_with_state_has_a_case() {
    let is_stateful = |name: &str| {
        let case = CASES.iter().find(|case| case.plugin == name);
        let plugin = read_plugin(name, case.map_or("{}", |case| case.parameters)).unwrap();
        plugin.roles().recorder.is_some()
    };
    let stateful: Vec<_> = TYPES.iter().copied().filter(|name| is_stateful(name)).collect();
    let lacking: Vec<_> =
        stateful.iter().filter(|name| CASES.iter().all(|case| case.plugin != **name)).collect();
    assert!(lacking.is_empty(), "CASES lacks {lacking:?}");
    assert_eq!(CASES.map(|case| case.plugin), stateful[..]);
}

#[test]
fn any_order_and_repetition_of_messages_leads_to_the_same_ledger() {
    let pipeline = pipeline();
    let keys = state_keys(&pipeline);
    // Each message arrives once or more, at places that the keys decide.
    let arrivals = vec(vec(any::<u32>(), 1..4), 60);
    for_all(300, &(vec(steps(), 1..60), arrivals, 1..9_usize), |(steps, arrivals, per_response)| {
        let messages = messages(&steps, &keys);
        let in_order: Vec<_> = messages.iter().collect();
        let expected = read(&in_order, 1, &pipeline, &keys);
        let places = messages
            .iter()
            .zip(&arrivals)
            .flat_map(|(it, places)| places.iter().map(move |place| (place, it)));
        let mut shuffled: Vec<_> = places.collect();
        shuffled.sort_by_key(|(place, _)| **place);
        let shuffled: Vec<_> = shuffled.into_iter().map(|(_, message)| message).collect();
        prop_assert_eq!(read(&shuffled, per_response, &pipeline, &keys), expected);
        Ok(())
    });
}

#[test]
fn the_messages_of_the_test_change_everything() {
    let pipeline = pipeline();
    let keys = state_keys(&pipeline);
    let step = |sender, at_ms, host| Step {
        sender,
        at_ms,
        loads: vec![Some(1), None, None],
        sends_all_loads: false,
        changes: (0..CASES.len()).map(|case| Change { case, subject: 1, size: 4, host, age_ms: 0 }).collect(),
    };
    let messages = messages(&[step(0, 20, 1), step(1, 40, 2)], &keys);
    let view = read(&messages.iter().collect::<Vec<_>>(), 1, &pipeline, &keys);
    assert_eq!(view.loads[0], Load { requests: 2, tokens: 10 });
    assert_eq!(view.states, CASES.map(|case| case.expected));
}
