//! Three workloads drawn from a seed, and times of requests.

use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_model_server::MODEL;
use metrics_agent_server_model::{Allocation, BatchRequest, ServiceTimes, TOKEN_BYTES};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Minimum of the tokens of a response; the maximum is three times the number. No picker knows the number.
const MIN_RESPONSE: usize = 32;

const SYSTEM_PROMPTS: usize = 96;
const SYSTEM_TOKENS: usize = 1024;
const QUESTION_TOKENS: usize = 64;

const CONVERSATIONS: usize = 320;
const FIRST_TOKENS: usize = 256;
const TURN_TOKENS: usize = 96;
const MAX_TURNS: usize = 8;

const ADAPTERS: usize = 48;
const ADAPTER_PROMPT_TOKENS: usize = 256;

/// The property that requests share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Few long system prompts, the popular ones more often, and a short question behind each.
    SystemPrompts,
    /// Conversations that grow with each turn.
    Conversations,
    /// Many adapters, a few of which get most requests.
    Adapters,
}

/// One chat request.
#[derive(Clone, Debug)]
pub struct ChatSpec {
    model: String,
    messages: Value,
    response_tokens: usize,
    session: Option<String>,
}

/// A sequence of requests; equal seeds give equal ones.
#[derive(Debug)]
pub struct Requests {
    workload: Workload,
    rng: SplitMix64,
    system_prompts: Vec<String>,
    /// The conversation with the oldest last turn comes first.
    conversations: VecDeque<Conversation>,
    /// Conversations so far.
    begun: usize,
}

#[derive(Debug)]
struct Conversation {
    /// Unique.
    number: usize,
    messages: Vec<Value>,
    turns: usize,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Self; 3] = [Self::SystemPrompts, Self::Conversations, Self::Adapters];

    /// The servers it is sent to. Times are those of a model of 8 billion parameters on one large
    /// accelerator, as orders of magnitude: a step of some 10 ms, 20 000 prompt tokens a second. Caches are
    /// small, as the prompts are few.
    pub fn service_times(self) -> ServiceTimes {
        let times = ServiceTimes {
            max_running: 16,
            step: Duration::from_millis(10),
            step_per_sequence: Duration::from_micros(300),
            step_per_context_token: Duration::ZERO,
            prefill_per_token: Duration::from_micros(50),
            doubling_context: None,
            reads_apart: false,
            max_batched_tokens: 2048,
            kv_blocks: 2048,
            allocation: Allocation::AtOnce,
            max_loras: 0,
            lora_load: Duration::ZERO,
            stream_interval: 16,
        };
        match self {
            Self::SystemPrompts => times,
            Self::Conversations => ServiceTimes { kv_blocks: 4096, ..times },
            Self::Adapters => ServiceTimes { max_loras: 6, lora_load: Duration::from_millis(40), ..times },
        }
    }

    /// The rules of both pickers, by the name of their configuration in `bench/parity/configs`.
    pub fn rules(self) -> &'static str {
        if self == Self::Adapters { "lora" } else { "default" }
    }

    /// The requests of a seed.
    pub fn requests(self, seed: u64) -> Requests {
        let mut rng = SplitMix64::new(seed);
        let system_prompts = (0..SYSTEM_PROMPTS).map(|_| text(&mut rng, SYSTEM_TOKENS)).collect();
        let mut conversations = VecDeque::new();
        for number in 0..CONVERSATIONS {
            // Conversations have different ages, as at any time.
            let mut conversation = Conversation { number, messages: Vec::new(), turns: 0 };
            for _ in 0..rng.below(MAX_TURNS) {
                conversation.ask(&mut rng);
                conversation.answer(&mut rng);
            }
            conversations.push_back(conversation);
        }
        Requests { workload: self, rng, system_prompts, conversations, begun: CONVERSATIONS }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SystemPrompts => "shared system prompts",
            Self::Conversations => "conversations",
            Self::Adapters => "skewed LoRA",
        })
    }
}

impl Requests {
    /// Draws the next request.
    pub fn draw(&mut self) -> ChatSpec {
        let Self { workload, rng, .. } = self;
        let response_tokens = MIN_RESPONSE + rng.below(2 * MIN_RESPONSE + 1);
        let mut session = None;
        let (model, messages) = match workload {
            Workload::SystemPrompts => {
                let prompt = &self.system_prompts[ranked(rng, SYSTEM_PROMPTS, 0.5)];
                let question = text(rng, QUESTION_TOKENS);
                (MODEL.to_owned(), json!([message("system", prompt), message("user", &question)]))
            }
            Workload::Conversations => {
                let (number, messages) = self.next_turn();
                session = Some(format!("conversation-{number}"));
                (MODEL.to_owned(), json!(messages))
            }
            Workload::Adapters => {
                let adapter = format!("adapter-{}", ranked(rng, ADAPTERS, 1.0));
                (adapter, json!([message("user", &text(rng, ADAPTER_PROMPT_TOKENS))]))
            }
        };
        ChatSpec { model, messages, response_tokens, session }
    }

