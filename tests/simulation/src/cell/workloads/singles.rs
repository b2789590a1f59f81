//! Requests whose prompts share nothing.

use super::{Draw, Ranks};
use crate::cell::sessions::Sessions;
use metrics_agent_replay::simulation::request::SimulatedRequest;
use metrics_agent_replay::simulation::sessions::Session;
use std::sync::Arc;

/// 48 adapters, whose frequency falls with their rank; prompts of 256 tokens, responses of 32 to 96.
pub(super) struct Adapters {
    draw: Draw,
    names: Vec<Arc<str>>,
    ranks: Ranks,
}

const ADAPTERS: usize = 48;

impl Adapters {
    pub(super) fn new(seed: u64) -> Self {
        let name = |number| format!("adapter-{number}").into();
        Self {
            draw: Draw::new(seed),
            names: (0..ADAPTERS).map(name).collect(),
            ranks: Ranks::new(ADAPTERS, 1.0),
        }
    }
}

impl Sessions for Adapters {
    fn draw(&mut self) -> Session {
        let Self { draw, names, ranks } = self;
        let adapter = Arc::clone(&names[ranks.draw(&mut draw.rng)]);
        let prompt = vec![draw.text(256)];
        Session::single(SimulatedRequest::new(Some(adapter), prompt, draw.text_between(32, 96)))
    }
}

/// Short prompts and long ones. Of 100 prompts, 85 are lognormal with a median of 500 tokens (σ of the
/// logarithm 0.8), at most 6 000; the others have 8 000 to 30 000 tokens, their logarithms equally likely.
/// Answers are lognormal with a median of 150 tokens (0.8), at most 1 000.
pub(super) struct LongMix(Draw);

impl LongMix {
    pub(super) fn new(seed: u64) -> Self {
        Self(Draw::new(seed))
    }
}

impl Sessions for LongMix {
    fn draw(&mut self) -> Session {
        let Self(draw) = self;
        let tokens = if draw.between(1, 100) > 85 {
            // One of 1 000 steps of equal ratio.
            let step = f64::from(draw.between(0, 1_000)) / 1_000.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "8 000 to 30 000")]
            let tokens = (8_000.0 * (30_000.0_f64 / 8_000.0).powf(step)) as u32;
            tokens
        } else {
            draw.lognormal(500.0, 0.8, 6_000)
        };
        let answer = draw.lognormal(150.0, 0.8, 1_000);
        Session::single(SimulatedRequest::new(None, vec![draw.text(tokens)], draw.text(answer)))
    }
}
