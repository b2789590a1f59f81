//! Many proxies and their reference.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::prefix::PrefixIndex;
use endpoint_picker_engine::agent::AgentAnswer;
use endpoint_picker_engine::ledger::{Change, ChangeKind, Ledger, changes_of};
use endpoint_picker_engine::sharing::{ExchangeOutcome, LocalPeer, SharingClient};
use endpoint_picker_wire::{Message, pipeline_into_core, v1};

use super::agent::Agent;
use super::tally::Tally;
use super::workload::Workload;
use crate::fixture::{START, client, decoded};

/// Time between two steps. A proxy exchanges with every fourth.
const STEP: Duration = Duration::from_millis(5);
const STEPS_OF_AN_EXCHANGE: usize = 4;

/// How many proxies of how many endpoints are simulated, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) proxies: usize,
    pub(super) endpoints: u16,
    /// Of each proxy.
    pub(super) requests_per_second: usize,
    pub(super) steps: usize,
    pub(super) shares: bool,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { proxies, endpoints, requests_per_second, steps: _, shares } = self;
        let shares = if *shares { "sharing" } else { "not sharing" };
        write!(f, "{proxies} proxies {shares}, {endpoints} endpoints, {requests_per_second} requests/s each")
    }
}

struct Proxy {
    peer: LocalPeer,
    client: SharingClient,
}

/// Many proxies with an agent, and a ledger that has the changes of all of them at once.
pub(super) struct Crowd {
    setup: Setup,
    pipeline: Pipeline,
    readings: Vec<Reading>,
    reference: LocalPeer,
    /// A ledger of one endpoint, which no prompt was sent to: a decision by it has all blocks.
    without_prompts: LocalPeer,
    proxies: Vec<Proxy>,
    agent: Agent,
    workload: Workload,
    /// The ends of requests, by their time: the proxy, the endpoint and the load.
    ends: BTreeMap<Duration, Vec<(usize, u64, Load)>>,
    now: Duration,
    step: usize,
    seed: u64,
    tally: Tally,
}

struct Choice {
    endpoint: usize,
    changes: Vec<Change>,
}

impl Crowd {
    pub(super) fn new(setup: Setup, seed: u64) -> Self {
        let endpoint = |n: u16| {
            let [high, low] = n.to_be_bytes();
            Endpoint::new(format!("default/server-{n}"), ([10, 0, high, low], 8000).into(), vec![])
        };
        let pool =
            |endpoints| Arc::new(Pool::new("p".to_owned(), (0..endpoints).map(endpoint).collect()).unwrap());
        let (all, pipeline) = (pool(setup.endpoints), pipeline());
        let peer = || LocalPeer::new(Arc::clone(&all), &pipeline, Duration::ZERO);
        let proxy = |number: usize| Proxy { peer: peer(), client: client(number as u64 + 1, 1) };
        let reading = Reading { ready: true, updated: Some(START), waiting: Some(0), ..Reading::default() };
        let tally = Tally { proxies: setup.proxies, ..Tally::default() };
        Self {
            readings: vec![reading; setup.endpoints.into()],
            reference: peer(),
            without_prompts: LocalPeer::new(pool(1), &pipeline, Duration::ZERO),
            proxies: (0..setup.proxies).map(proxy).collect(),
            agent: Agent::default(),
            // Each conversation goes on about once a second.
            workload: Workload::new(setup.proxies * setup.requests_per_second, seed),
            ends: BTreeMap::new(),
            now: START,
            step: 0,
            pipeline,
            setup,
            seed,
            tally,
        }
    }

    /// Sends requests, for as many steps as the setup has.
    pub(super) fn run(&mut self) -> Tally {
        let mut due = 0.0;
        for _ in 0..self.setup.steps {
            self.pass_step();
            let per_second = self.setup.proxies * self.setup.requests_per_second;
            due += per_second as f64 * STEP.as_secs_f64();
            while due >= 1.0 {
                due -= 1.0;
                self.send_request();
            }
        }
        let tally = core::mem::take(&mut self.tally);
        let Agent { missed, longest_wait, .. } = self.agent;
        let time = STEP * u32::try_from(self.setup.steps).unwrap();
        Tally { time, missed, longest_wait, ..tally }
    }

    /// Lets exchanges go on without requests: all ledgers have to agree with the reference, while requests are in flight and after they
    /// have ended.
    pub(super) fn rest(&mut self) {
        let ends = core::mem::take(&mut self.ends);
        (0..2 * STEPS_OF_AN_EXCHANGE).for_each(|_| self.pass_step());
        assert!(self.reference.ledger().requests_in_flight() > 0);
        self.assert_agreement();
        self.ends = ends;
        while !self.ends.is_empty() {
            self.pass_step();
        }
        (0..2 * STEPS_OF_AN_EXCHANGE).for_each(|_| self.pass_step());
        assert_eq!(self.reference.ledger().requests_in_flight(), 0);
        self.assert_agreement();
    }

    fn assert_agreement(&self) {
        let prompts: Vec<_> = self.workload.prompts().take(50).collect();
        let expected: Vec<_> =
            prompts.iter().map(|prompt| self.matched(self.reference.ledger(), prompt)).collect();
        assert!(expected.iter().flatten().any(|&blocks| blocks > 0));
        for (number, proxy) in self.proxies.iter().enumerate() {
            let ledger = proxy.peer.ledger();
            assert!(ledger.loads() == self.reference.ledger().loads(), "the loads of proxy {number}");
            for (prompt, expected) in prompts.iter().zip(&expected) {
                assert!(self.matched(ledger, prompt) == *expected, "a prompt in proxy {number}");
            }
        }
    }

