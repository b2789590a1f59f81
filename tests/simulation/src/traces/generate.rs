//! Traces with the statistics of published ones, as text in their form.
//!
//! Statistics were computed from the files on 2026-11-29: of the repository `kvcache-ai/Mooncake`
//! `FAST25-release/traces/conversation_trace.jsonl`, of `Azure/AzurePublicDataset`
//! `data/AzureLLMInferenceTrace_code.csv`.

use super::draw::{Quantiles, exponential, lognormal};
use core::fmt::Write;
use endpoint_picker::rng::{Rng, SplitMix64};
use metrics_agent_replay::simulation::request::mixed;

/// Prompts of requests that begin a conversation. Means: 12 035 of all prompts, 343 of responses.
const FIRST_PROMPT: Quantiles =
    Quantiles([890.0, 907.0, 3_000.0, 5_942.0, 12_000.0, 26_557.0, 87_730.0, 126_195.0]);
const RESPONSE: Quantiles = Quantiles([1.0, 24.0, 130.0, 350.0, 450.0, 597.0, 1_120.0, 2_000.0]);
/// Tokens of a turn behind the response before it.
const MESSAGE: Quantiles = Quantiles([1.0, 5.0, 15.0, 47.0, 500.0, 4_287.0, 16_705.0, 50_000.0]);
/// Share of the requests that continue a conversation: 4 037 of 12 031.
const CONTINUED: f64 = 0.336;
/// Seconds between two turns: the median, and the standard deviation of the logarithm.
const BETWEEN_TURNS: (f64, f64) = (150.0, 0.98);
/// Times are multiples of three seconds, at each of which some ten requests come.
const STEP_SECONDS: f64 = 3.0;
const PER_STEP: f64 = 10.2;
const BLOCK: u32 = 512;

/// A conversation that may continue.
struct Conversation {
    /// When its next turn comes, in seconds.
    due: f64,
    tokens: u32,
    blocks: Vec<u64>,
}

/// Requests like those of Mooncake's conversation trace, whose first block is common to all.
pub(super) fn mooncake(requests: usize, seed: u64) -> String {
    let mut rng = SplitMix64::new(mixed(seed));
    let (mut text, mut next_block) = (String::new(), 1);
    let mut open: Vec<Conversation> = Vec::new();
    for number in 0..requests {
        let at = (number as f64 / PER_STEP).floor() * STEP_SECONDS;
        let due = open.iter().position(|conversation| conversation.due <= at);
        let (before, mut blocks) = match due {
            Some(place) => {
                let Conversation { tokens, blocks, .. } = open.swap_remove(place);
                (Some(tokens), blocks)
            }
            None => (None, vec![0]),
        };
        let input = match before {
            Some(tokens) => (tokens + MESSAGE.whole(&mut rng)).min(126_195),
            None => FIRST_PROMPT.whole(&mut rng),
        };
        // The last block of the turn before was not full, so this turn has another one in its place.
        let kept = before.map_or(1, |tokens| (tokens / BLOCK).max(1));
        blocks.truncate(kept as usize);
        while blocks.len() < input.div_ceil(BLOCK) as usize {
            blocks.push(next_block);
            next_block += 1;
        }
        let output = RESPONSE.whole(&mut rng);
        let _ = writeln!(
            text,
            "{{\"timestamp\": {:.0}, \"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": {blocks:?}}}",
            at * 1e3
        );
        if rng.unit() < CONTINUED {
            let (median, deviation) = BETWEEN_TURNS;
            let due = at + lognormal(median, deviation, &mut rng);
            // The prompt is kept, and the response is in no block before the next prompt.
            open.push(Conversation { due, tokens: input, blocks });
        }
    }
    text
}

/// Lengths of Azure's trace of code completion, whose means are 2 048 and 28 tokens. Few responses are longer
/// than 700; the longest has 1 899.
const CODE: Quantiles = Quantiles([3.0, 147.0, 578.0, 1_469.0, 2_745.0, 5_194.0, 7_436.0, 7_437.0]);
const COMPLETION: Quantiles = Quantiles([1.0, 7.0, 9.0, 13.0, 24.0, 55.0, 252.0, 700.0]);
/// Requests come in spells with pauses between: of ten seconds in a row half have none, and a twentieth more
/// than 126, in the mean 25.7.
const SPELL_SECONDS: f64 = 20.0;
const PAUSE_SECONDS: f64 = 25.0;
const PER_SECOND: f64 = 5.8;