    /// The number of a conversation and its next turn. It is one of the half that has rested longest; after
    /// its last turn a new one begins.
    fn next_turn(&mut self) -> (usize, Vec<Value>) {
        let rng = &mut self.rng;
        let chosen = rng.below(self.conversations.len() / 2);
        let mut conversation = self.conversations.remove(chosen).unwrap();
        if conversation.turns == MAX_TURNS {
            conversation = Conversation { number: self.begun, messages: Vec::new(), turns: 0 };
            self.begun += 1;
        }
        conversation.ask(rng);
        let turn = (conversation.number, conversation.messages.clone());
        conversation.answer(rng);
        self.conversations.push_back(conversation);
        turn
    }
}

impl Conversation {
    fn ask(&mut self, rng: &mut SplitMix64) {
        let tokens = if self.turns == 0 { FIRST_TOKENS } else { TURN_TOKENS };
        self.messages.push(message("user", &text(rng, tokens)));
        self.turns += 1;
    }

    fn answer(&mut self, rng: &mut SplitMix64) {
        self.messages.push(message("assistant", &text(rng, 2 * MIN_RESPONSE)));
    }
}

impl ChatSpec {
    /// The session that the client names.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The body.
    pub fn body(&self) -> Value {
        let Self { model, messages, response_tokens, .. } = self;
        json!({"model": model, "messages": messages, "max_tokens": response_tokens, "stream": true})
    }

    /// Its work for a server.
    pub fn batch_request(&self) -> BatchRequest {
        let adapter = Some(self.model.as_str()).filter(|model| *model != MODEL);
        BatchRequest::new(adapter, self.messages.to_string().as_bytes(), self.response_tokens as u64)
    }
}

/// The times of a Poisson process.
pub fn arrival_times(per_second: f64, lasting: Duration, seed: u64) -> Vec<Duration> {
    let mut rng = SplitMix64::new(seed);
    let mut times = Vec::new();
    let mut at = 0.0;
    loop {
        at -= (1.0 - rng.unit()).ln() / per_second;
        if at >= lasting.as_secs_f64() {
            return times;
        }
        times.push(Duration::from_secs_f64(at));
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// One of these ranks, the first most often: the frequency falls with the rank to the power of `steepness`
/// (Zipf's law).
fn ranked(rng: &mut SplitMix64, ranks: usize, steepness: f64) -> usize {
    let weight = |rank: usize| (rank as f64 + 1.0).powf(-steepness);
    let mut left = rng.unit() * (0..ranks).map(weight).sum::<f64>();
    (0..ranks - 1)
        .find(|&rank| {
            left -= weight(rank);
            left < 0.0
        })
        .unwrap_or(ranks - 1)
}

/// This many random tokens: three letters and a space each.
fn text(rng: &mut SplitMix64, tokens: usize) -> String {
    let mut text = String::with_capacity(tokens * TOKEN_BYTES);
    for _ in 0..tokens {
        let letters = rng.below(26 * 26 * 26);
        text.extend(
            [letters / 676, letters / 26 % 26, letters % 26]
                .map(|letter| char::from(b'a' + u8::try_from(letter).unwrap())),
        );
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_requests_and_others_do_not() {
        let first = |workload: Workload, seed| {
            let mut requests = workload.requests(seed);
            (0..20).map(|_| requests.draw().body().to_string()).collect::<Vec<_>>()
        };
        for workload in Workload::ALL {
            assert_eq!(first(workload, 7), first(workload, 7));
            assert_ne!(first(workload, 7), first(workload, 8));
        }
    }

    #[test]
    fn each_turn_of_a_conversation_repeats_the_turns_before() {
        let mut requests = Workload::Conversations.requests(1);
        let mut seen: Vec<Value> = Vec::new();
        let mut longer = 0;
        for _ in 0..4 * CONVERSATIONS {
            let messages = requests.draw().messages;
            let turns = messages.as_array().unwrap();
            let before = turns.len().checked_sub(2).map(|length| json!(turns[..length]));
            longer += usize::from(before.is_some_and(|before| seen.contains(&before)));
            seen.push(messages);
        }
        assert!(longer > CONVERSATIONS, "{longer}");
    }

    #[test]
    fn requests_come_at_their_rate() {
        let times = arrival_times(50.0, Duration::from_secs(40), 2);
        assert!((1_850..2_150).contains(&times.len()), "{}", times.len());
        assert!(times.is_sorted());
    }

    #[test]
    fn the_first_rank_comes_most_often() {
        let mut rng = SplitMix64::new(3);
        let mut counts = [0; 4];
        for _ in 0..10_000 {
            counts[ranked(&mut rng, 4, 1.0)] += 1;
        }
        // 1, 1/2, 1/3 and 1/4 of 12/25 of them.
        let expected = [4_800, 2_400, 1_600, 1_200];
        assert!(
            counts.iter().zip(expected).all(|(count, expected): (&i32, i32)| (count - expected).abs() < 200),
            "{counts:?}"
        );
    }
}
