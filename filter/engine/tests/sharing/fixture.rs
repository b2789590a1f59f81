//! Proxies and an agent in memory.

use core::time::Duration;

use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::request::session::SessionTurn;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_engine::agent::{AgentRequest, AgentResponse};
use endpoint_picker_engine::ledger::changes_of;
use endpoint_picker_engine::sharing::{Identity, LocalPeer, Positions, SharingClient, SyncOutcome};
use endpoint_picker_engine::testing;
pub(crate) use endpoint_picker_engine::testing::{AgentFeed, START, key};
use endpoint_picker_wire::changes::{Changes, Delivery, Feed, Sync};
use endpoint_picker_wire::{Bytes, Message};

pub(crate) const TICK: Duration = Duration::from_millis(20);
pub(crate) const ONE: Load = Load { requests: 1, tokens: 100 };
pub(crate) const NONE: Load = Load { requests: 0, tokens: 0 };

const AVOID: Duration = Duration::from_millis(250);

/// The ledger of a proxy with these hosts.
pub(crate) fn peer(hosts: &[u16], pipeline: &Pipeline) -> LocalPeer {
    LocalPeer::new(testing::pool("p", hosts.iter().copied()), pipeline, AVOID)
}

/// A proxy with a pool of three hosts.
pub(crate) struct Proxy {
    pub(crate) peer: LocalPeer,
    pub(crate) client: SharingClient,
    pipeline: Pipeline,
}

impl Proxy {
    pub(crate) fn new(sender: u64) -> Self {
        Self::with_pipeline(sender, Pipeline::default())
    }

    pub(crate) fn with_pipeline(sender: u64, pipeline: Pipeline) -> Self {
        let peer = peer(&[1, 2, 3], &pipeline);
        Self { peer, client: client(sender, 1), pipeline }
    }

    /// Decides for a prompt that is this text many times. Returns the endpoint and the matched blocks, and
    /// the reservation.
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
        Decided { destination, matched, session: decision.session }
    }

    pub(crate) fn loads(&self) -> Vec<Load> {
        self.peer.ledger().loads().to_vec()
    }

    /// The sync that is due, decoded.
    pub(crate) fn sync(&mut self, now: Duration) -> Option<Sync> {
        let request = self.client.next_sync(&mut self.peer, now)?;
        Some(decoded(&request))
    }

    pub(crate) fn answer(&mut self, feed: &Feed, now: Duration) -> SyncOutcome {
        self.client.finish(Ok(answer_of(feed)), &mut self.peer, now)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) destination: usize,
    pub(crate) matched: u32,
    pub(crate) session: Option<SessionTurn>,
}

pub(crate) fn client(sender: u64, epoch: u64) -> SharingClient {
    SharingClient::new("p", "envoy-1".to_owned(), Identity { sender, epoch }, Positions::default())
}

pub(crate) fn answer_of(feed: &Feed) -> AgentResponse {
    AgentResponse { status: 200, body: feed.encode_to_vec() }
}

pub(crate) fn decoded(request: &AgentRequest) -> Sync {
    assert_eq!(request.path, "/v1/pools/p/changes");
    Sync::decode(request.body.as_deref().unwrap()).unwrap()
}

/// Each proxy syncs once with an agent.
pub(crate) fn round(agent: &mut AgentFeed, proxies: &mut [&mut Proxy], now: Duration) {
    for proxy in proxies {
        if let Some(sync) = proxy.sync(now) {
            let feed = agent.take(&sync, now);
            assert_eq!(proxy.answer(&feed, now), SyncOutcome::Synced { passed_over: None });
        }
    }
}

pub(crate) fn delivery(changes: Bytes, age: Duration) -> Delivery {
    Delivery { age_ms: u64::try_from(age.as_millis()).unwrap(), changes }
}

/// A message of one endpoint's load.
pub(crate) fn message(sync: &Sync) -> Changes {
    Changes::decode(sync.changes.clone().unwrap()).unwrap()
}
