//! The conversations of the study with two real vLLM (`make bench-prefixes`), for clients that wait for each
//! response.

use super::Draw;
use endpoint_picker::rng::Rng;
use metrics_agent_replay::simulation::request::{Segment, SimulatedRequest};
use std::sync::Arc;

/// Conversations of which clients take one at random, ask its next question, and put it back with the
/// response.
///
/// They begin with one of three system prompts of 480 tokens, and every third names one of three adapters.
/// Questions have 160 tokens, responses 16, and a conversation of 2 200 tokens is replaced by a new one.
#[derive(Debug)]
pub struct StudyConversations {
    draw: Draw,
    system_prompts: Vec<Segment>,
    adapters: Vec<Arc<str>>,
    waiting: Vec<Conversation>,
    /// Conversations that have begun.
    begun: usize,
}

/// A conversation up to its next question.
#[derive(Clone, Debug)]
pub struct Conversation {
    adapter: Option<Arc<str>>,
    history: Vec<Segment>,
}

const SYSTEM_PROMPTS: usize = 3;
const ADAPTERS: usize = 3;
const SYSTEM_TOKENS: u32 = 480;
const QUESTION_TOKENS: u32 = 160;
const ANSWER_TOKENS: u32 = 16;
const MAX_TOKENS: u32 = 2_200;

impl StudyConversations {
    /// This many conversations at a time.
    pub(in crate::cell) fn new(seed: u64, conversations: usize) -> Self {
        let mut draw = Draw::new(seed);
        let system_prompts = (0..SYSTEM_PROMPTS).map(|_| draw.text(SYSTEM_TOKENS)).collect();
        let adapters = (0..ADAPTERS).map(|number| format!("adapter-{number}").into()).collect();
        let mut all = Self { draw, system_prompts, adapters, waiting: Vec::new(), begun: 0 };
        (0..conversations).for_each(|_| all.begin());
        all
    }

    /// Takes a conversation out, and its next request. There have to be more than are taken at once.
    pub fn take(&mut self) -> (Conversation, Arc<SimulatedRequest>) {
        let at = self.draw.rng.below(self.waiting.len());
        let mut conversation = self.waiting.swap_remove(at);
        conversation.history.push(self.draw.text(QUESTION_TOKENS));
        let answer = self.draw.text(ANSWER_TOKENS);
        let adapter = conversation.adapter.clone();
        let request = SimulatedRequest::new(adapter, conversation.history.clone(), answer);
        conversation.history.push(answer);
        (conversation, Arc::new(request))
    }

    /// Puts a conversation back whose request was answered, or begins another one in its place.
    pub fn put_back(&mut self, conversation: Conversation) {
        let tokens: u32 = conversation.history.iter().map(|segment| segment.tokens).sum();
        if tokens >= MAX_TOKENS {
            self.begin();
        } else {
            self.waiting.push(conversation);
        }
    }

    fn begin(&mut self) {
        let drawn = self.draw.rng.below(ADAPTERS);
        let adapter = self.begun.is_multiple_of(3).then(|| Arc::clone(&self.adapters[drawn]));
        self.begun += 1;
        let system = self.system_prompts[self.draw.rng.below(SYSTEM_PROMPTS)];
        self.waiting.push(Conversation { adapter, history: vec![system] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_grows_until_it_is_long_and_a_third_of_them_names_adapters() {
        let mut all = StudyConversations::new(1, 24);
        let named = all.waiting.iter().filter(|conversation| conversation.adapter.is_some());
        assert_eq!(named.count(), 8);
        all.waiting.truncate(1);
        let mut prompts = Vec::new();
        for _ in 0..11 {
            let (conversation, request) = all.take();
            prompts.push(request.work().prompt_tokens());
            all.put_back(conversation);
        }
        assert_eq!((prompts[0], prompts[1]), (640, 816));
        assert_eq!((prompts[9], prompts[10]), (640 + 9 * 176, 640), "the eleventh begins another one");
        assert_eq!(all.waiting.len(), 1);
    }
}
