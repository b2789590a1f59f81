//! Proxies and an agent in memory.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_engine::agent::{AgentAnswer, AgentRequest};
use endpoint_picker_engine::ledger::changes_of;
use endpoint_picker_engine::sharing::{ExchangeOutcome, Identity, LocalPeer, Positions, SharingClient};
use endpoint_picker_wire::changes::{Changes, Delivery, Exchange, Feed, Position};
use endpoint_picker_wire::{Bytes, CHANGES_FORMAT, Message};

pub(crate) const START: Duration = Duration::from_secs(1_000_000);
pub(crate) const TICK: Duration = Duration::from_millis(20);
pub(crate) const ONE: Load = Load { requests: 1, tokens: 100 };
pub(crate) const NONE: Load = Load { requests: 0, tokens: 0 };

const AVOID: Duration = Duration::from_millis(250);

pub(crate) fn pool(hosts: &[u8]) -> Arc<Pool> {
    let endpoint = |&n: &u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), vec![]);
    Arc::new(Pool::new("p".to_owned(), hosts.iter().map(endpoint).collect()).unwrap())
}

pub(crate) fn key(host: u8) -> u64 {
    pool(&[host]).endpoints()[0].key()
}

/// The ledger of a proxy with these hosts.
pub(crate) fn peer(hosts: &[u8], pipeline: &Pipeline) -> LocalPeer {
    LocalPeer::new(pool(hosts), pipeline, AVOID)
}

/// A proxy with a pool of three hosts.
pub(crate) struct Proxy {
    pub(crate) peer: LocalPeer,
    pub(crate) client: SharingClient,
    pipeline: Pipeline,
}

impl Proxy {
    pub(crate) fn new(sender: u64) -> Self {
        let pipeline = Pipeline::default();
        let peer = peer(&[1, 2, 3], &pipeline);
        Self { peer, client: client(sender, 1), pipeline }
    }

    /// Decides for a prompt that is this text many times. Returns the endpoint and the matched blocks, and the reservation.
    pub(crate) fn decide(&mut self, text: &str, now: Duration) -> Decided {
        let body = format!(r#"{{"model": "llama", "prompt": "{}"}}"#, text.repeat(200));
        let options = self.pipeline.body_options(Headers::default());
        let body = Body::read(&body, Api::Completions, &options).unwrap();
        let request = Request { model: "llama", prompt: Some(&body.prompt), ..Request::default() };
        let readings = vec![Reading { ready: true, updated: Some(now), ..Reading::default() }; 3];
        let ledger = self.peer.ledger();
        let mut decision =
            self.pipeline.decide(&request, &ledger.input(&readings, now), now, &mut SplitMix64::new(1));
        let destination = decision.destination().unwrap();
        let matched = decision.prompt.matched;
        let changes = changes_of(&mut decision, ledger.pool());
        self.peer.apply(changes);
        Decided { destination, matched }
    }

    pub(crate) fn loads(&self) -> Vec<Load> {
        self.peer.ledger().loads().to_vec()
    }

    /// The exchange that is due, decoded.
    pub(crate) fn exchange(&mut self, now: Duration) -> Option<Exchange> {
        let request = self.client.next_exchange(&mut self.peer, now)?;
        self.client.sent(7);
        Some(decoded(&request))
    }

    pub(crate) fn answer(&mut self, feed: &Feed, now: Duration) -> ExchangeOutcome {
        self.client.finish(Ok(answer_of(feed)), &mut self.peer, now)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) destination: usize,
    pub(crate) matched: u32,
}

pub(crate) fn client(sender: u64, epoch: u64) -> SharingClient {
    SharingClient::new("p", "envoy-1".to_owned(), Identity { sender, epoch }, Positions::default())
}

pub(crate) fn answer_of(feed: &Feed) -> AgentAnswer {
    AgentAnswer { status: 200, body: feed.encode_to_vec() }
}

pub(crate) fn decoded(request: &AgentRequest) -> Exchange {
    assert_eq!(request.path, "/v1/pools/p/changes");
    Exchange::decode(request.body.as_deref().unwrap()).unwrap()
}

/// A feed as an agent keeps it.
pub(crate) struct Agent {
    feed: u64,
    messages: Vec<(u64, Duration, Bytes)>,
    /// Of its wall clock, before those of the proxies.
    pub(crate) ahead: Duration,
}

impl Agent {
    pub(crate) fn new(feed: u64) -> Self {
        Self { feed, messages: Vec::new(), ahead: Duration::ZERO }
    }

    /// Takes an exchange, and answers it with all messages from its position on.
    pub(crate) fn take(&mut self, exchange: &Exchange, now: Duration) -> Feed {
        if let Some(changes) = &exchange.changes {
            let made = now - Duration::from_millis(exchange.age_ms);
            self.messages.push((exchange.sender, made, changes.clone()));
        }
        let known = exchange.positions.iter().find(|position| position.feed == self.feed);
        let next = usize::try_from(known.map_or(0, |position| position.next)).unwrap();
        let others = self.messages[next..].iter().filter(|(sender, ..)| *sender != exchange.sender);
        let deliveries = others.map(|(_, made, changes)| delivery(changes.clone(), now - *made));
        let position = Position { feed: self.feed, next: self.messages.len() as u64 };
        Feed {
            format: CHANGES_FORMAT,
            position: Some(position),
            deliveries: deliveries.collect(),
            since_epoch_ms: u64::try_from((now + self.ahead).as_millis()).unwrap(),
        }
    }

    /// Each proxy exchanges once.
    pub(crate) fn round(&mut self, proxies: &mut [&mut Proxy], now: Duration) {
        for proxy in proxies {
            if let Some(exchange) = proxy.exchange(now) {
                let feed = self.take(&exchange, now);
                assert_eq!(proxy.answer(&feed, now), ExchangeOutcome::Exchanged { passed_over: None });
            }
        }
    }
}

pub(crate) fn delivery(changes: Bytes, age: Duration) -> Delivery {
    Delivery { age_ms: u64::try_from(age.as_millis()).unwrap(), changes }
}

/// A message of one endpoint's load.
pub(crate) fn message(exchange: &Exchange) -> Changes {
    Changes::decode(exchange.changes.clone().unwrap()).unwrap()
}
