//! Generators of sessions, and when sessions begin.

use endpoint_picker::rng::{Rng, SplitMix64};
use metrics_agent_replay::simulation::sessions::{Arrival, Session, Turn};
use std::time::Duration;

/// How long a session takes about, when a token takes 20 ms.
fn duration(session: &Session) -> Duration {
    let answer = |turn: &Turn| Duration::from_millis(20) * tokens(turn.request.work().answer_tokens());
    session.turns.iter().map(|turn| turn.pause + answer(turn)).sum()
}

fn tokens(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Draws sessions; equal seeds give equal sequences.
pub trait Sessions {
    /// The next session.
    fn draw(&mut self) -> Session;
}

/// How sessions come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Process {
    /// Independently of each other.
    Poisson,
    /// In bursts: times between two sessions have this coefficient of variation, above 1. They are a mixture
    /// of two exponential distributions with equal shares of the time (balanced means).
    Bursts(f64),
}

/// Sessions with this many requests per second in the mean, for a time. At the start, sessions are in
/// progress as at any time with `at_start` requests per second.
pub fn arrivals(
    sessions: &mut dyn Sessions,
    process: Process,
    at_start: f64,
    per_second: f64,
    lasting: Duration,
    seed: u64,
) -> Vec<Arrival> {
    /// Sessions drawn to find their mean length.
    const SAMPLE: usize = 400;
    let mut rng = SplitMix64::new(!seed);
    let mut drawn: Vec<Session> = (0..SAMPLE).map(|_| sessions.draw()).collect();
    let turns: usize = drawn.iter().map(|session| session.turns.len()).sum();
    let rate = per_second * SAMPLE as f64 / turns as f64;
    let mut arrivals = Vec::new();
    if turns > SAMPLE {
        let mean = drawn.iter().map(duration).sum::<Duration>().as_secs_f64() / SAMPLE as f64;
        for _ in 0..rounded(mean * rate * at_start / per_second) {
            let mut session = drawn.pop().unwrap_or_else(|| sessions.draw());
            session.turns.drain(..rng.below(session.turns.len()));
            let before_next = duration(&session) / tokens(session.turns.len() as u64);
            arrivals.push(Arrival { at: before_next.mul_f64(rng.unit()), session });
        }
    }
    let mut rest = drawn.into_iter();
    let mut at = 0.0;
    loop {
        at += process.gap(rate, &mut rng);
        if at >= lasting.as_secs_f64() {
            break;
        }
        let session = rest.next().unwrap_or_else(|| sessions.draw());
        arrivals.push(Arrival { at: Duration::from_secs_f64(at), session });
    }
    arrivals
}

impl Process {
    /// Seconds until the next session.
    fn gap(self, rate: f64, rng: &mut SplitMix64) -> f64 {
        let exponential = |rate: f64, rng: &mut SplitMix64| -(1.0 - rng.unit()).ln() / rate;
        match self {
            Self::Poisson => exponential(rate, rng),
            Self::Bursts(variation) => {
                let square = variation * variation;
                let share = 0.5 * (1.0 + ((square - 1.0) / (square + 1.0)).sqrt());
                let share = if rng.unit() < share { share } else { 1.0 - share };
                exponential(2.0 * share * rate, rng)
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of sessions")]
fn rounded(number: f64) -> usize {
    number.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_agent_replay::simulation::request::{Segment, SimulatedRequest};
    use std::sync::Arc;

    struct Pairs(u64);

    impl Sessions for Pairs {
        fn draw(&mut self) -> Session {
            self.0 += 1;
            let segment = Segment { id: self.0, tokens: 50 };
            let request = Arc::new(SimulatedRequest::new(None, vec![segment], segment));
            let turn = |pause| Turn { request: Arc::clone(&request), pause };
            Session { turns: vec![turn(Duration::ZERO), turn(Duration::from_secs(4))] }
        }
    }

    #[test]
    fn requests_come_at_their_rate_and_some_sessions_are_in_progress() {
        let lasting = Duration::from_secs(200);
        let arrivals = arrivals(&mut Pairs(0), Process::Poisson, 20.0, 20.0, lasting, 1);
        let begun: Vec<_> = arrivals.iter().filter(|arrival| arrival.session.turns.len() == 2).collect();
        assert!((1_850..2_150).contains(&begun.len()), "{}", begun.len());
        // Sessions take 6 s, and half of those in progress have one request left.
        assert!((20..40).contains(&(arrivals.len() - begun.len())), "{}", arrivals.len() - begun.len());
    }

    #[test]
    fn a_load_that_rises_begins_with_fewer_sessions_in_progress() {
        let in_progress = |at_start| {
            let arrivals =
                arrivals(&mut Pairs(0), Process::Poisson, at_start, 100.0, Duration::from_secs(20), 1);
            arrivals.len() - arrivals.iter().filter(|arrival| arrival.session.turns.len() == 2).count()
        };
        let [few, many] = [50.0, 100.0].map(in_progress);
        assert!((2 * few).abs_diff(many) <= many / 4, "{few} and {many}");
    }

    #[test]
    fn bursts_have_their_rate_and_variation() {
        let mut rng = SplitMix64::new(3);
        let gaps: Vec<f64> = (0..100_000).map(|_| Process::Bursts(2.0).gap(5.0, &mut rng)).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        let variation = variance.sqrt() / mean;
        assert!((mean - 0.2).abs() < 0.005 && (variation - 2.0).abs() < 0.05, "{mean} s, {variation}");
    }
}
