//! One proxy: a ledger, the client that shares it, and random numbers for picks.

use endpoint_picker::input::DecisionInput;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::{FractionalLoad, Load};
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_engine::agent::AgentResponse;
use endpoint_picker_engine::ledger::{Change, ChangeKind, ChangeList, Ledger, changes_of};
use endpoint_picker_engine::sharing::{Identity, LocalPeer, Positions, SharingClient, SyncOutcome};
use endpoint_picker_engine::testing::AgentFeed;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::changes::{Feed, Sync};
use std::sync::Arc;
use std::time::Duration;

/// One proxy.
#[derive(Debug)]
pub struct Proxy {
    peer: LocalPeer,
    client: SharingClient,
    /// Random numbers of its picks.
    pub rng: SplitMix64,
    /// Bytes and messages so far.
    pub traffic: Traffic,
}

/// Bytes between a proxy and its agent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    /// Bytes to the agent, messages included.
    pub uploaded: usize,
    /// Bytes of the agent's responses.
    pub downloaded: usize,
    /// Messages, which agents share.
    pub messages: usize,
    /// Bytes of the messages.
    pub message_bytes: usize,
}

/// One decision: a server, and the changes that follow from it.
#[derive(Debug)]
pub struct Pick {
    /// Index of the server.
    pub server: usize,
    /// Changes of the ledger.
    pub changes: ChangeList,
}

impl Proxy {
    /// A proxy of this number, from 0, with an empty ledger.
    pub fn new(number: usize, pool: &Arc<Endpoints>, pipeline: &Pipeline, rng: SplitMix64) -> Self {
        let identity = Identity { sender: number as u64 + 1, epoch: 1 };
        let name = format!("envoy-{number}");
        let client = SharingClient::new(pool.name(), name, identity, Positions::default());
        let peer = LocalPeer::new(Arc::clone(pool), pipeline, Duration::ZERO);
        Self { peer, client, rng, traffic: Traffic::default() }
    }

    /// Its ledger.
    pub fn ledger(&self) -> &Ledger {
        self.peer.ledger()
    }

    /// Applies own changes, which the others get with the next message.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.peer.apply(changes);
    }

    /// Decides by these readings, without effect on the ledger. `deferred` replaces the ledger's deferred
    /// loads.
    pub fn pick(
        &mut self,
        pipeline: &Pipeline,
        request: &Request<'_>,
        readings: &[Reading],
        deferred: Option<&[FractionalLoad]>,
        now: Duration,
    ) -> Pick {
        let ledger = self.peer.ledger();
        let input = ledger.input(readings, now);
        let input = DecisionInput { deferred: deferred.unwrap_or(input.deferred), ..input };
        let mut decision = pipeline.decide(request, &input, now, &mut self.rng);
        let server = decision.destination().unwrap();
        Pick { server, changes: changes_of(&mut decision, ledger.pool()) }
    }

    /// Sends its changes to the agent, if a message is due. Returns the response.
    pub(crate) fn send(&mut self, feed: &mut AgentFeed, now: Duration) -> Option<Feed> {
        let request = self.client.next_sync(&mut self.peer, now)?;
        let body = request.body.unwrap_or_default();
        let sync = Sync::decode(body.as_slice()).unwrap();
        self.traffic.uploaded += body.len();
        if let Some(changes) = &sync.changes {
            self.traffic.messages += 1;
            self.traffic.message_bytes += changes.len();
        }
        Some(feed.take(&sync, now))
    }

    /// Reads a response of the agent.
    pub(crate) fn receive(&mut self, feed: &Feed, now: Duration) {
        let body = feed.encode_to_vec();
        self.traffic.downloaded += body.len();
        let outcome = self.client.finish(Ok(AgentResponse { status: 200, body }), &mut self.peer, now);
        assert_eq!(outcome, SyncOutcome::Synced { passed_over: None });
    }
}

impl Pick {
    /// The loads that begin with the request, with the keys of their endpoints.
    pub fn loads(&self) -> impl Iterator<Item = (u64, Load)> {
        self.changes.iter().filter_map(|change| match *change {
            Change::Endpoint { endpoint, kind: ChangeKind::Started(load) } => Some((endpoint, load)),
            _ => None,
        })
    }

    /// The changes at the end of the request.
    pub fn ends(&self) -> Vec<Change> {
        let end = |(endpoint, load)| Change::Endpoint { endpoint, kind: ChangeKind::Ended(load) };
        self.loads().map(end).collect()
    }
}
