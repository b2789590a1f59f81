//! Conversations stay at the server that has their prefix cached, whichever API their clients use.
//!
//! Two servers read 10 000 tokens per second, one request at a time, and remember prefixes. Twelve
//! conversations of ten turns are held at once, in simulated time: 6000 tokens and 400 more with each turn. A
//! run holds them again, and what was learnt in the runs before stays.

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::testing::picker_config;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, Request, START, snapshot, topology};
use crate::latency::slopes;

const CONVERSATIONS: usize = 12;
const TURNS: usize = 10;
const SERVERS: usize = 2;

/// Time from a request's arrival at its server to the events that announce a stream.
const ANNOUNCED: Duration = Duration::from_millis(17);
/// Time from the first token to the end.
const REST: Duration = Duration::from_millis(20);

const DELTA: &str = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n";

/// The requests and streams of one kind of clients.
#[derive(Clone, Copy, Debug)]
struct Client {
    path: &'static str,
    /// The chunk that comes before the server has read the prompt; empty: none.
    announcement: &'static str,
    first: &'static str,
}

const CHATS: Client = Client {
    path: "/v1/chat/completions",
    announcement: "",
    first: "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}]}\n\n",
};
const RESPONSES: Client = Client {
    path: "/v1/responses",
    announcement: "data: {\"type\":\"response.created\",\"response\":{}}\n\n\
                   data: {\"type\":\"response.in_progress\",\"response\":{}}\n\n",
    first: DELTA,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Sent,
    Announced,
    First,
    Ended,
}

/// The conversations of all runs.
struct World {
    fixture: Fixture,
    topology: Arc<Topology>,
    now: Duration,
    runs: usize,
}

#[derive(Default)]
struct Server {
    free_at: Duration,
    /// Requests that wait or run.
    requests: u64,
    /// Tokens of each conversation in the prefix cache.
    cached: HashMap<usize, usize>,
}

impl World {
    fn new() -> Self {
        let picker_config = Some(picker_config(&[("expected-latency-scorer", None)]));
        let policy = v1::Policy { picker_config, ..v1::Policy::default() };
        let fixture = Fixture::without_snapshot(&json!({}));
        let topology = Arc::new(Topology::compile(topology(&[1, 2], policy)).unwrap());
        Self { fixture, topology, now: START, runs: 0 }
    }

    /// Sends the next turn of a conversation. Returns its request, and the place of its server.
    fn send(
        &mut self,
        client: Client,
        conversation: usize,
        turn: usize,
        waiting: &[u64],
    ) -> (Request, usize) {
        let view = PoolView::new(Arc::clone(&self.topology), snapshot(waiting), self.now);
        self.fixture.pool.adopt(Arc::new(view));
        let tokens = 6000 + 400 * turn;
        let token =
            |token: usize| format!("{:02x}{:02x}", conversation + CONVERSATIONS * self.runs, token % 251);
        let text: String = (0..tokens).map(token).collect();
        let input = json!([{"role": "user", "content": text}]);
        let name = if client.path == RESPONSES.path { "input" } else { "messages" };
        let mut request = self.fixture.request(client.path, &[]);
        request.proxy.now.set(self.now);
        request.head(&mut self.fixture);
        request.body(&mut self.fixture, json!({"model": "m", name: input}).to_string().as_bytes(), true);
        let server = usize::from(request.destination().unwrap().as_bytes()[7] - b'1');
        (request, server)
    }

    /// Holds all conversations once. Returns the number of turns that stay at the server of the turn before.
    fn run(&mut self, client: Client) -> usize {
        let mut servers: [Server; SERVERS] = Default::default();
        let mut open: HashMap<usize, (Request, usize)> = HashMap::new();
        let mut last = [None; CONVERSATIONS];
        let mut turns = [0; CONVERSATIONS];
        let mut stayed = 0;
        let begins = (0..CONVERSATIONS).map(|n| (self.now + Duration::from_millis(40 * n as u64), n));
        let mut events: BinaryHeap<_> = begins.map(|(at, n)| Reverse((at, n, Event::Sent))).collect();
        while let Some(Reverse((at, conversation, event))) = events.pop() {
            self.now = at;
            if event == Event::Sent {
                let waiting: Vec<u64> = servers.iter().map(|it| it.requests.saturating_sub(1)).collect();
                let turn = turns[conversation];
                let (mut request, place) = self.send(client, conversation, turn, &waiting);
                stayed += usize::from(last[conversation] == Some(place));
                last[conversation] = Some(place);
                let server = &mut servers[place];
                let tokens = 6000 + 400 * turn;
                let cached = server.cached.insert(conversation, tokens).unwrap_or(0);
                let first = server.free_at.max(at) + Duration::from_micros(100 * (tokens - cached) as u64);
                server.free_at = first + REST;
                server.requests += 1;
                let head = [(":status", "200"), ("content-type", "text/event-stream")];
                let number = if place == 0 { 1 } else { 2 };
                request.answer(&mut self.fixture, number, &head);
                open.insert(conversation, (request, place));
                if !client.announcement.is_empty() {
                    events.push(Reverse((at + ANNOUNCED, conversation, Event::Announced)));
                }
                events.push(Reverse((first.max(at + ANNOUNCED), conversation, Event::First)));
                events.push(Reverse((first.max(at + ANNOUNCED) + REST, conversation, Event::Ended)));
                continue;
            }
            let (request, place) = open.get_mut(&conversation).unwrap();
            request.proxy.now.set(at);
            match event {
                Event::Sent | Event::Announced => {
                    request.chunk(&mut self.fixture, client.announcement, false);
                }
                Event::First => {
                    request.chunk(&mut self.fixture, client.first, false);
                }
                Event::Ended => {
                    request.chunk(&mut self.fixture, "", true);
                    servers[*place].requests -= 1;
                    open.remove(&conversation);
                    turns[conversation] += 1;
                    if turns[conversation] < TURNS {
                        events.push(Reverse((at + Duration::from_millis(1), conversation, Event::Sent)));
                    }
                }
            }
        }
        self.runs += 1;
        stayed
    }
}

#[test]
fn conversations_by_the_responses_api_stay_and_teach_as_chats_do() {
    let hold = |client| {
        let mut world = World::new();
        let stayed = (0..3).map(|_| world.run(client)).last().unwrap();
        (stayed, slopes(&world.fixture).per_token)
    };
    let (chats, responses) = (hold(CHATS), hold(RESPONSES));
    assert!(chats.0 >= 95, "{chats:?}");
    assert_eq!(responses, chats);
    // Events that announce a stream come after 17 ms. No server can read these prompts in that time, so as
    // outputs they would teach nothing.
    let (_, announced) = hold(Client { announcement: DELTA, ..RESPONSES });
    assert!((announced - responses.1).abs() > 0.01, "{announced} and {responses:?} ms per token");
}
