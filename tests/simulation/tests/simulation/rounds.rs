//! How well several proxies pick: prompt tokens that servers had cached, and times to the first token.
//!
//! The requests, times and proxies of requests are from the study of real proxies in
//! docs/benchmarks/2026-11-23-several-proxies.md.

use std::time::Duration;

use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::ledger::Change;
use endpoint_picker_engine::testing::{START, pool};
use endpoint_picker_simulation::proxy::Proxy;
use endpoint_picker_simulation::workload::{Workload, arrival_times};
use endpoint_picker_simulation::world::World;
use metrics_agent_replay::simulation::figures::percentile;
use metrics_agent_replay::simulation::server::BatchServer;
use metrics_agent_server_model::{BatchRequest, Progress, ServiceTimes};

const SERVERS: u16 = 12;
const SCRAPE_EVERY: Duration = Duration::from_millis(50);
/// Time from a proxy's message until another agent has it from the store.
const STORE: Duration = Duration::from_millis(4);
/// Time from the agent's response until the proxy has it.
const RESPONSE: Duration = Duration::from_millis(1);

/// How proxies share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Through agents of their own and a store.
    Store,
    OneAgent,
    /// Not at all.
    Apart,
}

const SETTINGS: [(Sharing, usize); 10] = [
    (Sharing::Apart, 1),
    (Sharing::Store, 2),
    (Sharing::OneAgent, 2),
    (Sharing::Apart, 2),
    (Sharing::Store, 4),
    (Sharing::OneAgent, 4),
    (Sharing::Apart, 4),
    (Sharing::Store, 8),
    (Sharing::OneAgent, 8),
    (Sharing::Apart, 8),
];

/// The workloads whose prompts begin alike.
const WORKLOADS: [Workload; 2] = [Workload::Conversations, Workload::SystemPrompts];

/// A request at its time from the beginning of its phase.
struct ScriptedRequest {
    at: Duration,
    body: String,
    work: BatchRequest,
}

/// The requests that fill the caches, and the requests that are measured.
type Script = [Vec<ScriptedRequest>; 2];

fn script(workload: Workload, per_second: f64, phases: [Duration; 2], seed: u64) -> Script {
    let mut requests = workload.requests(seed);
    phases.map(|lasting| {
        let request = |at| {
            let chat = requests.draw();
            ScriptedRequest { at, body: chat.body().to_string(), work: chat.batch_request() }
        };
        arrival_times(per_second, lasting, seed).into_iter().map(request).collect()
    })
}

/// The figures of a round.
#[derive(Debug, PartialEq)]
struct Round {
    /// In ascending order.
    first_token: Vec<Duration>,
    /// Fraction of the prompt tokens that the servers had cached.
    cached: f64,
}

/// The client of a request at a server.
struct Client {
    due: Duration,
    proxy: usize,
    ends: Vec<Change>,
}

enum Event<'a> {
    Request(&'a ScriptedRequest),
    StepEnd { server: usize },
    Scrape { agent: usize, server: usize },
}

/// Proxies with their agents, in front of servers.
struct Gateway<'a> {
    world: World<Event<'a>>,
    pipeline: Pipeline,
    servers: Vec<BatchServer<Client>>,
    /// The readings of each agent, by server.
    readings: Vec<Vec<Reading>>,
    /// Determines the proxy of each request.
    proxy_of_request: SplitMix64,
    /// Requests of the phase in flight or not yet sent.
    unserved: usize,
    first_token: Vec<Duration>,
}

impl<'a> Gateway<'a> {
    fn new((sharing, proxies): (Sharing, usize), times: ServiceTimes, seed: u64) -> Self {
        let (pool, pipeline, mut rng) = (pool("p", 0..SERVERS), Pipeline::default(), SplitMix64::new(seed));
        let proxy = |number| Proxy::new(number, &pool, &pipeline, SplitMix64::new(rng.next_u64()));
        let proxies: Vec<Proxy> = (0..proxies).map(proxy).collect();
        let servers: Vec<_> = (0..SERVERS).map(|_| BatchServer::new(times)).collect();
        let agents = if sharing == Sharing::OneAgent { 1 } else { proxies.len() };
        let reading = servers.iter().map(|server: &BatchServer<Client>| server.reading(START)).collect();
        let mut world = World::new(proxies, rng);
        for agent in 0..agents {
            for server in 0..servers.len() {
                world.plan_within(SCRAPE_EVERY, Event::Scrape { agent, server });
            }
        }
        if sharing == Sharing::Store {
            world.feed.delay = STORE;
        }
        if sharing != Sharing::Apart {
            world.share(RESPONSE);
        }
        Self {
            world,
            pipeline,
            servers,
            readings: vec![reading; agents],
            proxy_of_request: SplitMix64::new(0),
            unserved: 0,
            first_token: Vec::new(),
        }
    }

