//! The requests: conversations that are continued until they are long.

use crate::vllm::ADAPTERS;
use crate::words::words;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_model_server::MODEL;
use serde_json::{Value, json};

/// Conversations at a time.
const CONVERSATIONS: usize = 24;
/// Different system prompts.
const SYSTEM_PROMPTS: usize = 3;
/// Words of a system prompt and of a question. A word is a token.
const SYSTEM_WORDS: usize = 480;
const QUESTION_WORDS: usize = 160;
/// Tokens of a response.
const RESPONSE_TOKENS: u64 = 16;
/// A conversation ends with this number of tokens, and another one begins.
const MAX_TOKENS: u64 = 2_200;

/// The conversations that wait for their next question.
#[derive(Debug)]
pub(super) struct Conversations {
    rng: SplitMix64,
    system_prompts: Vec<String>,
    waiting: Vec<Conversation>,
    /// Conversations that have begun.
    begun: usize,
}

/// A conversation up to a question.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    /// The model, or an adapter.
    model: &'static str,
    /// It is sent to `/v1/responses`, which then knows nothing of earlier turns.
    is_of_responses: bool,
    messages: Vec<Value>,
}

impl Conversations {
    /// Equal seeds give equal conversations.
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        let system_prompts = (0..SYSTEM_PROMPTS).map(|_| words(&mut rng, SYSTEM_WORDS)).collect();
        let mut all = Self { rng, system_prompts, waiting: Vec::new(), begun: 0 };
        (0..CONVERSATIONS).for_each(|_| all.begin());
        all
    }

    /// Takes a conversation that waits out, at random. `None`: all of them have been taken.
    pub(super) fn take(&mut self) -> Option<Conversation> {
        let at = self.rng.below(self.waiting.len());
        (at < self.waiting.len()).then(|| self.waiting.swap_remove(at))
    }

    /// Continues a conversation that was taken, whose prompt has this number of tokens, or begins another one
    /// in its place.
    pub(super) fn continue_with(&mut self, mut conversation: Conversation, response: &str, prompt: u64) {
        if prompt + RESPONSE_TOKENS >= MAX_TOKENS {
            self.begin();
        } else {
            // The template writes a blank before a message.
            conversation.messages.push(json!({"role": "assistant", "content": response.trim_start()}));
            self.ask(conversation);
        }
    }

    /// Puts a conversation back as it was taken.
    pub(super) fn put_back(&mut self, conversation: Conversation) {
        self.waiting.push(conversation);
    }

    fn begin(&mut self) {
        let adapter = self.rng.below(ADAPTERS.len());
        let model = if self.begun.is_multiple_of(3) { ADAPTERS[adapter] } else { MODEL };
        let is_of_responses = self.begun.is_multiple_of(2);
        self.begun += 1;
        let system = &self.system_prompts[self.rng.below(SYSTEM_PROMPTS)];
        let messages = vec![json!({"role": "system", "content": system})];
        self.ask(Conversation { model, is_of_responses, messages });
    }

    fn ask(&mut self, mut conversation: Conversation) {
        let question = words(&mut self.rng, QUESTION_WORDS);
        conversation.messages.push(json!({"role": "user", "content": question}));
        self.waiting.push(conversation);
    }
}

impl Conversation {
    /// The path and the body of the request.
    pub(super) fn request(&self) -> (&'static str, Value) {
        let Self { model, is_of_responses, messages } = self;
        if *is_of_responses {
            let body = json!({
                "model": model, "input": messages, "max_output_tokens": RESPONSE_TOKENS, "temperature": 0,
                "stream": true, "store": false,
            });
            return ("/v1/responses", body);
        }
        let body = json!({
            "model": model, "messages": messages, "max_tokens": RESPONSE_TOKENS, "temperature": 0,
            "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
        });
        ("/v1/chat/completions", body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_has_its_response_and_the_next_question_until_it_is_long() {
        let mut all = Conversations::new(1);
        let taken = all.take().unwrap();
        let before = taken.messages.clone();
        all.continue_with(taken, " bad bed", 650);
        let continued = all.waiting.last().unwrap().messages.clone();
        assert_eq!(continued[..2], before[..]);
        assert_eq!(continued[2], json!({"role": "assistant", "content": "bad bed"}));
        let (taken, begun) = (all.take().unwrap(), all.begun);
        all.continue_with(taken, "bad", MAX_TOKENS - RESPONSE_TOKENS);
        assert_eq!((all.begun, all.waiting.len()), (begun + 1, CONVERSATIONS));
        assert_eq!(all.waiting.last().unwrap().messages.len(), 2);
    }

    #[test]
    fn a_third_of_the_conversations_name_adapters() {
        let all = Conversations::new(1);
        assert_eq!(all.waiting.iter().filter(|it| it.model != MODEL).count(), CONVERSATIONS / 3);
    }
}
