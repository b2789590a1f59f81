//! Agents, which call the model in a loop.

use super::{Draw, Ranks};
use crate::cell::sessions::Sessions;
use metrics_agent_replay::simulation::request::{Segment, SimulatedRequest};
use metrics_agent_replay::simulation::sessions::{Session, Turn};
use std::sync::Arc;
use std::time::Duration;

/// Agents of 40 kinds. All agents of a kind begin with the same 4 000 to 14 000 tokens of instructions and
/// tools, and the frequency of a kind falls with its rank. An agent takes 4 to 16 steps; each adds the
/// response and 300 to 900 tokens, the result of a tool that ran for 1.5 s in the mean (exponential). Answers
/// have 60 to 200 tokens.
pub(super) struct Agents {
    draw: Draw,
    kinds: Vec<Segment>,
    ranks: Ranks,
    begun: u64,
}

const KINDS: usize = 40;

impl Agents {
    pub(super) fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let kinds = (0..KINDS).map(|_| draw.text_between(4_000, 14_000)).collect();
        Self { draw, kinds, ranks: Ranks::new(KINDS, 1.0), begun: 0 }
    }
}

impl Sessions for Agents {
    fn draw(&mut self) -> Session {
        let Self { draw, kinds, ranks, begun } = self;
        *begun += 1;
        let mut history = vec![kinds[ranks.draw(&mut draw.rng)]];
        let steps = draw.between(4, 16);
        let step = |step| {
            let pause =
                if step == 0 { Duration::ZERO } else { draw.exponential(Duration::from_millis(1_500)) };
            history.push(draw.text_between(300, 900));
            let answer = draw.text_between(60, 200);
            let mut request = SimulatedRequest::new(None, history.clone(), answer);
            request.session = Some(*begun);
            history.push(answer);
            Turn { request: Arc::new(request), pause }
        };
        Session { turns: (0..steps).map(step).collect() }
    }
}
