//! Prompts that many requests share.

use super::{Draw, Ranks};
use crate::cell::sessions::Sessions;
use metrics_agent_replay::simulation::request::{Segment, SimulatedRequest};
use metrics_agent_replay::simulation::sessions::Session;

/// A shared prompt with a question of its own behind it.
pub(super) struct SharedPrompts {
    draw: Draw,
    prompts: Vec<Segment>,
    ranks: Ranks,
    lengths: Lengths,
}

/// Tokens of questions and responses.
enum Lengths {
    /// A question of this length, and responses between these bounds, all equally likely.
    Uniform { question: u32, answer: (u32, u32) },
    /// Lognormal ones.
    Lognormal,
}

impl SharedPrompts {
    fn new(seed: u64, prompts: (usize, u32), steepness: f64, lengths: Lengths) -> Self {
        let mut draw = Draw::new(seed);
        let (number, tokens) = prompts;
        let prompts = (0..number).map(|_| draw.text(tokens)).collect();
        Self { draw, prompts, ranks: Ranks::new(number, steepness), lengths }
    }

    /// 96 prompts of 1 024 tokens, whose frequency falls with the square root of their rank; questions of 64
    /// tokens, responses of 32 to 96.
    pub(super) fn few(seed: u64) -> Self {
        Self::new(seed, (96, 1024), 0.5, Lengths::Uniform { question: 64, answer: (32, 96) })
    }

    /// 150 prompts of 6 000 tokens, all equally often; questions of 1 200 tokens, responses of 100 to 500.
    /// The shape of a scenario that llm-d's benchmarks have.
    pub(super) fn large(seed: u64) -> Self {
        Self::new(seed, (150, 6000), 0.0, Lengths::Uniform { question: 1200, answer: (100, 500) })
    }

    /// 40 prompts of 800 tokens, whose frequency falls with their rank. Questions are lognormal with a median
    /// of 300 tokens (σ of the logarithm 1), responses with one of 180 (0.8); at most 8 000 and 1 500.
    pub(super) fn bursts(seed: u64) -> Self {
        Self::new(seed, (40, 800), 1.0, Lengths::Lognormal)
    }
}

impl Sessions for SharedPrompts {
    fn draw(&mut self) -> Session {
        let Self { draw, prompts, ranks, lengths } = self;
        let prompt = prompts[ranks.draw(&mut draw.rng)];
        let (question, (least, most)) = match *lengths {
            Lengths::Uniform { question, answer } => (question, answer),
            Lengths::Lognormal => {
                let question = draw.lognormal(300.0, 1.0, 8_000);
                let answer = draw.lognormal(180.0, 0.8, 1_500);
                (question, (answer, answer))
            }
        };
        let prompt = vec![prompt, draw.text(question)];
        Session::single(SimulatedRequest::new(None, prompt, draw.text_between(least, most)))
    }
}
