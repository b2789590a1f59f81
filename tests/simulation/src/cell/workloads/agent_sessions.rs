//! Sessions of agents that need more cache than there is.

use super::{Draw, Workload};
use crate::cell::sessions::Sessions;
use metrics_agent_replay::simulation::request::{Segment, SimulatedRequest};
use metrics_agent_replay::simulation::sessions::{Session, Turn};
use std::sync::Arc;
use std::time::Duration;

/// Agents of 12 to 60 turns. An agent begins with 8 000 to 16 000 tokens of instructions and tools of its
/// own; each turn adds the response (300 tokens in the median, σ of the logarithm 0.8) and the result of a
/// tool (1 200, 0.9). The next turn comes 4.9 s in the median after the response (1.0), at most after 60 s.
/// One of 16 turns starts a sub-agent of 3 to 8 turns with its own prompt; the agent waits for it.
pub(super) struct AgentSessions {
    draw: Draw,
    begun: u64,
}

impl AgentSessions {
    pub(super) fn new(seed: u64) -> Self {
        Self { draw: Draw::new(seed), begun: 0 }
    }

    /// A turn, by which a history grows.
    fn turn(&mut self, history: &mut Vec<Segment>) -> Turn {
        let draw = &mut self.draw;
        let pause = Duration::from_millis(draw.lognormal(4_900.0, 1.0, 60_000).into());
        let answer = draw.lognormal(300.0, 0.8, 4_000);
        let answer = draw.text(answer);
        let mut request = SimulatedRequest::new(None, history.clone(), answer);
        request.session = Some(self.begun);
        let result = draw.lognormal(1_200.0, 0.9, 20_000);
        history.extend([answer, draw.text(result)]);
        Turn { request: Arc::new(request), pause }
    }
}

impl Sessions for AgentSessions {
    fn draw(&mut self) -> Session {
        self.begun += 1;
        let mut history = vec![self.draw.text_between(8_000, 16_000)];
        let mut turns = Vec::new();
        for _ in 0..self.draw.between(12, 60) {
            turns.push(self.turn(&mut history));
            if self.draw.between(1, 16) == 1 {
                let mut own = vec![self.draw.text_between(8_000, 16_000)];
                let number = self.draw.between(3, 8);
                turns.extend((0..number).map(|_| self.turn(&mut own)));
            }
        }
        turns[0].pause = Duration::ZERO;
        Session { turns }
    }
}

/// Turns a second of sessions that need this many times the caches of the workload's servers, before waits
/// add to them: a session in progress needs the tokens of its next turn.
pub(in crate::cell) fn per_second(times: f64) -> f64 {
    const SAMPLE: usize = 400;
    /// A token of a response, about, on servers that read long prompts meanwhile.
    const TOKEN_SECONDS: f64 = 0.027;
    let mut sessions = AgentSessions::new(1);
    let turns: Vec<Turn> = (0..SAMPLE).flat_map(|_| sessions.draw().turns).collect();
    let token_seconds = |turn: &Turn| {
        let work = turn.request.work();
        let seconds = turn.pause.as_secs_f64() + TOKEN_SECONDS * work.answer_tokens() as f64;
        seconds * work.prompt_tokens() as f64
    };
    let each = turns.iter().map(token_seconds).sum::<f64>() / turns.len() as f64;
    let fleet = Workload::AgentSessions.fleet();
    let caches: f64 = fleet.servers.iter().map(|server| f64::from(server.kv_blocks) * 16.0).sum();
    times * caches / each
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caches_hold_the_sessions_of_some_four_turns_a_second() {
        let rate = per_second(1.0);
        println!("{rate:.2} turns a second");
        assert!((3.0..5.0).contains(&rate));
        assert!((per_second(2.0) / rate - 2.0).abs() < 1e-9);
    }
}
