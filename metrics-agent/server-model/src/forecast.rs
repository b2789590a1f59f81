//! State that a new request would meet at a server, by the true state of the server.

use super::batch::{BLOCK, Batch, BatchRequest, RunningRequest, multiplied};
use std::collections::HashMap;
use std::time::Duration;

/// State that a new request would meet at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Time from the end of the step in flight until its first token, when no other request comes.
    pub first_token: Duration,
    /// The part of it in which its own prompt is read and its adapter loaded.
    pub own: Duration,
}

/// State that a new request would meet at a server with its requests, from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Requests there.
    pub requests: usize,
    /// The times, the rest of the step in flight included.
    pub forecast: Forecast,
}

impl<T> Batch<T> {
    /// State that this request would meet. Contents of the cache, queue and lengths of responses are the true
    /// ones; what happens is computed in sums, not step by step: everything before it is read and answered as
    /// in steps like the next one.
    pub fn forecast(&self, request: &BatchRequest) -> Forecast {
        let times = &self.times;
        let left = |sequence: &RunningRequest<T>| sequence.unread - sequence.reading;
        let decoding = self.running.iter().filter(|sequence| left(sequence) == 0);
        let step = times.decoding(decoding.clone().map(RunningRequest::tokens));
        // What requests before it in the queue read is cached when it begins.
        let unread = self.unread_tokens(request).min(self.unread_behind_queue(request));
        let own = times.reading(request.prompt_tokens() - unread, unread) + self.time_to_load(request);
        let until_begin = self.steps_until_begin(request);
        if times.reads_apart {
            return Forecast { first_token: multiplied(step, until_begin) + own, own };
        }
        let (mut tokens_ahead, mut ahead) = (0, Duration::ZERO);
        for sequence in &self.running {
            tokens_ahead += left(sequence);
            ahead += times.reading(sequence.tokens() - left(sequence), left(sequence));
        }
        for waiting in &self.waiting {
            tokens_ahead += self.unread_tokens(&waiting.request);
            ahead += self.time_to_read(&waiting.request);
        }
        let budget = (times.max_batched_tokens as usize).saturating_sub(decoding.count()).max(1);
        let steps = until_begin + (tokens_ahead + unread).div_ceil(budget);
        Forecast { first_token: multiplied(step, steps) + ahead + own, own }
    }

    fn unread_tokens(&self, request: &BatchRequest) -> usize {
        request.prompt_tokens().saturating_sub(self.cached_tokens(request)).max(1)
    }

    /// Tokens of this prompt that no prompt in the queue has.
    fn unread_behind_queue(&self, request: &BatchRequest) -> usize {
        let own = request.prompt_blocks();
        let common = |other: &[u64]| own.iter().zip(other).take_while(|(own, other)| own == other).count();
        let most = self.waiting.iter().map(|waiting| common(waiting.request.prompt_blocks())).max();
        request.prompt_tokens().saturating_sub(most.unwrap_or(0) * BLOCK).max(1)
    }

    /// Steps until there are a place, blocks and a place for the adapter.
    fn steps_until_begin(&self, request: &BatchRequest) -> usize {
        let places =
            (self.running.len() + self.waiting.len() + 1).saturating_sub(self.times.max_running.max(1));
        let missing = |request: &BatchRequest| self.unread_tokens(request).div_ceil(BLOCK);
        let needed =
            missing(request) + self.waiting.iter().map(|waiting| missing(&waiting.request)).sum::<usize>();
        let vacant = (self.times.kv_blocks as usize).saturating_sub(self.cache.in_use());
        let for_adapter = request.adapter.as_deref().map_or(0, |name| self.steps_until_adapter(name));
        if places == 0 && needed <= vacant {
            return for_adapter;
        }
        let mut left: Vec<(usize, usize)> =
            self.running.iter().map(|sequence| (sequence.left(), sequence.lease.blocks())).collect();
        left.sort_unstable();
        let mut freed = vacant;
        let until_blocks = left.iter().take_while(|(_, blocks)| {
            let is_short = freed < needed;
            freed += blocks;
            is_short
        });
        let ends = until_blocks.count().max(places).min(left.len());
        let until_ends = ends.checked_sub(1).and_then(|last| left.get(last)).map_or(0, |(steps, _)| *steps);
        until_ends.max(for_adapter)
    }

