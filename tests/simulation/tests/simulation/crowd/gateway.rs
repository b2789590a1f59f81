//! Many proxies and their reference.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::prefix::PrefixIndex;
use endpoint_picker_engine::ledger::{Change, ChangeKind, Ledger};
use endpoint_picker_engine::testing::{START, picker_config, pipeline, pool};
use endpoint_picker_simulation::proxy::Proxy;
use endpoint_picker_simulation::world::{SYNC_EVERY, World};
use endpoint_picker_wire::v1;

use super::conversations::Conversations;
use super::tally::Tally;

/// Time between two steps.
const STEP: Duration = Duration::from_millis(5);

/// Size and duration of a simulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) proxies: usize,
    pub(super) endpoints: u16,
    /// Requests of each proxy.
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

/// Many proxies with an agent, and a proxy that has the changes of all of them at once.
pub(super) struct Crowd {
    setup: Setup,
    pipeline: Pipeline,
    readings: Vec<Reading>,
    reference: Proxy,
    /// Proxy of one endpoint that never got a prompt: its decisions have all blocks.
    without_prompts: Proxy,
    /// The event is a step.
    world: World<()>,
    conversations: Conversations,
    /// The ends of requests, by their time: the proxy, the endpoint and the load.
    ends: BTreeMap<Duration, Vec<(usize, u64, Load)>>,
    seed: u64,
    tally: Tally,
}

impl Crowd {
    pub(super) fn new(setup: Setup, seed: u64) -> Self {
        let (all, pipeline) = (pool("p", 0..setup.endpoints), pipeline(prompts_and_loads()));
        let proxy = |number| Proxy::new(number, &all, &pipeline, SplitMix64::new(seed));
        let mut world = World::new((0..setup.proxies).map(proxy).collect(), SplitMix64::new(!seed));
        world.plan(STEP, ());
        if setup.shares {
            world.share_evenly(Duration::ZERO, STEP);
        }
        let reading = Reading { ready: true, updated: Some(START), waiting: Some(0), ..Reading::default() };
        Self {
            readings: vec![reading; setup.endpoints.into()],
            reference: proxy(0),
            without_prompts: Proxy::new(0, &pool("p", 0..1), &pipeline, SplitMix64::new(0)),
            // Each conversation continues about once a second.
            conversations: Conversations::new(setup.proxies * setup.requests_per_second, seed),
            ends: BTreeMap::new(),
            tally: Tally::default(),
            world,
            pipeline,
            setup,
            seed,
        }
    }

    /// Sends the requests of all steps.
    pub(super) fn run(&mut self) -> Tally {
        // The changes of a proxy before its first message reach no other proxy.
        self.share_all();
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
        let time = STEP * u32::try_from(self.setup.steps).unwrap();
        let (missed, longest_wait) = (self.world.feed.missed, self.world.feed.longest_wait);
        let (proxies, traffic) = (self.setup.proxies, self.world.traffic());
        Tally { time, proxies, traffic, missed, longest_wait, ..core::mem::take(&mut self.tally) }
    }

    /// Lets proxies share without further requests. All ledgers have to agree with the single picker, while
    /// requests are in flight and after their ends.
    pub(super) fn rest(&mut self) {
        let ends = core::mem::take(&mut self.ends);
        self.share_all();
        assert!(self.reference.ledger().requests_in_flight() > 0);
        self.assert_agreement();
        self.ends = ends;
        while !self.ends.is_empty() {
            self.pass_step();
        }
        self.share_all();
        assert_eq!(self.reference.ledger().requests_in_flight(), 0);
        self.assert_agreement();
    }

    fn assert_agreement(&self) {
        let ledgers = || self.world.proxies.iter().map(Proxy::ledger);
        let reference = self.reference.ledger();
        for (number, ledger) in ledgers().enumerate() {
            assert!(ledger.loads() == reference.loads(), "the loads of proxy {number}");
        }
        let mut has_blocks = false;
        for prompt in self.conversations.prompts().take(50) {
            let matched = self.matched(&prompt, core::iter::once(reference).chain(ledgers()));
            has_blocks |= matched[0].iter().any(|&blocks| blocks > 0);
            assert!(matched.iter().all(|of_ledger| *of_ledger == matched[0]), "proxies differ on a prompt");
        }
        assert!(has_blocks);
    }

