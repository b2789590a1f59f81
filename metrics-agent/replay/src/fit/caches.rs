//! Which tokens of prompts servers had cached, and how large their caches are.

use super::JUDGED;
use crate::record::{Record, RecordedRequest};
use metrics_agent_server_model::BLOCK_TOKENS;
use std::collections::{HashMap, HashSet};

/// Tokens of each prompt that its server had to read: by the usage if the record has it, otherwise those
/// behind the blocks that its server had read before.
pub(super) fn uncached(record: &Record) -> Vec<f64> {
    let mut known: Vec<HashSet<u64>> = vec![HashSet::new(); record.servers.len()];
    let mut uncached = |request: &RecordedRequest| {
        let input = f64::from(request.input);
        if let Some(cached) = request.cached {
            return (input - f64::from(cached)).max(1.0);
        }
        let Some(known) = request.server.and_then(|server| known.get_mut(usize::from(server))) else {
            return input;
        };
        let blocks = record.blocks(request);
        let found = blocks.iter().take_while(|block| known.contains(block)).count();
        known.extend(blocks.iter().skip(found));
        (input - found as f64 * f64::from(record.block_tokens)).max(1.0)
    };
    record.requests.iter().map(&mut uncached).collect()
}

/// Whether servers keep their responses for later prompts: then the next prompt of a session, at the same
/// server, has more tokens cached than the prompt before had. `None`: the record does not show it.
pub(super) fn keeps_responses(record: &Record) -> Option<bool> {
    let mut last: HashMap<u64, &RecordedRequest> = HashMap::new();
    let (mut all, mut kept) = (0, 0);
    for request in &record.requests {
        let before = request.session.and_then(|session| last.insert(session, request));
        if let (Some(before), Some(cached)) = (before, request.cached)
            && before.server == request.server
            // The whole prompt was cached, but for a part of a block, and the response has a block.
            && cached + BLOCK_TOKENS > before.input
            && before.output >= 2 * BLOCK_TOKENS
        {
            all += 1;
            kept += usize::from(cached > before.input);
        }
    }
    (all >= JUDGED).then_some(kept * 2 >= all)
}

/// Requests by which the size of caches is found.
const SAMPLE: usize = 30_000;

/// Number of sizes that are tried, each four fifths of the one before. Finer steps follow the record's
/// chance, and the last size is a thousandth of the first.
const SIZES: i32 = 30;

/// The size of a cache with which the record's cached tokens are described best, in tokens, and the error:
/// the sum of the differences as a part of all prompt tokens. `None`: the record has no usage or no
/// blocks, or every cache was large enough for all that it was sent.
///
/// Each size is tried by caches that forget the blocks unused for longest.
pub(super) fn size(record: &Record) -> Option<(u32, f64)> {
    let requests = &record.requests[..record.requests.len().min(SAMPLE)];
    let measured = |request: &&RecordedRequest| request.cached.is_some() && request.server.is_some();
    if !record.has_blocks() || requests.iter().filter(measured).count() * 2 < requests.len() {
        return None;
    }
    let distances = distances(record, requests);
    let all: f64 = requests.iter().map(|request| f64::from(request.input)).sum();
    let most = distances.iter().flatten().copied().filter(|distance| *distance < u32::MAX).max()?;
    let error = |blocks: u32| {
        let differences = requests.iter().zip(&distances).map(|(request, distances)| {
            let found = distances.iter().take_while(|distance| **distance < blocks).count();
            let found = (found as f64 * f64::from(record.block_tokens)).min(request.input.into());
            request.cached.map_or(0.0, |cached| (found - f64::from(cached)).abs())
        });
        differences.sum::<f64>() / all.max(1.0)
    };
    let unlimited = error(u32::MAX);
    let sizes = (0..SIZES).map(|step| f64::from(most) * 0.8_f64.powi(step));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than `most`")]
    let sizes = sizes.map(|size| size as u32).filter(|size| *size > 0);
    let best = sizes.map(|size| (size, error(size))).min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    // A limit that explains nothing is none.
    (best.1 < unlimited * 0.8).then(|| (best.0.saturating_mul(record.block_tokens), best.1))
}