    fn pass_step(&mut self) {
        self.now += STEP;
        self.step += 1;
        self.end_requests();
        if self.setup.shares {
            let phase = self.step % STEPS_OF_AN_EXCHANGE;
            for number in (phase..self.proxies.len()).step_by(STEPS_OF_AN_EXCHANGE) {
                self.exchange(number);
            }
        }
    }

    fn exchange(&mut self, number: usize) {
        let Proxy { peer, client } = &mut self.proxies[number];
        let Some(request) = client.next_exchange(peer, self.now) else { return };
        client.sent(1);
        let exchange = decoded(&request);
        let feed = self.agent.take(&exchange, self.now).encode_to_vec();
        let Tally { uploaded, downloaded, message_bytes, messages, .. } = &mut self.tally;
        *uploaded += request.body.map_or(0, |body| body.len());
        *downloaded += feed.len();
        if let Some(changes) = &exchange.changes {
            *messages += 1;
            *message_bytes += changes.len();
        }
        let outcome = client.finish(Ok(AgentAnswer { status: 200, body: feed }), peer, self.now);
        assert_eq!(outcome, ExchangeOutcome::Exchanged { passed_over: None });
    }

    fn send_request(&mut self) {
        let prompt = self.workload.next_prompt();
        let number = self.workload.below(self.setup.proxies);
        let choice = self.decide(self.proxies[number].peer.ledger(), &prompt);
        let by_one = self.decide(self.reference.ledger(), &prompt);
        let matched = self.matched(self.reference.ledger(), &prompt);
        let loads = self.reference.ledger().loads();
        let Tally { requests, found, found_by_one, to_busier, .. } = &mut self.tally;
        *requests += 1;
        *found += u64::from(matched[choice.endpoint]);
        *found_by_one += u64::from(matched[by_one.endpoint]);
        *to_busier += usize::from(loads[choice.endpoint].requests > loads[by_one.endpoint].requests);
        let end = self.now + self.workload.service_time();
        for change in &choice.changes {
            if let Change::Endpoint { endpoint, kind: ChangeKind::Started(load) } = change {
                self.ends.entry(end).or_default().push((number, *endpoint, *load));
            }
        }
        self.reference.apply(choice.changes.clone());
        self.proxies[number].peer.apply(choice.changes);
    }

    fn end_requests(&mut self) {
        let later = self.ends.split_off(&(self.now + Duration::from_nanos(1)));
        for (number, endpoint, load) in core::mem::replace(&mut self.ends, later).into_values().flatten() {
            let change = Change::Endpoint { endpoint, kind: ChangeKind::Ended(load) };
            self.reference.apply([change.clone()]);
            self.proxies[number].peer.apply([change]);
        }
    }

    fn decide(&self, ledger: &Ledger, prompt: &str) -> Choice {
        self.with_body(prompt, |request| {
            // Ties are broken alike.
            let mut rng = SplitMix64::new(self.seed ^ self.tally.requests as u64);
            let view = ledger.input(&self.readings, self.now);
            let mut decision = self.pipeline.decide(request, &view, self.now, &mut rng);
            let endpoint = decision.destination().unwrap();
            Choice { endpoint, changes: changes_of(&mut decision, ledger.pool()) }
        })
    }

    /// The blocks of a prompt that each endpoint has by a ledger.
    fn matched(&self, ledger: &Ledger, prompt: &str) -> Vec<u32> {
        let chain = self.with_body(prompt, |request| {
            let view = self.without_prompts.ledger().input(&self.readings[..1], self.now);
            let decision = self.pipeline.decide(request, &view, self.now, &mut SplitMix64::new(0));
            // The first word is the endpoint's capacity.
            decision.changes.into_iter().next().map(|prompt| prompt.words[1..].to_vec())
        });
        let mut keys = self.pipeline.plugins().iter().map(Instance::key);
        let index = keys.find_map(|key| ledger.states().of::<PrefixIndex>(key));
        let mut matched = vec![0; ledger.pool().endpoints().len()];
        index.unwrap().count_matches(&chain.unwrap(), &mut matched);
        matched
    }

    fn with_body<T>(&self, prompt: &str, then: impl FnOnce(&Request<'_>) -> T) -> T {
        let json = format!(r#"{{"model": "llama", "prompt": "{prompt}"}}"#);
        let options = self.pipeline.body_options(Headers::default());
        let body = Body::read(&json, Api::Completions, &options).unwrap();
        then(&Request { model: "llama", prompt: Some(&body.prompt), ..Request::default() })
    }
}

/// Prompts and loads count.
fn pipeline() -> Pipeline {
    let plugin = |r#type: &str, weight: Option<f64>| {
        let plugin =
            v1::Plugin { name: r#type.to_owned(), r#type: r#type.to_owned(), parameters: "{}".to_owned() };
        (plugin, v1::PluginRef { name: r#type.to_owned(), weight })
    };
    let (plugins, refs) = [
        plugin("prefix-cache-scorer", Some(2.0)),
        plugin("active-request-scorer", Some(1.0)),
        plugin("max-score-picker", None),
    ]
    .into_iter()
    .unzip();
    let profile = v1::Profile { name: "default".to_owned(), plugins: refs };
    let config = v1::PickerConfig { plugins, profiles: vec![profile], ..v1::PickerConfig::default() };
    pipeline_into_core(&mut v1::Policy { picker_config: Some(config), ..v1::Policy::default() }).unwrap()
}