    fn run(mut self, [warm_up, measured]: &'a Script, seed: u64) -> Round {
        self.pass_phase(warm_up, seed);
        let before = self.prefix_cache();
        self.pass_phase(measured, seed);
        let [queried, hit] = self.prefix_cache();
        self.first_token.sort_unstable();
        let cached = (hit - before[1]) as f64 / (queried - before[0]) as f64;
        Round { first_token: self.first_token, cached }
    }

    /// Sends all requests of a phase, and waits for the responses.
    fn pass_phase(&mut self, requests: &'a [ScriptedRequest], seed: u64) {
        self.proxy_of_request = SplitMix64::new(!seed);
        for request in requests {
            self.world.plan(request.at, Event::Request(request));
        }
        self.unserved = requests.len();
        self.first_token.clear();
        while self.unserved > 0 {
            match self.world.next_event().unwrap() {
                Event::Request(request) => self.request(request),
                Event::StepEnd { server } => self.end_step(server),
                Event::Scrape { agent, server } => {
                    self.readings[agent][server] = self.servers[server].reading(self.world.now());
                    self.world.plan(SCRAPE_EVERY, Event::Scrape { agent, server });
                }
            }
        }
    }

    fn request(&mut self, request: &ScriptedRequest) {
        let now = self.world.now();
        let number = self.proxy_of_request.below(self.world.proxies.len());
        let readings = &self.readings[if self.readings.len() == 1 { 0 } else { number }];
        let body =
            Body::read(&request.body, Api::Chat, &self.pipeline.body_options(Headers::default())).unwrap();
        let wanted = Request {
            model: "model",
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            ..Request::default()
        };
        let proxy = &mut self.world.proxies[number];
        let pick = proxy.pick(&self.pipeline, &wanted, readings, None, now);
        let client = Client { due: now, proxy: number, ends: pick.ends() };
        proxy.apply(pick.changes);
        if let Some(step) = self.servers[pick.server].add(request.work.clone(), client) {
            self.world.plan(step, Event::StepEnd { server: pick.server });
        }
    }

    fn end_step(&mut self, server: usize) {
        let Self { servers, world, first_token, unserved, .. } = self;
        let now = world.now();
        let next = servers[server].end_step(|client, Progress { made, is_all, .. }| {
            if made == 1 {
                first_token.push(now.saturating_sub(client.due));
            }
            if is_all {
                world.proxies[client.proxy].apply(core::mem::take(&mut client.ends));
                *unserved -= 1;
            }
        });
        if let Some(step) = next {
            self.world.plan(step, Event::StepEnd { server });
        }
    }

    /// Prompt tokens that all servers have looked up and found.
    fn prefix_cache(&self) -> [u64; 2] {
        let counts = self.servers.iter().map(BatchServer::prefix_cache);
        counts.fold([0, 0], |[queried, hit], server| [queried + server.queried, hit + server.hit])
    }
}

/// The rounds of a setting, each with a seed of its own.
fn rounds(
    setting: (Sharing, usize),
    workload: Workload,
    phase: Duration,
    seeds: core::ops::Range<u64>,
) -> Vec<Round> {
    let round = |seed| {
        let script = script(workload, 80.0, [phase; 2], seed);
        Gateway::new(setting, workload.service_times(), seed).run(&script, seed)
    };
    seeds.map(round).collect()
}

#[test]
fn proxies_that_share_find_what_one_finds_and_others_do_not() {
    for workload in WORKLOADS {
        let mut of_one = None;
        for setting in SETTINGS {
            let rounds = rounds(setting, workload, Duration::from_secs(2), 1..3);
            let cached: f64 = rounds.iter().map(|round| round.cached).sum();
            let ratio = cached / *of_one.get_or_insert(cached);
            let (sharing, proxies) = setting;
            let p90 = percentile(&rounds[0].first_token, 0.9);
            println!(
                "{workload}, {proxies} proxies, {sharing:?}: cached {ratio:.3} of one proxy's, p90 {p90:.0?}"
            );
            let is_as_expected = match sharing {
                Sharing::Apart => proxies == 1 || ratio < 0.95,
                Sharing::Store | Sharing::OneAgent => ratio > 0.97,
            };
            assert!(is_as_expected, "{workload}, {proxies} proxies, {sharing:?}: {ratio:.3}");
        }
    }
}

#[test]
fn equal_seeds_give_equal_rounds() {
    for setting in SETTINGS {
        let [one, other] =
            [(); 2].map(|()| rounds(setting, Workload::SystemPrompts, Duration::from_secs(1), 7..8));
        assert_eq!(one, other);
    }
}