/// The number of different blocks that its server has used since the last use of each block of each prompt;
/// the greatest number for a block without a use.
fn distances(record: &Record, requests: &[RecordedRequest]) -> Vec<Vec<u32>> {
    let mut stacks: Vec<Stack> = (0..record.servers.len()).map(|_| Stack::default()).collect();
    let of = |request: &RecordedRequest| {
        let Some(stack) = request.server.and_then(|server| stacks.get_mut(usize::from(server))) else {
            return Vec::new();
        };
        let blocks = record.blocks(request);
        let distances = blocks.iter().map(|block| stack.distance(*block)).collect();
        blocks.iter().rev().for_each(|block| stack.touch(*block));
        distances
    };
    requests.iter().map(of).collect()
}

/// Blocks in the order of their last use, as a tree of counts (Fenwick's) over times of use.
#[derive(Debug, Default)]
struct Stack {
    /// The time of the last use of each block.
    last: HashMap<u64, u32>,
    counts: Vec<u32>,
}

impl Stack {
    fn distance(&self, block: u64) -> u32 {
        match self.last.get(&block) {
            Some(&time) => self.total(self.counts.len()) - self.total(time as usize + 1),
            None => u32::MAX,
        }
    }

    /// Marks a block as the last one used.
    fn touch(&mut self, block: u64) {
        let time = self.counts.len();
        // A new node of the tree has the sum of the nodes below it, and the block itself.
        let index = time + 1;
        let below = self.total(time) - self.total(index & (index - 1));
        self.counts.push(below + 1);
        let before = self.last.insert(block, u32::try_from(time).unwrap_or(u32::MAX));
        if let Some(before) = before {
            let mut index = before as usize + 1;
            while let Some(count) = self.counts.get_mut(index - 1) {
                *count -= 1;
                index += index & index.wrapping_neg();
            }
        }
    }

    /// Number of blocks whose last use is one of the first times.
    fn total(&self, times: usize) -> u32 {
        let (mut index, mut total) = (times, 0);
        while let Some(count) = index.checked_sub(1).and_then(|index| self.counts.get(index)) {
            total += count;
            index &= index - 1;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_prompt_of_a_session_shows_whether_its_response_was_kept() {
        let record = |cached: u32| {
            let turn = |number: u32| {
                let (session, input) = (number / 2, 100 + number % 2 * 100);
                let cached = cached * (number % 2);
                format!(
                    r#"{{"timestamp":{number},"input_length":{input},"output_length":40,"session":"{session}","#
                ) + &format!(r#""endpoint":"a","cached_tokens":{cached}}}"#)
            };
            Record::read((0..60).map(turn).collect::<Vec<_>>().join("\n").as_bytes()).unwrap()
        };
        let found = [0, 80, 96, 128].map(|cached| keeps_responses(&record(cached)));
        assert_eq!(found, [None, None, Some(false), Some(true)]);
    }

    #[test]
    fn a_distance_is_the_number_of_different_blocks_since_the_last_use() {
        let mut stack = Stack::default();
        assert_eq!(stack.distance(1), u32::MAX);
        for block in [1, 2, 3, 2, 2, 4] {
            stack.touch(block);
        }
        assert_eq!([4, 2, 3, 1].map(|block| stack.distance(block)), [0, 1, 2, 3]);
        let mut used = vec![1, 3, 2, 4];
        for number in 0..500_u64 {
            let block = number * number % 17;
            let place = used.iter().rev().position(|used| *used == block);
            assert_eq!(stack.distance(block), place.map_or(u32::MAX, |place| u32::try_from(place).unwrap()));
            used.retain(|used| *used != block);
            used.push(block);
            stack.touch(block);
        }
    }
}
