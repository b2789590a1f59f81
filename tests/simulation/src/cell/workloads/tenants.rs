//! Tenants, each with an adapter of its own.

use super::{Draw, Ranks};
use crate::cell::sessions::Sessions;
use metrics_agent_replay::simulation::request::SimulatedRequest;
use metrics_agent_replay::simulation::sessions::{Session, Turn};
use std::sync::Arc;
use std::time::Duration;

/// Agents of 400 tenants, whose number of agents falls with their rank. An agent sends 8 to 24 requests for
/// the tenant's adapter, each after a tool has run for 200 ms in the mean (exponential). Prompts of 256
/// tokens share nothing, responses have 32 to 96.
pub(super) struct Tenants {
    draw: Draw,
    adapters: Vec<Arc<str>>,
    ranks: Ranks,
}

const TENANTS: usize = 400;

impl Tenants {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            draw: Draw::new(seed),
            adapters: (0..TENANTS).map(|number| format!("tenant-{number}").into()).collect(),
            ranks: Ranks::new(TENANTS, 1.0),
        }
    }
}

impl Sessions for Tenants {
    fn draw(&mut self) -> Session {
        let Self { draw, adapters, ranks } = self;
        let adapter = &adapters[ranks.draw(&mut draw.rng)];
        let requests = draw.between(8, 24);
        let turn = |turn| {
            let pause = if turn == 0 { Duration::ZERO } else { draw.exponential(Duration::from_millis(200)) };
            let (prompt, answer) = (vec![draw.text(256)], draw.text_between(32, 96));
            let request = SimulatedRequest::new(Some(Arc::clone(adapter)), prompt, answer);
            Turn { request: Arc::new(request), pause }
        };
        Session { turns: (0..requests).map(turn).collect() }
    }
}
