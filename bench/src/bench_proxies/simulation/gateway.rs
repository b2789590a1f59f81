//! Proxies in front of servers, in simulated time.

use super::feed::Messages;
use super::script::{Script, ScriptedRequest};
use super::servers::Server;
use crate::bench_proxies::arrangement::Arrangement;
use crate::bench_proxies::choices::Setting;
use crate::load::schedule::Outcome;
use crate::timed_servers::{SERVERS, cached_share, counts_since};
use anyhow::{Context, Result};
use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::agent::AgentAnswer;
use endpoint_picker_engine::ledger::{Change, ChangeKind, changes_of};
use endpoint_picker_engine::sharing::{Identity, LocalPeer, Positions, SharingClient};
use endpoint_picker_model_server::{PrefixCacheCounts, ServiceTimes};
use endpoint_picker_wire::Message;
use endpoint_picker_wire::changes::Exchange;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Long after the epoch, as real times are.
const START: Duration = Duration::from_secs(1_000_000);
const SCRAPE_EVERY: Duration = Duration::from_millis(50);
const EXCHANGE_EVERY: Duration = Duration::from_millis(20);
/// From a proxy's exchange until another agent has its message from the store.
const STORE: Duration = Duration::from_millis(4);
/// From the agent's answer until the proxy has it.
const ANSWER: Duration = Duration::from_millis(1);

/// The figures of a round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) outcome: Outcome,
    /// Fraction of the prompt tokens that the servers had cached.
    pub(super) cached: f64,
    /// Fraction of the requests that went to the server with most of them.
    pub(super) most: f64,
}

struct Proxy {
    peer: LocalPeer,
    client: SharingClient,
    rng: SplitMix64,
}

/// The client of a request at a server.
#[derive(Debug)]
struct Client {
    due: Duration,
    proxy: usize,
    ends: Vec<Change>,
}

enum Event<'a> {
    Request(&'a ScriptedRequest),
    StepEnd { server: usize },
    Scrape { agent: usize, server: usize },
    Exchange { proxy: usize },
    Feed { proxy: usize, body: Vec<u8> },
}

/// Proxies with their agents, in front of servers.
pub(super) struct Gateway<'a> {
    arrangement: Arrangement,
    pipeline: Pipeline,
    proxies: Vec<Proxy>,
    /// Of each agent, by server.
    readings: Vec<Vec<Reading>>,
    servers: Vec<Server<Client>>,
    messages: Messages,
    /// By their time, and in the order in which they were planned.
    events: BTreeMap<(Duration, u64), Event<'a>>,
    planned: u64,
    now: Duration,
    rng: SplitMix64,
    /// Draws the proxy of each request.
    proxy_of_request: SplitMix64,
    /// Requests of the phase that have not been answered.
    unanswered: usize,
    /// The times of this phase's requests.
    first_token: Vec<Duration>,
    /// This phase's requests to each server.
    requests: Vec<usize>,
}

