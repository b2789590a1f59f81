//! Cost of sharing for a proxy: collecting its own changes, sending them, and applying the changes of others.
//!
//! Four proxies have 1 000 requests/s each, chats of 2 KB, over 100 endpoints. A sync every 20 ms has the
//! changes of 20 requests, and its response those of 60 requests of other proxies.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use core::hint::black_box;
use core::time::Duration;
use std::collections::VecDeque;
use std::time::Instant;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_engine::agent::{AgentRequest, AgentResponse};
use endpoint_picker_engine::ledger::{Change, ChangeKind, changes_of};
use endpoint_picker_engine::sharing::{
    Identity, LocalPeer, PeerLedger, Positions, SharingClient, SyncOutcome,
};
use endpoint_picker_engine::testing;
use endpoint_picker_wire::changes::{Delivery, Feed, Sync};
use endpoint_picker_wire::{Bytes, CHANGES_FORMAT, Message};

const PROXIES: u64 = 4;
const REQUESTS_PER_SECOND: usize = 1_000;
const ENDPOINTS: u16 = 100;

/// Requests of a proxy between two syncs.
const REQUESTS: usize = REQUESTS_PER_SECOND / 50;

const SYNC_EVERY: Duration = Duration::from_millis(20);

/// Requests that are in flight in a proxy: a second's.
const IN_FLIGHT: usize = REQUESTS_PER_SECOND;

/// Common parts of the prompts.
#[derive(Clone, Copy)]
enum Chats {
    /// Nothing: every block of every prompt is new.
    New,
    /// Seven of eight requests extend a conversation by 256 bytes.
    Conversations,
}

struct Proxy {
    pipeline: Pipeline,
    readings: Vec<Reading>,
    peer: LocalPeer,
    client: SharingClient,
    number: usize,
    requests: usize,
    ends: VecDeque<Change>,
    now: Duration,
}

impl Proxy {
    fn new(sender: u64, shares: bool) -> Self {
        let pipeline = Pipeline::default();
        let pool = testing::pool("p", 0..ENDPOINTS);
        let now = Duration::from_secs(1_000_000);
        let reading = Reading { ready: true, updated: Some(now), waiting: Some(0), ..Reading::default() };
        let identity = Identity { sender, epoch: 1 };
        let mut proxy = Self {
            readings: vec![reading; ENDPOINTS.into()],
            peer: LocalPeer::new(pool, &pipeline, Duration::ZERO),
            client: SharingClient::new("p", "envoy".to_owned(), identity, Positions::default()),
            number: usize::try_from(sender).unwrap(),
            requests: 0,
            ends: VecDeque::new(),
            pipeline,
            now,
        };
        if shares {
            proxy.sync();
            proxy.answer(Vec::new());
        } else {
            proxy.peer.collect(false);
        }
        proxy
    }

    /// A prompt of 2 KB, or of a conversation that began with that.
    fn prompt(&mut self, chats: Chats) -> String {
        let (conversation, turns) = match chats {
            Chats::New => (self.requests, 0),
            Chats::Conversations => (self.requests / 8, self.requests % 8),
        };
        self.requests += 1;
        let text = format!("request {} of proxy {}, which goes on and on. ", conversation, self.number);
        let mut prompt = text.repeat(2048 / text.len() + 1);
        prompt.truncate(2048);
        for turn in 0..turns {
            let text = format!("turn {turn} of that. ");
            prompt.push_str(&text.repeat(256 / text.len() + 1)[..256]);
        }
        prompt
    }

