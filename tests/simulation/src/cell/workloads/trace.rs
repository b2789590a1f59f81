//! Requests recorded by others, from a file.

use crate::cell::sessions::Sessions;
use metrics_agent_replay::record::{Record, RecordError};
use metrics_agent_replay::simulation::request::{Segment, SimulatedRequest, mixed};
use metrics_agent_replay::simulation::sessions::{Arrival, Session};
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Recorded requests of which lengths, times and blocks are used.
///
/// Times are stretched or compressed to the load that is asked for. Each seed begins at another place of the
/// file; behind the last request the first one follows.
#[derive(Debug)]
pub struct Trace {
    name: String,
    record: Record,
}

impl Trace {
    /// Reads a file of this path.
    pub fn read(path: &Path, content: impl BufRead) -> Result<Self, RecordError> {
        let name =
            path.file_stem().map_or_else(|| "trace".to_owned(), |name| name.to_string_lossy().into_owned());
        Ok(Self { name, record: Record::read(content)? })
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Blocks in the cache of a server: more where prompts are long enough to share blocks.
    pub(super) fn kv_blocks(&self) -> u32 {
        if self.record.has_blocks() { 60_000 } else { super::BIG.kv_blocks }
    }

    /// The place at which a seed begins.
    fn start(&self, seed: u64) -> usize {
        usize::try_from(mixed(seed) % self.record.requests.len() as u64).unwrap_or(0)
    }

    /// The request at a place, counted on behind the end. Texts that nothing shares are new each time.
    fn session(&self, place: usize) -> Session {
        let request = &self.record.requests[place % self.record.requests.len()];
        let blocks = self.record.blocks(request);
        let own = |part: u64| mixed(mixed(place as u64) ^ part);
        let prompt = if blocks.is_empty() {
            vec![Segment { id: own(1), tokens: request.input }]
        } else {
            let mut left = request.input;
            let segment = |hash: &u64| {
                let tokens = self.record.block_tokens.min(left);
                left -= tokens;
                Segment { id: mixed(!hash), tokens }
            };
            blocks.iter().map(segment).filter(|segment| segment.tokens > 0).collect()
        };
        Session::single(SimulatedRequest::new(None, prompt, Segment { id: own(2), tokens: request.output }))
    }

    /// Its requests, with this many per second in the mean.
    pub(super) fn arrivals(&self, per_second: f64, lasting: Duration, seed: u64) -> Vec<Arrival> {
        let (first, start) = (self.record.requests[0].at.as_secs_f64(), self.start(seed));
        let span = (self.record.requests[self.record.requests.len() - 1].at.as_secs_f64() - first)
            .max(f64::MIN_POSITIVE);
        // One gap more, from the last request to the first one of the next round.
        let period = span * self.record.requests.len() as f64 / (self.record.requests.len() - 1) as f64;
        let time = |place: usize| {
            let round = place / self.record.requests.len();
            self.record.requests[place % self.record.requests.len()].at.as_secs_f64() - first
                + period * round as f64
        };
        let wanted = per_second * lasting.as_secs_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of requests")]
        let count = (wanted.ceil() as usize).max(2);
        // The load of this part of the trace is the one that is asked for.
        let part = (time(start + count) - time(start)).max(f64::MIN_POSITIVE);
        let scale = lasting.as_secs_f64() / part;
        let arrival = |place: usize| Arrival {
            at: Duration::from_secs_f64(((time(place) - time(start)) * scale).max(0.0)),
            session: self.session(place),
        };
        (start..start + count).map(arrival).collect()
    }
}

/// The requests of a trace one after another.
pub(super) struct Replay {
    trace: Arc<Trace>,
    next: usize,
}

impl Replay {
    pub(super) fn new(trace: Arc<Trace>, seed: u64) -> Self {
        let next = trace.start(seed);
        Self { trace, next }
    }
}

impl Sessions for Replay {
    fn draw(&mut self) -> Session {
        self.next += 1;
        self.trace.session(self.next - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Trace {
        Trace::read(Path::new("folder/some.csv"), text.as_bytes()).unwrap()
    }

    const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n\
        2023-11-16 18:15:50.9951690,396,109\n2023-11-16 18:15:51.2225670,879,55\n";
    const MOONCAKE: &str = "{\"timestamp\": 0, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [46, 47]}\n\
        {\"timestamp\": 3000, \"input_length\": 1300, \"output_length\": 7, \"hash_ids\": [46, 47, 48]}\n";

    #[test]
    fn prompts_with_equal_blocks_begin_alike() {
        let trace = read(MOONCAKE);
        let blocks = |place| trace.session(place).turns[0].request.work().prompt_blocks().to_vec();
        // 62 blocks of 16 tokens are full in 1 000 tokens, and the second prompt has all of them.
        assert_eq!((blocks(0).len(), &blocks(0)[..]), (62, &blocks(1)[..62]));
        assert_eq!(blocks(1).len(), 81);
    }

    #[test]
    fn requests_come_at_the_rate_that_is_asked_for_from_another_place_for_each_seed() {
        let trace = read(AZURE);
        let arrivals = |seed| trace.arrivals(5.0, Duration::from_secs(20), seed);
        assert_eq!((arrivals(1).len(), trace.name()), (100, "some"));
        assert!(arrivals(1).windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(arrivals(1)[99].at < Duration::from_secs(20));
        let starts: Vec<usize> = (0..20).map(|seed| trace.start(seed)).collect();
        assert!((0..3).all(|place| starts.contains(&place)));
    }
}