impl<'a> Gateway<'a> {
    fn new(setting: Setting, times: ServiceTimes, seed: u64) -> Result<Self> {
        let (arrangement, proxies) = setting;
        let endpoint = |n: u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), vec![]);
        let endpoints = (0..u8::try_from(SERVERS)?).map(endpoint).collect();
        let pool = Arc::new(Pool::new("p".to_owned(), endpoints).map_err(anyhow::Error::msg)?);
        let pipeline = Pipeline::default();
        let mut rng = SplitMix64::new(seed);
        let proxy = |number: usize| Proxy {
            peer: LocalPeer::new(Arc::clone(&pool), &pipeline, Duration::ZERO),
            client: SharingClient::new(
                "p",
                format!("envoy-{number}"),
                Identity { sender: number as u64 + 1, epoch: 1 },
                Positions::default(),
            ),
            rng: SplitMix64::new(rng.next_u64()),
        };
        let proxies: Vec<Proxy> = (0..proxies).map(proxy).collect();
        let servers: Vec<Server<Client>> = (0..SERVERS).map(|_| Server::new(times)).collect();
        let agents = if arrangement.has_one_picker() { 1 } else { proxies.len() };
        let reading = servers.iter().map(|server| server.reading(START)).collect();
        let mut gateway = Self {
            arrangement,
            pipeline,
            readings: vec![reading; agents],
            servers,
            messages: Messages::default(),
            events: BTreeMap::new(),
            planned: 0,
            now: START,
            proxy_of_request: SplitMix64::new(0),
            unanswered: 0,
            first_token: Vec::new(),
            requests: Vec::new(),
            proxies,
            rng,
        };
        for agent in 0..agents {
            for server in 0..SERVERS {
                gateway.plan_within(SCRAPE_EVERY, Event::Scrape { agent, server });
            }
        }
        if arrangement != Arrangement::Apart {
            for proxy in 0..gateway.proxies.len() {
                gateway.plan_within(EXCHANGE_EVERY, Event::Exchange { proxy });
            }
        }
        Ok(gateway)
    }

    /// Runs a round of this setting.
    pub(super) fn run(setting: Setting, times: ServiceTimes, script: &'a Script, seed: u64) -> Result<Round> {
        let mut gateway = Self::new(setting, times, seed)?;
        let [warm_up, measured] = &script.phases;
        gateway.pass_phase(warm_up, script.seed)?;
        let (before, began) = (gateway.prefix_cache(), gateway.now);
        gateway.pass_phase(measured, script.seed)?;
        let cached = cached_share(counts_since(gateway.prefix_cache(), before));
        let took = gateway.now.saturating_sub(began);
        let Self { first_token: mut first_byte, requests, .. } = gateway;
        first_byte.sort_unstable();
        let most = requests.into_iter().max().unwrap_or(0) as f64 / first_byte.len() as f64;
        Ok(Round { outcome: Outcome { first_byte, failures: Vec::new(), took }, cached, most })
    }

    fn plan(&mut self, after: Duration, event: Event<'a>) {
        self.planned += 1;
        self.events.insert((self.now + after, self.planned), event);
    }

    /// Plans an event at a random time within this one.
    fn plan_within(&mut self, time: Duration, event: Event<'a>) {
        let after = time.mul_f64(self.rng.unit());
        self.plan(after, event);
    }

    /// Sends all requests of a phase, and waits for the answers.
    fn pass_phase(&mut self, requests: &'a [ScriptedRequest], seed: u64) -> Result<()> {
        self.proxy_of_request = SplitMix64::new(!seed);
        for request in requests {
            self.plan(request.at, Event::Request(request));
        }
        self.unanswered = requests.len();
        self.first_token.clear();
        self.requests = vec![0; self.servers.len()];
        while self.unanswered > 0 {
            let ((now, _), event) = self.events.pop_first().context("scrapes never end")?;
            self.now = now;
            match event {
                Event::Request(request) => self.request(request)?,
                Event::StepEnd { server } => self.end_step(server),
                Event::Scrape { agent, server } => self.scrape(agent, server),
                Event::Exchange { proxy } => self.exchange(proxy)?,
                Event::Feed { proxy, body } => self.read(proxy, body),
            }
        }
        Ok(())
    }

    fn request(&mut self, request: &ScriptedRequest) -> Result<()> {
        let proxy = self.proxy_of_request.below(self.proxies.len());
        let agent = if self.readings.len() == 1 { 0 } else { proxy };
        let Proxy { peer, rng, .. } = &mut self.proxies[proxy];
        let options = self.pipeline.body_options(Headers::default());
        let body =
            Body::read(&request.body, Api::Chat, &options).map_err(|error| anyhow::anyhow!("{error}"))?;
        let wanted = Request {
            model: "model",
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            ..Request::default()
        };
        let ledger = peer.ledger();
        let view = ledger.input(&self.readings[agent], self.now);
        let mut decision = self.pipeline.decide(&wanted, &view, self.now, rng);
        let server = decision.destination().context("a server is picked")?;
        let changes = changes_of(&mut decision, ledger.pool());
        let end = |change: &Change| match *change {
            Change::Endpoint { endpoint, kind: ChangeKind::Started(load) } => {
                Some(Change::Endpoint { endpoint, kind: ChangeKind::Ended(load) })
            }
            _ => None,
        };
        let ends = changes.iter().filter_map(end).collect();
        peer.apply(changes);
        self.requests[server] += 1;
        let client = Client { due: self.now, proxy, ends };
        if let Some(step) = self.servers[server].add(request.work.clone(), client) {
            self.plan(step, Event::StepEnd { server });
        }
        Ok(())
    }

    fn end_step(&mut self, server: usize) {
        let Self { servers, proxies, first_token, unanswered, now, .. } = self;
        let next = servers[server].end_step(|client, made, is_all| {
            if made == 1 {
                first_token.push(now.saturating_sub(client.due));
            }
            if is_all {
                proxies[client.proxy].peer.apply(core::mem::take(&mut client.ends));
                *unanswered -= 1;
            }
        });
        if let Some(step) = next {
            self.plan(step, Event::StepEnd { server });
        }
    }

    fn scrape(&mut self, agent: usize, server: usize) {
        self.readings[agent][server] = self.servers[server].reading(self.now);
        self.plan(SCRAPE_EVERY, Event::Scrape { agent, server });
    }

    fn exchange(&mut self, proxy: usize) -> Result<()> {
        let jitter = Duration::from_millis(1).mul_f64(self.rng.unit());
        self.plan(EXCHANGE_EVERY + jitter, Event::Exchange { proxy });
        let Proxy { peer, client, .. } = &mut self.proxies[proxy];
        if let Some(request) = client.next_exchange(peer, self.now) {
            client.sent(1);
            let exchange = Exchange::decode(request.body.unwrap_or_default().as_slice())?;
            let delay = if self.arrangement == Arrangement::Store { STORE } else { Duration::ZERO };
            let body = self.messages.exchange(&exchange, self.now, delay).encode_to_vec();
            self.plan(ANSWER, Event::Feed { proxy, body });
        }
        Ok(())
    }

    fn read(&mut self, proxy: usize, body: Vec<u8>) {
        let Proxy { peer, client, .. } = &mut self.proxies[proxy];
        client.finish(Ok(AgentAnswer { status: 200, body }), peer, self.now);
    }

    fn prefix_cache(&self) -> PrefixCacheCounts {
        self.servers.iter().map(Server::prefix_cache).fold(PrefixCacheCounts::default(), |sum, one| {
            PrefixCacheCounts { queried: sum.queried + one.queried, hit: sum.hit + one.hit }
        })
    }
}
