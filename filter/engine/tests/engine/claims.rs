//! Numbers that a client claims in front of `expected-latency-scorer`: they are no load, and nothing is
//! learnt from them.

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::plugin::Instance;
use endpoint_picker::state::latency::LatencyState;
use endpoint_picker_engine::testing::picker_config;
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{CHAT, Fixture, Request, START, topology};

/// A PNG's header that claims 2^31 × 2^31 pixels.
pub(crate) const HUGE: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUoAAAACAAAAACAIAAAA=";

const STREAM: &[(&str, &str)] = &[(":status", "200"), ("content-type", "text/event-stream")];

const SERVERS: u8 = 4;

/// Tokens that a server reads in a millisecond.
const TOKENS_PER_MS: u64 = 10;

/// Tokens of a conversation's first turn, and those that each further turn adds.
const FIRST: u64 = 6_000;
const FURTHER: u64 = 400;

const CONVERSATIONS: u64 = 8;

/// Turns of each conversation.
const TURNS: u64 = 18;

/// Milliseconds between two turns of different conversations: three in a second.
const APART: u64 = 333;

/// Milliseconds until a server sends the first chunk of a response to a hostile request, whose pictures it
/// does not read.
const HOSTILE: u64 = 250;

/// A hostile request: the header with its name and value, and the blocks of its only message.
#[derive(Clone, Copy)]
struct Attack {
    header: (&'static str, &'static str),
    blocks: fn() -> Vec<serde_json::Value>,
}

fn images() -> Vec<serde_json::Value> {
    vec![json!({"type": "image_url", "image_url": {"url": HUGE}}); 20]
}

fn video() -> Vec<serde_json::Value> {
    vec![json!({"type": "video_url", "video_url": {"url": "http://example.com/a.mp4"}})]
}

fn audio() -> Vec<serde_json::Value> {
    vec![json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})]
}

const ATTACKS: [Attack; 4] = [
    Attack { header: ("x-a", "b"), blocks: images },
    Attack { header: ("x-llm-d-video-duration-seconds", "1e300"), blocks: video },
    Attack { header: ("x-llm-d-video-resolution", "4294967295x4294967295"), blocks: video },
    Attack { header: ("x-llm-d-video-duration-seconds", "1e300"), blocks: audio },
];

enum Event {
    /// The next turn of a conversation.
    Turn {
        conversation: u64,
        turn: u64,
    },
    Attack,
    /// The first chunk of a response, from this server.
    First {
        request: Box<Request>,
        server: u8,
        lasts: u64,
    },
    End {
        request: Box<Request>,
    },
}

/// Servers that read prompts one after another and keep what they have read.
struct Trial {
    fixture: Fixture,
    events: BTreeMap<(u64, usize), Event>,
    planned: usize,
    free_at: [u64; SERVERS as usize],
    cached: BTreeMap<(u8, u64), u64>,
    /// The server of each conversation's last turn.
    last: BTreeMap<u64, u8>,
    /// Turns that went to another server than the turn before, and those that went to the same.
    left: usize,
    stayed: usize,
    attack: Option<Attack>,
    greatest_load: u64,
}

impl Trial {
    fn run(attack: Option<Attack>) -> Self {
        let picker_config = Some(picker_config(&[("expected-latency-scorer", None)]));
        let mut fixture = Fixture::without_snapshot(&json!({}));
        let endpoints: Vec<u8> = (1..=SERVERS).collect();
        let policy = v1::Policy { picker_config, ..v1::Policy::default() };
        fixture.adopt(topology(&endpoints, policy), &[0; SERVERS as usize]);
        let mut trial = Self {
            fixture,
            events: BTreeMap::new(),
            planned: 0,
            free_at: [0; SERVERS as usize],
            cached: BTreeMap::new(),
            last: BTreeMap::new(),
            left: 0,
            stayed: 0,
            attack,
            greatest_load: 0,
        };
        for conversation in 0..CONVERSATIONS {
            trial.plan(conversation * APART, Event::Turn { conversation, turn: 0 });
        }
        trial.plan(100, Event::Attack);
        while let Some(((now, _), event)) = trial.events.pop_first() {
            trial.take(now, event);
        }
        trial
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.events.insert((at, self.planned), event);
        self.planned += 1;
    }

