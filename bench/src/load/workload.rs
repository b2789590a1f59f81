//! Three workloads, drawn from a seed.

use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_model_server::{BatchRequest, MODEL, ServiceTimes, TOKEN_BYTES};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Tokens of an answer: at least this many, and at most three times as many. No picker knows the number.
const LEAST_ANSWER: usize = 32;

const SYSTEM_PROMPTS: usize = 96;
const SYSTEM_TOKENS: usize = 1024;
const QUESTION_TOKENS: usize = 64;

const CONVERSATIONS: usize = 320;
const FIRST_TOKENS: usize = 256;
const TURN_TOKENS: usize = 96;
const MOST_TURNS: usize = 8;

const ADAPTERS: usize = 48;
const ADAPTER_PROMPT_TOKENS: usize = 256;

/// The property that requests share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Few long system prompts, the popular ones more often, and a short question behind each.
    SystemPrompts,
    /// Conversations that grow with each turn.
    Conversations,
    /// Many adapters, a few of which get most requests.
    Adapters,
}

/// One chat request.
#[derive(Clone, Debug)]
pub(crate) struct ChatSpec {
    model: String,
    messages: Value,
    answer_tokens: usize,
    session: Option<String>,
}

/// A sequence of requests; equal seeds give equal ones.
#[derive(Debug)]
pub(crate) struct Requests {
    workload: Workload,
    rng: SplitMix64,
    system_prompts: Vec<String>,
    /// The one whose last turn is oldest comes first.
    conversations: VecDeque<Conversation>,
    /// Conversations so far.
    begun: usize,
}

#[derive(Debug)]
struct Conversation {
    /// No other has it.
    number: usize,
    messages: Vec<Value>,
    turns: usize,
}

impl Workload {
    pub(crate) const ALL: [Self; 3] = [Self::SystemPrompts, Self::Conversations, Self::Adapters];

    /// The servers it is sent to. Times are those of a model of 8 billion parameters on one large accelerator, as orders of
    /// magnitude: a step of some 10 ms, 20 000 prompt tokens a second. Caches are small, as the prompts are few.
    pub(crate) fn service_times(self) -> ServiceTimes {
        let times = ServiceTimes {
            max_running: 16,
            step: Duration::from_millis(10),
            step_per_sequence: Duration::from_micros(300),
            prefill_per_token: Duration::from_micros(50),
            max_batched_tokens: 2048,
            kv_blocks: 2048,
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
    pub(crate) fn rules(self) -> &'static str {
        if self == Self::Adapters { "lora" } else { "default" }
    }

    pub(crate) fn requests(self, seed: u64) -> Requests {
        let mut rng = SplitMix64::new(seed);
        let system_prompts = (0..SYSTEM_PROMPTS).map(|_| text(&mut rng, SYSTEM_TOKENS)).collect();
        let mut conversations = VecDeque::new();
        for number in 0..CONVERSATIONS {
            // Some are older than others, as at any moment.
            let mut conversation = Conversation { number, messages: Vec::new(), turns: 0 };
            for _ in 0..rng.below(MOST_TURNS) {
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
    pub(crate) fn next(&mut self) -> ChatSpec {
        let Self { workload, rng, .. } = self;
        let answer_tokens = LEAST_ANSWER + rng.below(2 * LEAST_ANSWER + 1);
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
        ChatSpec { model, messages, answer_tokens, session }
    }

    /// The number of a conversation and its next turn: one of those that have rested longest, or the first turn of a new one.
    fn next_turn(&mut self) -> (usize, Vec<Value>) {
        let rng = &mut self.rng;
        let chosen = rng.below(self.conversations.len() / 2);
        let mut conversation = self.conversations.remove(chosen).expect("there are as many");
        if conversation.turns == MOST_TURNS {
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
        self.messages.push(message("assistant", &text(rng, 2 * LEAST_ANSWER)));
    }
}

impl ChatSpec {
    /// The session that the client names.
    pub(crate) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    pub(crate) fn body(&self) -> Value {
        let Self { model, messages, answer_tokens, .. } = self;
        json!({"model": model, "messages": messages, "max_tokens": answer_tokens, "stream": true})
    }

    /// The work that it is for a server.
    pub(crate) fn batch_request(&self) -> BatchRequest {
        let adapter = Some(self.model.as_str()).filter(|model| *model != MODEL);
        BatchRequest::new(adapter, self.messages.to_string().as_bytes(), self.answer_tokens as u64)
    }
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// One of these ranks, the first most often: the frequency falls with the rank to the power of `steepness` (Zipf's law).
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
                .map(|letter| char::from(b'a' + u8::try_from(letter).expect("below 26"))),
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
            (0..20).map(|_| requests.next().body().to_string()).collect::<Vec<_>>()
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
            let messages = requests.next().messages;
            let turns = messages.as_array().unwrap();
            let before = turns.len().checked_sub(2).map(|length| json!(turns[..length]));
            longer += usize::from(before.is_some_and(|before| seen.contains(&before)));
            seen.push(messages);
        }
        assert!(longer > CONVERSATIONS, "{longer}");
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