    /// Steps until an adapter has a place: until the requests of one that has a place have ended.
    fn steps_until_adapter(&self, name: &str) -> usize {
        if self.adapters.has_room(name) {
            return 0;
        }
        let mut last: HashMap<&str, usize> = HashMap::new();
        for sequence in &self.running {
            if let Some(adapter) = sequence.request.adapter.as_deref() {
                let left = last.entry(adapter).or_default();
                *left = sequence.left().max(*left);
            }
        }
        last.into_values().min().unwrap_or(0)
    }
}

impl<T> RunningRequest<T> {
    /// Steps until its end, when its prompt is read in one.
    fn left(&self) -> usize {
        usize::try_from(self.request.answer_tokens().saturating_sub(self.made)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_times::{Allocation, ServiceTimes};

    const MS: Duration = Duration::from_millis(1);
    const TIMES: ServiceTimes = ServiceTimes {
        max_running: 3,
        step: Duration::from_millis(10),
        step_per_sequence: MS,
        step_per_context_token: Duration::ZERO,
        prefill_per_token: MS,
        doubling_context: None,
        reads_apart: false,
        max_batched_tokens: 100,
        kv_blocks: 100,
        allocation: Allocation::AsNeeded,
        max_loras: 1,
        lora_load: Duration::from_millis(500),
        stream_interval: 1,
    };

    /// A request whose blocks are numbered from `first` on.
    fn request(first: u64, prompt: usize, answer: u64) -> BatchRequest {
        let blocks = (prompt / BLOCK) as u64;
        BatchRequest::of_blocks(None, prompt, (first..first + blocks).collect(), answer)
    }

    /// Time until the first token of the last of these requests, by running them; those before are added
    /// first.
    fn by_running(batch: &mut Batch<usize>, requests: &[BatchRequest]) -> Duration {
        let mut at = Duration::ZERO;
        for (number, request) in requests.iter().enumerate() {
            batch.add(request.clone(), number);
        }
        loop {
            at += batch.begin_step().unwrap();
            let mut is_there = false;
            batch.end_step(|&mut number, progress| {
                is_there |= number + 1 == requests.len() && progress.made > 0;
                true
            });
            if is_there {
                return at;
            }
        }
    }

    #[test]
    fn the_forecast_is_what_happens_when_nothing_else_comes() {
        let own = request(1_000, 64, 3);
        let cases: [(&[BatchRequest], _); 5] = [
            (&[], ServiceTimes { ..TIMES }),
            (&[request(1, 32, 9)], TIMES),
            (&[request(1, 250, 9)], TIMES),
            (&[request(1_000, 64, 9), request(1, 16, 9)], TIMES),
            (&[request(1, 16, 4), request(101, 16, 8)], ServiceTimes { max_running: 2, ..TIMES }),
        ];
        for (before, times) in cases {
            let mut batch = Batch::new(times);
            for request in before {
                batch.add(request.clone(), usize::MAX - 1);
            }
            let mut forecast = batch.forecast(&own).first_token;
            if times.max_running == 2 {
                // Both are running, and one ends with its fourth token.
                batch.begin_step();
                batch.end_step(|_, _| true);
                forecast = batch.forecast(&own).first_token;
            }
            let happened = by_running(&mut batch, core::slice::from_ref(&own));
            let difference = forecast.abs_diff(happened);
            assert!(difference <= 2 * TIMES.step, "{before:?}: {forecast:?} and {happened:?}");
        }
    }

    #[test]
    fn cached_prompts_take_no_time_and_adapters_take_their_loading() {
        let mut batch = Batch::new(TIMES);
        by_running(&mut batch, &[request(1, 64, 1)]);
        assert_eq!(batch.forecast(&request(1, 64, 1)).own, MS);
        let with_adapter = BatchRequest::of_blocks(Some("a".into()), 10, [].into(), 1);
        assert_eq!(batch.forecast(&with_adapter).own, 510 * MS);
    }
}
