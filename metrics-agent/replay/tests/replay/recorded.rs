//! A record made by the model of servers.

use endpoint_picker::rng::{Rng, SplitMix64};
use metrics_agent_replay::simulation::events::Events;
use metrics_agent_replay::simulation::request::mixed;
use metrics_agent_server_model::{Batch, BatchRequest, ServiceTimes};
use serde_json::json;
use std::time::Duration;

/// Conversations at servers, each turn of which goes to the server with the fewest requests, or mostly to that
/// of the turn before.
pub(crate) struct Recorded<'a> {
    pub(crate) times: ServiceTimes,
    pub(crate) slowness: &'a [f64],
    /// Requests per second, about.
    pub(crate) per_second: f64,
    pub(crate) requests: usize,
    pub(crate) seed: u64,
}

/// Tokens of a block of the record, in blocks of servers.
const BLOCK: usize = 4;

struct Sent {
    conversation: usize,
    at: Duration,
    server: usize,
    input: usize,
    output: usize,
    first_token: Option<Duration>,
}

#[derive(Clone, Default)]
struct Conversation {
    tokens: usize,
    turns: usize,
    server: Option<usize>,
}

enum Event {
    Begin,
    Turn(usize),
    StepEnd(usize),
}

impl Recorded<'_> {
    /// The lines.
    pub(crate) fn lines(&self) -> String {
        let mut rng = SplitMix64::new(self.seed);
        let mut events = Events::new(Duration::ZERO);
        let mut servers: Vec<Batch<usize>> = self.slowness.iter().map(|_| Batch::new(self.times)).collect();
        let mut is_working = vec![false; servers.len()];
        let mut conversations: Vec<Conversation> = Vec::new();
        let mut sent: Vec<Sent> = Vec::new();
        let mut lines =
            vec![json!({"record": "endpoint-picker/1", "started": 0, "block_tokens": 64}).to_string()];
        events.plan(Duration::ZERO, Event::Begin);
        while let Some(event) = events.pop() {
            let now = events.now();
            let mut step = None;
            match event {
                Event::Begin => {
                    let gap = -(1.0 - rng.unit()).ln() / self.per_second * 3.5;
                    if sent.len() < self.requests {
                        events.plan(Duration::from_secs_f64(gap), Event::Begin);
                    }
                    conversations.push(Conversation { tokens: 512, ..Conversation::default() });
                    events.plan(Duration::ZERO, Event::Turn(conversations.len() - 1));
                }
                Event::Turn(number) => {
                    let conversation = &mut conversations[number];
                    let input = conversation.tokens + 40 + rng.below(900);
                    let output = 20 + rng.below(200);
                    let load = |server: &usize| servers[*server].running() + servers[*server].waiting();
                    let least = (0..servers.len()).min_by_key(load).unwrap();
                    let server = conversation.server.filter(|_| rng.below(5) > 0).unwrap_or(least);
                    conversation.server = Some(server);
                    let blocks = (input + output) / 16;
                    let blocks = (0..blocks).map(|block| hash(number, block)).collect();
                    servers[server]
                        .add(BatchRequest::of_blocks(None, input, blocks, output as u64), sent.len());
                    sent.push(Sent {
                        conversation: number,
                        at: now,
                        server,
                        input,
                        output,
                        first_token: None,
                    });
                    step = (!is_working[server]).then_some(server);
                }
                Event::StepEnd(server) => {
                    let mut ended = Vec::new();
                    servers[server].end_step(|&mut request, progress| {
                        if progress.made > 0 {
                            sent[request].first_token.get_or_insert(now);
                        }
                        if progress.is_all {
                            ended.push((request, progress.cached));
                        }
                        true
                    });
                    for (request, cached) in ended {
                        let request = &sent[request];
                        lines.push(line(request, cached, now));
                        let conversation = &mut conversations[request.conversation];
                        conversation.tokens = request.input + request.output;
                        conversation.turns += 1;
                        if conversation.turns < 3 + request.conversation % 4 {
                            let pause = Duration::from_secs_f64(4.0 + 8.0 * rng.unit());
                            events.plan(pause, Event::Turn(request.conversation));
                        }
                    }
                    step = Some(server);
                }
            }
            if let Some(server) = step {
                let time = servers[server].begin_step();
                is_working[server] = time.is_some();
                if let Some(time) = time {
                    events.plan(time.mul_f64(self.slowness[server]), Event::StepEnd(server));
                }
            }
        }
        lines.join("\n")
    }
}

/// A block of a conversation. The first 512 tokens are one of three system prompts.
fn hash(conversation: usize, block: usize) -> u64 {
    let text = if block < 32 { conversation % 3 } else { conversation + 3 };
    mixed(((text as u64) << 24) | block as u64) >> 11
}

fn line(request: &Sent, cached: usize, now: Duration) -> String {
    let milliseconds = |time: Duration| time.saturating_sub(request.at).as_secs_f64() * 1e3;
    let blocks = request.input / 16 / BLOCK;
    let blocks: Vec<u64> =
        (0..blocks).map(|block| hash(request.conversation, block * BLOCK + BLOCK - 1)).collect();
    json!({
        "timestamp": request.at.as_secs_f64() * 1e3,
        "pool": "default",
        "session": format!("{:016x}", request.conversation),
        "input_length": request.input,
        "output_length": request.output,
        "hash_ids": blocks,
        "endpoint": format!("10.0.0.{}:8000", request.server + 1),
        "why": "test",
        "first_token_ms": milliseconds(request.first_token.unwrap()),
        "end_ms": milliseconds(now),
        "outcome": "served",
        "cached_tokens": cached,
    })
    .to_string()
}
