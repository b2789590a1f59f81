//! Requests: conversations whose beginnings they have in common.

use core::time::Duration;

use endpoint_picker::rng::{Rng, SplitMix64};

/// Bytes of a conversation's beginning, those of its own at first, and those that a turn adds.
const COMMON_BYTES: usize = 1024;
const OWN_BYTES: usize = 1024;
const TURN_BYTES: usize = 256;

/// Turns after which a conversation is replaced by another one.
const MAX_TURNS: usize = 12;

/// Conversations for each common beginning.
const CONVERSATIONS_OF_A_BEGINNING: usize = 8;

/// Conversations at the same time.
pub(super) struct Conversations {
    rng: SplitMix64,
    conversations: Vec<Conversation>,
    begun: usize,
}

struct Conversation {
    number: usize,
    turns: usize,
}

impl Conversations {
    /// This many conversations, at different turns.
    pub(super) fn new(count: usize, seed: u64) -> Self {
        let mut workload = Self { rng: SplitMix64::new(seed), conversations: Vec::new(), begun: 0 };
        for _ in 0..count {
            let turns = workload.rng.below(MAX_TURNS);
            let conversation = workload.begin(turns);
            workload.conversations.push(conversation);
        }
        workload
    }

    fn begin(&mut self, turns: usize) -> Conversation {
        self.begun += 1;
        Conversation { number: self.begun, turns }
    }

    /// The prompt of the next turn of any conversation.
    pub(super) fn next_prompt(&mut self) -> String {
        let place = self.rng.below(self.conversations.len());
        if self.conversations[place].turns >= MAX_TURNS {
            self.conversations[place] = self.begin(0);
        }
        let conversation = &mut self.conversations[place];
        conversation.turns += 1;
        conversation.prompt()
    }

    /// The prompts of all conversations so far.
    pub(super) fn prompts(&self) -> impl Iterator<Item = String> {
        self.conversations.iter().map(Conversation::prompt)
    }

    /// From 100 ms to 1 s.
    pub(super) fn service_time(&mut self) -> Duration {
        Duration::from_millis(100 + self.rng.below(900) as u64)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound)
    }
}

impl Conversation {
    fn prompt(&self) -> String {
        let mut prompt = String::new();
        let mut add = |what: usize, turn: usize, bytes: usize| {
            let text = format!("words {what} of turn {turn}, ");
            prompt.push_str(&text.repeat(bytes / text.len() + 1)[..bytes]);
        };
        add(self.number / CONVERSATIONS_OF_A_BEGINNING, 0, COMMON_BYTES);
        add(self.number, 1, OWN_BYTES);
        (1..self.turns).for_each(|turn| add(self.number, turn + 1, TURN_BYTES));
        prompt
    }
}
