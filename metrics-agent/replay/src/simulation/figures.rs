//! Measurements of a run.

use std::time::Duration;

/// The figures of one run.
#[derive(Clone, Debug)]
pub struct Figures {
    first_token: Vec<Duration>,
    /// Sum of the mean times for each token after the first one, of responses with more than one.
    token_sum: Duration,
    answers: u32,
    by_server: Vec<usize>,
    in_time: usize,
    tokens_in_time: u64,
    lasting: Duration,
    queried: u64,
    hit: u64,
    adapter_loads: u64,
    unanswered: usize,
    refused: usize,
    is_sorted: bool,
}

/// A request that was served.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Time to the first token.
    pub first_token: Duration,
    /// Time from the first token to the last one.
    pub rest: Duration,
    /// Tokens of its response.
    pub answer_tokens: u64,
    /// Its server.
    pub server: usize,
    /// Whether it ended before the end of the measurement.
    pub is_in_time: bool,
}

impl Figures {
    /// No requests, of this many servers.
    pub fn new(servers: usize) -> Self {
        Self {
            first_token: Vec::new(),
            token_sum: Duration::ZERO,
            answers: 0,
            by_server: vec![0; servers],
            in_time: 0,
            tokens_in_time: 0,
            lasting: Duration::ZERO,
            queried: 0,
            hit: 0,
            adapter_loads: 0,
            unanswered: 0,
            refused: 0,
            is_sorted: true,
        }
    }

    /// Adds a request that was served.
    pub fn served(&mut self, served: &Served) {
        let Served { first_token, rest, answer_tokens, server, is_in_time } = *served;
        self.first_token.push(first_token);
        self.is_sorted = false;
        if answer_tokens > 1 {
            self.token_sum += rest / u32::try_from(answer_tokens - 1).unwrap_or(u32::MAX);
            self.answers += 1;
        }
        self.by_server[server] += 1;
        self.in_time += usize::from(is_in_time);
        self.tokens_in_time += if is_in_time { answer_tokens } else { 0 };
    }

    /// Sets the prompt tokens that servers looked up, and those of them that were cached.
    pub fn cache(&mut self, queried: u64, hit: u64) {
        (self.queried, self.hit) = (queried, hit);
    }

    /// Sets the number of adapters that servers loaded.
    pub fn adapter_loads(&mut self, loads: u64) {
        self.adapter_loads = loads;
    }

    /// Adds a request that was refused.
    pub fn refused(&mut self, is_measured: bool) {
        self.refused += usize::from(is_measured);
    }

    /// Ends the run, in which requests were measured for this time, with this many that were never answered:
    /// their times are the longest.
    pub fn end(&mut self, lasting: Duration, unanswered: usize) {
        self.lasting = lasting;
        self.unanswered = unanswered;
        self.first_token.sort_unstable();
        self.is_sorted = true;
    }

    /// Milliseconds within which this share of the first tokens came.
    pub fn percentile(&self, share: f64) -> f64 {
        debug_assert!(self.is_sorted);
        if self.unanswered == 0 {
            return percentile(&self.first_token, share).as_secs_f64() * 1e3;
        }
        let all = self.requests() as f64;
        let place = share * all / self.first_token.len().max(1) as f64;
        if place > 1.0 { f64::INFINITY } else { percentile(&self.first_token, place).as_secs_f64() * 1e3 }
    }

    /// Mean milliseconds to the first token.
    pub fn mean(&self) -> f64 {
        if self.unanswered > 0 {
            return f64::INFINITY;
        }
        self.first_token.iter().sum::<Duration>().as_secs_f64() * 1e3 / self.first_token.len().max(1) as f64
    }

    /// Share of the requests that were refused.
    pub fn share_refused(&self) -> f64 {
        self.refused as f64 / (self.refused + self.requests()).max(1) as f64
    }

    /// Share of the requests that were not refused whose first token came within this time.
    pub fn share_within(&self, limit: Duration) -> f64 {
        let kept = self.first_token.iter().filter(|took| **took < limit).count();
        kept as f64 / self.requests().max(1) as f64
    }

    /// Mean milliseconds for a token after the first one.
    pub fn token_time(&self) -> f64 {
        self.token_sum.as_secs_f64() * 1e3 / f64::from(self.answers.max(1))
    }

    /// Measured requests that ended in a second of the measured time.
    pub fn per_second(&self) -> f64 {
        self.in_time as f64 / self.lasting.as_secs_f64()
    }

    /// Tokens of responses that ended in a second of the measured time.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens_in_time as f64 / self.lasting.as_secs_f64()
    }

    /// Requests that each server served.
    pub fn by_server(&self) -> &[usize] {
        &self.by_server
    }

    /// Share of the prompt tokens that servers had cached.
    pub fn cached(&self) -> f64 {
        self.hit as f64 / self.queried.max(1) as f64
    }

    /// Whether servers looked up any prompt tokens.
    pub fn has_lookups(&self) -> bool {
        self.queried > 0
    }

    /// Adapters that servers loaded, for each request.
    pub fn loads(&self) -> f64 {
        self.adapter_loads as f64 / self.requests().max(1) as f64
    }

    /// Requests of the server with the most, as a multiple of the mean.
    pub fn busiest(&self) -> f64 {
        let most = self.by_server.iter().max().copied().unwrap_or(0);
        most as f64 * self.by_server.len() as f64 / self.first_token.len().max(1) as f64
    }

    /// Measured requests.
    pub fn requests(&self) -> usize {
        self.first_token.len() + self.unanswered
    }
}

/// The time within which this share of requests was served, of times in ascending order.
pub fn percentile(times: &[Duration], share: f64) -> Duration {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = (share * times.len() as f64).ceil() as usize;
    times.get(index.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_minimum_that_this_share_reaches() {
        let times: Vec<Duration> = (1..=10).map(Duration::from_millis).collect();
        assert_eq!([0.5, 0.9, 0.99].map(|share| percentile(&times, share).as_millis()), [5, 9, 10]);
    }
}