    /// Sends a chat with these blocks. Returns it with the number of its server.
    fn send(
        &mut self,
        now: u64,
        headers: &[(&str, &str)],
        blocks: &[serde_json::Value],
    ) -> (Box<Request>, u8) {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": blocks}]}).to_string();
        let mut request = self.fixture.request(CHAT, headers);
        request.proxy.now.set(START + Duration::from_millis(now));
        request.head(&mut self.fixture);
        request.body(&mut self.fixture, body.as_bytes(), true);
        let server = request.destination().unwrap().as_bytes()[7] - b'0';
        let loads = self.fixture.loads();
        self.greatest_load = loads.iter().map(|load| load.tokens).fold(self.greatest_load, u64::max);
        (Box::new(request), server)
    }

    fn take(&mut self, now: u64, event: Event) {
        match event {
            Event::Turn { conversation, turn } => self.turn(now, conversation, turn),
            Event::Attack => self.attack(now),
            Event::First { mut request, server, lasts } => {
                request.proxy.now.set(START + Duration::from_millis(now));
                request.answer(&mut self.fixture, server, STREAM);
                request.chunk(
                    &mut self.fixture,
                    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n",
                    false,
                );
                self.plan(now + lasts, Event::End { request });
            }
            Event::End { mut request } => {
                request.proxy.now.set(START + Duration::from_millis(now));
                request.chunk(&mut self.fixture, "data: [DONE]\n\n", true);
            }
        }
    }

    fn turn(&mut self, now: u64, conversation: u64, turn: u64) {
        let tokens = FIRST + turn * FURTHER;
        let text = format!("{conversation:04}").repeat(usize::try_from(tokens).unwrap());
        let (request, server) = self.send(now, &[], &[json!({"type": "text", "text": text})]);
        match self.last.insert(conversation, server) {
            Some(last) if last == server => self.stayed += 1,
            Some(_) => self.left += 1,
            None => {}
        }
        let cached = self.cached.insert((server, conversation), tokens).unwrap_or(0);
        let free_at = &mut self.free_at[usize::from(server) - 1];
        let first = now.max(*free_at) + 5 + (tokens - cached) / TOKENS_PER_MS;
        *free_at = first;
        self.plan(first, Event::First { request, server, lasts: 300 });
        if turn < TURNS {
            self.plan(now + CONVERSATIONS * APART, Event::Turn { conversation, turn: turn + 1 });
        }
    }

    fn attack(&mut self, now: u64) {
        let Some(Attack { header, blocks }) = self.attack else { return };
        let (request, server) = self.send(now, &[header], &blocks());
        self.plan(now + HOSTILE, Event::First { request, server, lasts: 50 });
        if now < TURNS * CONVERSATIONS * APART {
            self.plan(now + APART, Event::Attack);
        }
    }

    /// Milliseconds for a token, as the proxy has learnt them.
    fn per_token(&self) -> f64 {
        let view = self.fixture.pool.view();
        let keys: Vec<u64> = view.topology().pipeline.plugins().iter().map(Instance::key).collect();
        self.fixture.pool.store().read(|ledger| {
            let state = keys.iter().find_map(|&key| ledger.states().of::<LatencyState>(key)).unwrap();
            state.slopes(0.125).per_token
        })
    }
}

#[test]
fn three_claims_a_second_do_not_drive_another_tenant_from_its_cached_prefix() {
    let control = Trial::run(None);
    println!(
        "control: {} of {} leave, {:.4} ms a token",
        control.left,
        control.left + control.stayed,
        control.per_token()
    );
    assert_eq!((control.left, control.stayed), (0, 144));
    for attack in ATTACKS {
        let trial = Trial::run(Some(attack));
        let (left, stayed, per_token) = (trial.left, trial.stayed, trial.per_token());
        println!(
            "{:?}: {left} of {} leave, {per_token:.4} ms a token, greatest load {}",
            attack.header,
            left + stayed,
            trial.greatest_load
        );
        assert_eq!((left, stayed), (0, 144), "{:?}", attack.header);
        assert!((per_token / control.per_token() - 1.0).abs() < 0.1, "{per_token}");
    }
}