/// Requests like those of Azure's trace of code completion.
pub(super) fn azure(requests: usize, seed: u64) -> String {
    let mut rng = SplitMix64::new(mixed(seed));
    let mut text = "TIMESTAMP,ContextTokens,GeneratedTokens\n".to_owned();
    let (mut at, mut spell_end) = (0.0, 0.0);
    for _ in 0..requests {
        at += exponential(1.0 / PER_SECOND, &mut rng);
        if at > spell_end {
            at += exponential(PAUSE_SECONDS, &mut rng);
            spell_end = at + exponential(SPELL_SECONDS, &mut rng);
        }
        let time = at % 86_400.0;
        let (hours, minutes, seconds) = ((time / 3_600.0).floor(), (time / 60.0).floor() % 60.0, time % 60.0);
        let day = 16.0 + (at / 86_400.0).floor();
        let (input, output) = (CODE.whole(&mut rng), COMPLETION.whole(&mut rng));
        let _ = writeln!(text, "2023-11-{day:02} {hours:02}:{minutes:02}:{seconds:010.7},{input},{output}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_agent_replay::record::Record;
    use std::collections::HashSet;

    fn mean(record: &Record, of: impl Fn(usize) -> u32) -> f64 {
        let sum: u64 = (0..record.requests.len()).map(|place| u64::from(of(place))).sum();
        sum as f64 / record.requests.len() as f64
    }

    #[test]
    fn conversations_have_the_lengths_and_the_sharing_of_the_published_trace() {
        let record = Record::read(mooncake(12_031, 1).as_bytes()).unwrap();
        let (mut known, mut blocks, mut shared) = (HashSet::new(), 0_usize, 0_usize);
        for request in &record.requests {
            for block in record.blocks(request) {
                blocks += 1;
                shared += usize::from(!known.insert(*block));
            }
        }
        let (input, output) = (
            mean(&record, |place| record.requests[place].input),
            mean(&record, |place| record.requests[place].output),
        );
        let shared = shared as f64 / blocks as f64;
        let lasting = record.requests.last().unwrap().at.as_secs_f64();
        println!("{input:.0} tokens, {output:.0} of responses, {shared:.3} shared, {lasting} s");
        // The file: 12 035, 343, 0.366 and 3 537 s.
        assert!((10_500.0..13_500.0).contains(&input) && (310.0..380.0).contains(&output));
        assert!((0.32..0.42).contains(&shared) && (3_400.0..3_700.0).contains(&lasting));
        assert_eq!(record.block_tokens, 512);
    }

    #[test]
    fn completions_have_the_lengths_and_the_bursts_of_the_published_trace() {
        let record = Record::read(azure(8_819, 1).as_bytes()).unwrap();
        let (input, output) = (
            mean(&record, |place| record.requests[place].input),
            mean(&record, |place| record.requests[place].output),
        );
        let lasting = record.requests.last().unwrap().at.as_secs();
        let mut each = vec![0_u32; usize::try_from(lasting / 10).unwrap() + 1];
        for request in &record.requests {
            each[usize::try_from(request.at.as_secs() / 10).unwrap()] += 1;
        }
        let idle = each.iter().filter(|number| **number == 0).count() as f64 / each.len() as f64;
        println!("{input:.0} tokens, {output:.0} of responses, {lasting} s, {idle:.2} idle");
        // The file: 2 048, 28, 3 436 s, and half of the spans of ten seconds are idle.
        assert!((1_900.0..2_300.0).contains(&input) && (24.0..34.0).contains(&output));
        assert!((2_900..4_000).contains(&lasting) && (0.3..0.6).contains(&idle));
    }

    #[test]
    fn equal_seeds_give_equal_traces_and_others_do_not() {
        for trace in [mooncake, azure] {
            assert_eq!(trace(50, 7), trace(50, 7));
            assert_ne!(trace(50, 7), trace(50, 8));
        }
    }
}