    /// Decides on a request, and ends one that is in flight.
    fn request(&mut self, chats: Chats) {
        let json = format!(r#"{{"model": "llama", "prompt": "{}"}}"#, self.prompt(chats));
        self.decide(&json);
    }

    fn decide(&mut self, json: &str) {
        let body =
            Body::read(json, Api::Completions, &self.pipeline.body_options(Headers::default())).unwrap();
        let request = Request { model: "llama", prompt: Some(&body.prompt), ..Request::default() };
        let view = self.peer.ledger().input(&self.readings, self.now);
        let mut rng = SplitMix64::new(self.requests as u64);
        let mut decision = self.pipeline.decide(&request, &view, self.now, &mut rng);
        let changes = changes_of(&mut decision, self.peer.ledger().pool());
        for change in &changes {
            if let Change::Endpoint { endpoint, kind: ChangeKind::Started(load) } = change {
                self.ends.push_back(Change::Endpoint { endpoint: *endpoint, kind: ChangeKind::Ended(*load) });
            }
        }
        self.peer.apply(changes);
        while self.ends.len() > IN_FLIGHT {
            self.peer.apply(self.ends.pop_front());
        }
    }

    /// The sync that is due.
    fn sync(&mut self) -> AgentRequest {
        self.now += SYNC_EVERY;
        self.client.next_sync(&mut self.peer, self.now).unwrap()
    }

    /// Takes a response with messages of others.
    fn answer(&mut self, messages: Vec<Bytes>) {
        self.answer_bytes(feed(messages));
    }

    fn answer_bytes(&mut self, body: Vec<u8>) {
        let outcome = self.client.finish(Ok(AgentResponse { status: 200, body }), &mut self.peer, self.now);
        assert_eq!(outcome, SyncOutcome::Synced { passed_over: None });
    }
}

/// A response of the agent with these messages.
fn feed(messages: Vec<Bytes>) -> Vec<u8> {
    let deliveries = messages.into_iter().map(|changes| Delivery { age_ms: 10, changes }).collect();
    Feed { format: CHANGES_FORMAT, deliveries, ..Feed::default() }.encode_to_vec()
}

/// The message of a sync.
fn message(request: AgentRequest) -> Bytes {
    Sync::decode(request.body.unwrap().as_slice()).unwrap().changes.unwrap()
}

/// Each proxy has the requests between two syncs, and then syncs with the others. Returns their messages.
fn round(proxies: &mut [Proxy], chats: Chats) -> Vec<Bytes> {
    let send = |proxy: &mut Proxy| {
        (0..REQUESTS).for_each(|_| proxy.request(chats));
        message(proxy.sync())
    };
    let messages: Vec<_> = proxies.iter_mut().map(send).collect();
    for (number, proxy) in proxies.iter_mut().enumerate() {
        let others = messages.iter().enumerate().filter(|(other, _)| *other != number);
        proxy.answer(others.map(|(_, message)| message.clone()).collect());
    }
    messages
}

/// Prints what the messages of requests take.
fn traffic() {
    const ROUNDS: usize = 500;
    for (name, chats) in [("new prompts", Chats::New), ("conversations", Chats::Conversations)] {
        let mut proxies: Vec<_> = (0..PROXIES).map(|number| Proxy::new(number + 1, true)).collect();
        let rounds = (0..ROUNDS).flat_map(|_| round(&mut proxies, chats));
        let bytes: usize = rounds.map(|message| message.len()).sum();
        let per_second = bytes as f64 / (SYNC_EVERY * u32::try_from(ROUNDS).unwrap()).as_secs_f64();
        println!(
            "{name}: {} bytes per request, {:.2} MB/s of messages from {PROXIES} proxies at {REQUESTS_PER_SECOND} requests/s",
            bytes / (ROUNDS * REQUESTS * proxies.len()),
            per_second / 1e6
        );
    }
}

fn costs(criterion: &mut Criterion) {
    traffic();
    let mut group = criterion.benchmark_group("2 KB chats, 100 endpoints, new prompts");
    group.throughput(Throughput::Elements(REQUESTS as u64));
    for (name, shares) in [("20 requests, decided alone", false), ("20 requests, collected for others", true)]
    {
        let mut proxy = Proxy::new(1, shares);
        (0..2 * IN_FLIGHT).for_each(|_| proxy.request(Chats::New));
        proxy.peer.take_own();
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (),
                |()| {
                    (0..REQUESTS).for_each(|_| proxy.request(Chats::New));
                    // Dropped here in both cases, and sent in the next measurement.
                    black_box(proxy.peer.take_own())
                },
                BatchSize::PerIteration,
            );
        });
    }
    let mut proxies = [Proxy::new(1, true), Proxy::new(2, true)];
    (0..2 * IN_FLIGHT).for_each(|_| proxies[0].request(Chats::New));
    group.bench_function("20 own requests, sent", |bencher| {
        bencher.iter_custom(|times| {
            let mut took = Duration::ZERO;
            for _ in 0..times {
                let [proxy, other] = &mut proxies;
                (0..REQUESTS).for_each(|_| proxy.request(Chats::New));
                let begin = Instant::now();
                let sent = black_box(proxy.sync());
                took += begin.elapsed();
                // A proxy without others syncs more rarely.
                other.request(Chats::New);
                let messages = [sent, other.sync()].map(message);
                let [sent, of_other] = messages;
                proxy.answer(vec![of_other]);
                other.answer(vec![sent]);
            }
            took
        });
    });
    let mut proxy = Proxy::new(1, true);
    let mut others: Vec<_> = (2..=PROXIES).map(|number| Proxy::new(number, true)).collect();
    group.bench_function("60 requests of three others, applied", |bencher| {
        bencher.iter_custom(|times| {
            let mut took = Duration::ZERO;
            for _ in 0..times {
                let feed = feed(round(&mut others, Chats::New));
                proxy.sync();
                let begin = Instant::now();
                proxy.answer_bytes(black_box(feed));
                took += begin.elapsed();
            }
            took
        });
    });
    group.finish();
}

criterion_group!(benches, costs);
criterion_main!(benches);