    fn pass_step(&mut self) {
        self.world.next_event();
        self.world.plan(STEP, ());
        self.end_requests();
    }

    /// Passes enough steps for each proxy to send its last changes and to read the changes of all others.
    fn share_all(&mut self) {
        let end = self.world.now() + 3 * SYNC_EVERY;
        while self.world.now() < end {
            self.pass_step();
        }
    }

    fn send_request(&mut self) {
        let prompt = self.conversations.next_prompt();
        let number = self.conversations.below(self.setup.proxies);
        // Ties are broken alike.
        let rng = SplitMix64::new(self.seed ^ self.tally.requests as u64);
        let now = self.world.now();
        let Self { world, reference, pipeline, readings, .. } = self;
        let proxy = &mut world.proxies[number];
        let [pick, by_one] = [proxy, &mut *reference].map(|proxy| {
            proxy.rng = rng.clone();
            with_body(pipeline, &prompt, |request| proxy.pick(pipeline, request, readings, None, now))
        });
        let matched = self.matched(&prompt, [self.reference.ledger()]).remove(0);
        let loads = self.reference.ledger().loads();
        let Tally { requests, found, found_by_one, to_busier, .. } = &mut self.tally;
        *requests += 1;
        *found += u64::from(matched[pick.server]);
        *found_by_one += u64::from(matched[by_one.server]);
        *to_busier += usize::from(loads[pick.server].requests > loads[by_one.server].requests);
        let end = now + self.conversations.service_time();
        let loads = pick.loads().map(|(endpoint, load)| (number, endpoint, load));
        self.ends.entry(end).or_default().extend(loads);
        self.reference.apply(pick.changes.clone());
        self.world.proxies[number].apply(pick.changes);
    }

    fn end_requests(&mut self) {
        let later = self.ends.split_off(&(self.world.now() + Duration::from_nanos(1)));
        for (number, endpoint, load) in core::mem::replace(&mut self.ends, later).into_values().flatten() {
            let change = Change::Endpoint { endpoint, kind: ChangeKind::Ended(load) };
            self.reference.apply([change.clone()]);
            self.world.proxies[number].apply([change]);
        }
    }

    /// The blocks of a prompt that each endpoint has, by each of these ledgers.
    fn matched<'a>(&self, prompt: &str, ledgers: impl IntoIterator<Item = &'a Ledger>) -> Vec<Vec<u32>> {
        let chain = with_body(&self.pipeline, prompt, |request| {
            let input = self.without_prompts.ledger().input(&self.readings[..1], self.world.now());
            let decision = self.pipeline.decide(request, &input, self.world.now(), &mut SplitMix64::new(0));
            // The first word is the endpoint's capacity.
            decision.records.changes.into_iter().next().map(|prompt| prompt.words[1..].to_vec())
        });
        let chain = chain.unwrap();
        let matched = |ledger: &Ledger| {
            let mut keys = self.pipeline.plugins().iter().map(Instance::key);
            let index = keys.find_map(|key| ledger.states().of::<PrefixIndex>(key));
            let mut matched = vec![0; ledger.pool().as_slice().len()];
            index.unwrap().count_matches(&chain, &mut matched);
            matched
        };
        ledgers.into_iter().map(matched).collect()
    }
}

fn with_body<T>(pipeline: &Pipeline, prompt: &str, then: impl FnOnce(&Request<'_>) -> T) -> T {
    let json = format!(r#"{{"model": "llama", "prompt": "{prompt}"}}"#);
    let body = Body::read(&json, Api::Completions, &pipeline.body_options(Headers::default())).unwrap();
    then(&Request { model: "llama", prompt: Some(&body.prompt), ..Request::default() })
}

/// Prompts and loads count.
fn prompts_and_loads() -> v1::PickerConfig {
    picker_config(&[
        ("prefix-cache-scorer", Some(2.0)),
        ("active-request-scorer", Some(1.0)),
        ("max-score-picker", None),
    ])
}
