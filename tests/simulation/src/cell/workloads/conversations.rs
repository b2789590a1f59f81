//! Conversations, which grow with each turn.

use super::Draw;
use crate::cell::sessions::Sessions;
use metrics_agent_replay::simulation::request::{Segment, SimulatedRequest};
use metrics_agent_replay::simulation::sessions::{Session, Turn};
use std::sync::Arc;
use std::time::Duration;

/// Conversations of people, who read and think before they respond.
pub(super) struct Conversations {
    draw: Draw,
    kind: Kind,
    begun: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Uniform,
    ShareGpt,
}

impl Conversations {
    /// 8 turns. The first message has 256 tokens, the others 96, responses 32 to 96; people think for 5 s in
    /// the mean (exponential).
    pub(super) fn uniform(seed: u64) -> Self {
        Self { draw: Draw::new(seed), kind: Kind::Uniform, begun: 0 }
    }

    /// As in collections of chats such as `ShareGPT`: turns are geometric with a mean of 4, at most 16;
    /// messages are lognormal with a median of 60 tokens (σ of the logarithm 1.3), responses with one of 200
    /// (0.9), at most 6 000 and 1 500; people think for 10 s in the median (0.8).
    pub(super) fn sharegpt(seed: u64) -> Self {
        Self { draw: Draw::new(seed), kind: Kind::ShareGpt, begun: 0 }
    }

    fn turns(&mut self) -> usize {
        match self.kind {
            Kind::Uniform => 8,
            Kind::ShareGpt => {
                let goes_on = |draw: &mut Draw| draw.between(1, 4) > 1;
                1 + (1..16).take_while(|_| goes_on(&mut self.draw)).count()
            }
        }
    }

    /// The tokens of a message, and the response.
    fn message(&mut self, turn: usize) -> (u32, Segment) {
        let draw = &mut self.draw;
        match self.kind {
            Kind::Uniform => (if turn == 0 { 256 } else { 96 }, draw.text_between(32, 96)),
            Kind::ShareGpt => {
                let answer = draw.lognormal(200.0, 0.9, 1_500);
                (draw.lognormal(60.0, 1.3, 6_000), draw.text(answer))
            }
        }
    }

    fn pause(&mut self) -> Duration {
        match self.kind {
            Kind::Uniform => self.draw.exponential(Duration::from_secs(5)),
            Kind::ShareGpt => Duration::from_millis(self.draw.lognormal(10_000.0, 0.8, 120_000).into()),
        }
    }
}

impl Sessions for Conversations {
    fn draw(&mut self) -> Session {
        self.begun += 1;
        let turns = self.turns();
        let mut history = Vec::new();
        let turn = |turn| {
            let pause = if turn == 0 { Duration::ZERO } else { self.pause() };
            let (message, answer) = self.message(turn);
            history.push(self.draw.text(message));
            let mut request = SimulatedRequest::new(None, history.clone(), answer);
            request.session = Some(self.begun);
            history.push(answer);
            Turn { request: Arc::new(request), pause }
        };
        Session { turns: (0..turns).map(turn).collect() }
    }
}
