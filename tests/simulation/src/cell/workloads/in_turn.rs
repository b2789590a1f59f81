//! Conversations that continue in turn, as inference-perf sends them.

use super::Draw;
use metrics_agent_replay::simulation::request::SimulatedRequest;
use metrics_agent_replay::simulation::sessions::{Arrival, Session};
use std::time::Duration;

/// Requests per second, as in `make bench-field`.
const PER_SECOND: f64 = 20.0;

/// Tokens of the system prompt, which all share, and of a question; and of a response.
const TURN_TOKENS: u32 = 128;
const ANSWER_TOKENS: u32 = 32;

/// Requests of this many conversations, the first turn of each, then the second of each, and so on, at random
/// times. A turn comes whether the response before has ended or not.
pub(in crate::cell) fn arrivals(conversations: usize, requests: usize, seed: u64) -> Vec<Arrival> {
    let mut draw = Draw::new(seed);
    let system = draw.text(TURN_TOKENS);
    let mut histories = vec![vec![system]; conversations];
    let mut at = Duration::ZERO;
    let request = |number: usize| {
        at += draw.exponential(Duration::from_secs_f64(1.0 / PER_SECOND));
        let history = &mut histories[number % conversations];
        history.push(draw.text(TURN_TOKENS));
        let answer = draw.text(ANSWER_TOKENS);
        let session = Session::single(SimulatedRequest::new(None, history.clone(), answer));
        history.push(answer);
        Arrival { at, session }
    };
    (0..requests).map(request).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_continue_in_turn() {
        let arrivals = arrivals(40, 200, 1);
        let prompts: Vec<_> =
            arrivals.iter().map(|arrival| arrival.session.turns[0].request.work().prompt_tokens()).collect();
        assert_eq!((prompts[0], prompts[39], prompts[40], prompts[199]), (256, 256, 416, 896));
        let blocks =
            |number: usize| arrivals[number].session.turns[0].request.work().prompt_blocks().to_vec();
        assert_eq!(blocks(40)[..16], blocks(0)[..16]);
        let lasting = arrivals[199].at.as_secs_f64();
        assert!((8.0..12.5).contains(&lasting), "{lasting} s");
    }
}
