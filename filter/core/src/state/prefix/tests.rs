//! The index against an obvious one, and what it holds and leaves out.

use super::*;
use crate::rng::{Rng, SplitMix64};
use crate::test;
use std::collections::{BTreeSet, VecDeque};
use xxhash_rust::xxh64::xxh64;

fn matches(index: &PrefixIndex, hashes: &[u64], endpoints: usize) -> Vec<u32> {
    let mut matched = vec![0; endpoints];
    index.count_matches(hashes, &mut matched);
    matched
}

fn known(index: &PrefixIndex) -> BTreeSet<u64> {
    index.heads.iter().flat_map(|&head| index.arena.run(head)).collect()
}

#[test]
fn a_prompt_matches_where_it_was_sent() {
    let mut index = PrefixIndex::default();
    index.add(0, &[1, 2], 100);
    index.add(2, &[1, 2], 100);
    assert_eq!(matches(&index, &[1, 3], 3), [1, 0, 1]);
    assert_eq!(matches(&index, &[1, 2, 3], 3), [2, 0, 2]);
    assert_eq!(matches(&index, &[3, 1, 2], 3), [0, 0, 0], "matching stops at the first unknown block");
}

#[test]
fn the_block_added_longest_ago_is_forgotten_first() {
    let mut index = PrefixIndex::default();
    for hash in [1, 2, 3] {
        index.add(0, &[hash], 2);
    }
    assert_eq!([1, 2, 3].map(|hash| matches(&index, &[hash], 1)[0]), [0, 1, 1]);
    index.add(0, &[2], 2);
    index.add(0, &[4], 2);
    assert_eq!([2, 3, 4].map(|hash| matches(&index, &[hash], 1)[0]), [1, 0, 1], "adding again is use");
}

#[test]
fn looking_up_is_not_use() {
    let mut index = PrefixIndex::default();
    index.add(0, &[1, 2], 2);
    matches(&index, &[1], 1);
    index.add(0, &[3], 2);
    assert_eq!(matches(&index, &[1], 1), [0]);
}

#[test]
fn a_count_need_not_be_contiguous() {
    let mut index = PrefixIndex::default();
    index.add(0, &[1, 2, 3], 2);
    index.add(1, &[1], 2);
    assert_eq!(matches(&index, &[1, 2, 3], 2), [2, 1]);
}

#[test]
fn endpoints_that_stay_keep_their_blocks_when_the_pool_changes() {
    let mut index = PrefixIndex::default();
    index.add(0, &[1], 9);
    index.add(1, &[1, 2], 9);
    index.add(2, &[1, 2, 3], 9);
    index.remap(&[None, Some(1), Some(0)]);
    assert_eq!(matches(&index, &[1, 2, 3], 2), [3, 2]);
    assert_eq!(index.len(), 5);
}

#[test]
fn the_hash_that_marks_vacancy_is_usable() {
    let mut index = PrefixIndex::default();
    index.add(0, &[0], 9);
    assert_eq!(matches(&index, &[0], 1), [1]);
}

#[test]
fn a_capacity_of_nothing_or_everything_is_bounded() {
    let mut index = PrefixIndex::default();
    index.add(0, &[1, 2], 0);
    assert_eq!(index.len(), 1);
    let (most, slack) = (MAX_BLOCKS_PER_ENDPOINT, MAX_BLOCKS_PER_ENDPOINT / SLACK_SHARE);
    index.add(1, &chain(0..(most + slack) as u64), usize::MAX);
    assert_eq!(index.len(), 1 + most + slack);
    index.add(1, &[1], usize::MAX);
    assert_eq!(index.len(), 1 + most, "one too many, and it is back at its bound");
}

/// The hashes of a list of tokens, each standing for all up to there.
fn chain(tokens: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let link = |previous: &mut u64, token: u64| {
        *previous = xxh64(&token.to_le_bytes(), *previous);
        Some(*previous)
    };
    tokens.into_iter().scan(0, link).collect()
}

#[test]
fn a_prompt_is_fresh_until_many_others_were_sent() {
    let mut index = PrefixIndex::default();
    let prompt = chain(0..12);
    assert_eq!(index.fresh(0, &prompt), 0, "unknown");
    index.add(0, &prompt[..5], 160);
    assert_eq!(index.fresh(0, &prompt), 5, "what is new is not");
    index.add(0, &prompt[5..10], 160);
    assert_eq!((index.fresh(0, &prompt), index.fresh(1, &prompt)), (10, 0), "in two parts");
    assert_eq!(matches(&index, &prompt, 1), [10]);
    index.add(0, &[1], 160);
    assert_eq!(index.fresh(0, &prompt), 0, "its beginning is older than the newest sixteenth");
    index.add(0, &[2, 3], 15);
    index.add(1, &[2, 3], 15);
    assert_eq!((index.fresh(0, &[2, 3]), index.fresh(1, &[2, 3])), (2, 0), "a sixteenth of 15 is none");
}

#[test]
fn nothing_is_fresh_for_one_who_missed_it() {
    let mut index = PrefixIndex::default();
    index.add(0, &[1, 2], 160);
    index.resend();
    assert_eq!(index.fresh(0, &[1, 2]), 0);
    index.add(0, &[3], 160);
    assert_eq!((index.fresh(0, &[1, 2]), index.fresh(0, &[3])), (0, 1));
    index.add(0, &[1, 2], 160);
    assert_eq!(index.fresh(0, &[1, 2]), 2);
}

#[test]
fn a_block_that_stands_twice_counts_once() {
    let (mut index, capacity, prompt) = (PrefixIndex::default(), 160, chain(0..7));
    index.add(0, &prompt[..5], capacity);
    index.add(0, &chain(10..15), capacity);
    assert_eq!(index.fresh(0, &prompt), 5);
    index.add(0, &prompt[5..], capacity);
    index.add(0, &chain(100..259), capacity);
    assert_eq!((index.len(), matches(&index, &prompt, 1)), (capacity, vec![0]), "its beginning is forgotten");
    index.add(0, &prompt, capacity);
    assert_eq!((index.len(), known(&index).len()), (capacity + 7, capacity + 6));
    assert_eq!(matches(&index, &prompt, 1), [7]);
    index.add(0, &chain(300..304), capacity);
    assert_eq!((index.len(), known(&index).len()), (capacity, capacity), "blocks stored twice go first");
    assert_eq!(matches(&index, &prompt, 1), [7]);
}

#[test]
fn what_was_missed_and_is_told_later_counts_once() {
    let (mut index, prompt) = (PrefixIndex::default(), chain(0..7));
    index.add(0, &prompt[5..], 160);
    index.add(0, &prompt, 160);
    assert_eq!(matches(&index, &prompt, 1), [7]);
    index.add(0, &prompt, 160);
    assert_eq!(
        (matches(&index, &prompt, 1), index.len()),
        (vec![7], 9),
        "it does not grow when it comes again"
    );
    index.add(0, &chain(100..252), 160);
    index.add(0, &prompt, 160);
    index.add(0, &chain(300..310), 160);
    assert_eq!((index.len(), known(&index).len()), (160, 160), "the older went first");
    assert_eq!(matches(&index, &prompt, 1), [7]);
}

#[test]
fn the_newest_fifteen_sixteenths_are_remembered_and_nothing_beyond_eighteen() {
    for seed in 0..3 {
        let mut rng = SplitMix64::new(seed);
        let (mut index, capacity) = (PrefixIndex::default(), 480);
        let mut all = Obvious { logs: vec![VecDeque::new()] };
        let (mut left_out, slack) = (0, capacity / SLACK_SHARE);
        for step in 0..600 {
            let length = 1 + rng.below(40);
            let prompt = chain((0..length).map(|_| u64::from(rng.below(8) == 0)));
            let fresh = index.fresh(0, &prompt);
            index.add(0, &prompt[fresh..], capacity);
            left_out += fresh;
            all.add(0, &prompt, usize::MAX);
            let known = known(&index);
            let newest = |most| all.logs[0].iter().rev().take(most).map(|&hash| stored(hash));
            assert!(newest(capacity - slack).all(|hash| known.contains(&hash)), "seed {seed}, step {step}");
            // Eviction keeps a block 1/16 longer, and the log may have another 1/16 of newer blocks before
            // it: they were left out as fresh when they came again.
            let newest: BTreeSet<u64> = newest(capacity + 2 * slack).collect();
            assert!(known.is_subset(&newest), "seed {seed}, step {step}");
        }
        assert!(left_out > 600 && index.len() >= capacity, "seed {seed}: {left_out} were left out");
    }
}

#[test]
fn a_prompt_is_matched_across_the_ends_of_pages() {
    let mut index = PrefixIndex::default();
    let long = chain(0..1_000);
    index.add(0, &long[..700], 10_000);
    index.add(0, &chain([7, 8]), 10_000);
    index.add(1, &long, 10_000);
    assert_eq!(matches(&index, &long, 2), [700, 1_000]);
    index.add(0, &long[..300], 10_000);
    assert_eq!(matches(&index, &long, 2), [700, 1_000], "the part that was not sent again stays");
    assert_eq!(index.len(), 1_702);
}

#[test]
fn memory_stays_within_24_bytes_per_block_however_often_blocks_are_used_again() {
    let seed = 3;
    let mut rng = SplitMix64::new(seed);
    // Prompts of one block are the worst there is.
    for blocks in [1, 2, 20, 500] {
        let mut index = PrefixIndex::default();
        let prompts = 20_000 / blocks;
        let prompt = |number: u64| chain([number].into_iter().chain(1..blocks));
        for endpoint in 0..4 {
            (0..prompts).for_each(|number| index.add(endpoint, &prompt(number), 31_250));
        }
        for _ in 0..2_000 {
            let length = 1 + rng.below(prompt(0).len());
            index.add(rng.below(4), &prompt(rng.next_u64() % prompts)[..length], 31_250);
        }
        assert_eq!(index.len(), 80_000);
        let each = index.bytes() as f64 / index.len() as f64;
        assert!(each <= 24.0, "{each} bytes per block and endpoint, {blocks} blocks a prompt, seed {seed}");
    }
}

/// The EPP's rules, obvious and slow.
struct Obvious {
    logs: Vec<VecDeque<u64>>,
}

impl Obvious {
    fn add(&mut self, endpoint: usize, hashes: &[u64], capacity: usize) {
        let log = &mut self.logs[endpoint];
        for &hash in hashes {
            log.retain(|&known| known != hash);
            log.push_back(hash);
            if log.len() > capacity {
                log.pop_front();
            }
        }
    }

    fn matches(&self, hashes: &[u64]) -> Vec<u32> {
        let known: BTreeSet<u64> = self.logs.iter().flatten().copied().collect();
        let walked: Vec<u64> = hashes.iter().copied().take_while(|hash| known.contains(hash)).collect();
        let count = |log: &VecDeque<u64>| walked.iter().filter(|hash| log.contains(hash)).count();
        self.logs.iter().map(|log| u32::try_from(count(log)).unwrap()).collect()
    }
}

#[test]
fn without_slack_and_without_an_end_the_index_agrees_with_the_obvious_one() {
    for (seed, capacity) in (0..).zip([SLACK_SHARE - 1, MAX_BLOCKS_PER_ENDPOINT].repeat(4)) {
        let mut rng = SplitMix64::new(seed);
        let mut index = PrefixIndex::default();
        let mut obvious = Obvious { logs: vec![VecDeque::new(); 4] };
        for step in 0..400 {
            // Prompts of a tree, so that many share their beginnings.
            let length = 1 + rng.below(40);
            let prompt = chain((0..length).map(|_| u64::from(rng.below(8) == 0)));
            assert_eq!(matches(&index, &prompt, 4), obvious.matches(&prompt), "seed {seed}, step {step}");
            let endpoint = rng.below(4);
            index.add(endpoint, &prompt, capacity);
            obvious.add(endpoint, &prompt, capacity);
        }
        assert_eq!(index.len(), obvious.logs.iter().map(VecDeque::len).sum::<usize>(), "seed {seed}");
    }
}

/// The words of responses whose prompt of 640 tokens was predicted to be cached, and was not, or the other
/// way round.
fn samples(predicted: u64, actual: u64, count: usize) -> Vec<Words> {
    let cached = Some(actual);
    let prediction = UsagePrediction {
        plugin: 0,
        endpoint: 0,
        model: 0,
        estimated: 1_000,
        matched: predicted,
        cached: None,
        block: 64,
        is_learning: true,
    };
    let usage = crate::response::usage::Usage { input: 1_000, cached, ..Default::default() };
    let cached = prediction.cached_tokens(&usage);
    vec![prediction.sample(&usage, cached, Duration::ZERO).unwrap().words; count]
}

#[test]
fn an_endpoint_that_had_less_than_predicted_keeps_fewer_blocks_and_more_again_later() {
    let chain: Vec<u64> = (1..=320).collect();
    let learnt = Capacity { is_learnt: true, ..Capacity::first(320) };
    let held = |index: &mut PrefixIndex, capacity| {
        index.apply(0, Duration::ZERO, &PrefixIndex::words(capacity, &chain));
        matches(index, &chain, 1)[0]
    };
    let mut index = PrefixIndex::default();
    assert_eq!(held(&mut index, learnt), 320);
    for words in samples(640, 0, 40) {
        assert!(index.can_read(&words));
        index.apply(0, Duration::ZERO, &words);
    }
    let whole = held(&mut index, Capacity::first(320));
    assert_eq!(whole, 320, "a plugin that does not learn has the whole capacity");
    index.apply(0, Duration::ZERO, &PrefixIndex::words(learnt, &[400]));
    assert_eq!(matches(&index, &chain, 1), [0], "evicted, with the oldest first");
    assert!(index.len() <= 20);
    for words in samples(0, 640, 40) {
        index.merge(0, Duration::ZERO, &words);
    }
    assert_eq!(held(&mut index, learnt), 320);
}

#[test]
fn a_restarted_endpoint_begins_with_its_whole_capacity() {
    let mut index = PrefixIndex::default();
    for words in samples(640, 0, 40) {
        index.apply(1, Duration::ZERO, &words);
    }
    index.remap(&[Some(0), None]);
    let chain: Vec<u64> = (1..=320).collect();
    let learnt = Capacity { is_learnt: true, ..Capacity::first(320) };
    index.apply(1, Duration::ZERO, &PrefixIndex::words(learnt, &chain));
    assert_eq!(matches(&index, &chain, 2), [0, 320]);
}

#[test]
fn a_current_capacity_replaces_an_earlier_one_and_a_first_one_does_not() {
    let mut index = PrefixIndex::default();
    let mut held_of = |blocks, is_current, chain: core::ops::Range<u64>| {
        let capacity = Capacity { is_current, ..Capacity::first(blocks) };
        index.apply(0, Duration::ZERO, &PrefixIndex::words(capacity, &chain.collect::<Vec<_>>()));
        index.len()
    };
    assert_eq!(held_of(1_000, false, 0..900), 900);
    assert_eq!(held_of(100, false, 900..1_000), 1_000, "as in the EPP");
    assert_eq!(held_of(100, true, 1_000..1_001), 100);
    assert_eq!(held_of(200, true, 2_000..2_100), 200);
    assert_eq!(held_of(5_000, false, 3_000..3_100), 200);
}

#[test]
fn words_that_no_change_has_are_refused() {
    let index = PrefixIndex::default();
    assert!(index.can_read(&[100, 1, 2]));
    for words in [&[][..], &[SAMPLE], &[SAMPLE, 1, 2], &[SAMPLE, 1, 2, 3, 4], &[SAMPLE, 1, 2, 3, 4, 5, 6]] {
        assert!(!index.can_read(words), "{words:?}");
    }
}

fn sent(index: &PrefixIndex, chain: &[u64], since: u64) -> Vec<u32> {
    let mut sent = vec![0; 2];
    index.count_sent_since(chain, Duration::from_millis(since), &mut sent);
    sent
}

#[test]
fn what_was_sent_lately_is_known_for_the_given_time() {
    let mut index = PrefixIndex::with_recent(Duration::from_secs(2));
    let add = |index: &mut PrefixIndex, endpoint, at, chain: &[u64]| {
        index.apply(endpoint, Duration::from_millis(at), &PrefixIndex::words(Capacity::first(1_000), chain));
    };
    add(&mut index, 0, 1_000, &[1, 2, 3]);
    add(&mut index, 1, 2_000, &[1, 2]);
    assert_eq!(sent(&index, &[1, 2, 3, 4], 1_000), [3, 2]);
    assert_eq!(sent(&index, &[1, 2, 3, 4], 1_001), [0, 2]);
    assert_eq!(sent(&index, &[1, 9], 0), [1, 1]);
    assert_eq!(sent(&index, &[1, 2, 3, 4], 2_001), [0, 0]);
    add(&mut index, 0, 2_500, &[1, 2, 3, 4]);
    assert_eq!(sent(&index, &[1, 2, 3, 4], 2_001), [4, 0], "sent again");
    assert_eq!(index.fresh_since(0, &[1, 2, 3, 4], Duration::from_millis(2_500)), 4);
    assert_eq!(index.fresh_since(0, &[1, 2, 3, 4], Duration::from_millis(2_501)), 0);
    assert_eq!(matches(&index, &[1, 2, 3, 4], 2), [4, 2]);
    // Only the blocks that are not fresh are added; those before them were sent as well.
    add(&mut index, 0, 4_000, &[5]);
    assert_eq!(sent(&index, &[1, 2, 3, 4, 5], 3_000), [5, 0]);
}

#[test]
fn what_was_sent_lately_is_known_when_a_log_is_rewritten() {
    let chain_of = |prompt: u8| (0..40).map(|block| xxh64(&[prompt, block], 7)).collect::<Vec<u64>>();
    let mut index = PrefixIndex::with_recent(Duration::from_secs(2));
    let mut rng = SplitMix64::new(3);
    let mut sent_at = [None; 50];
    let mut rewritten = 0;
    for n in 0..2_000 {
        let now = Duration::from_millis(n * 3);
        let prompt = u8::try_from(rng.below(50)).unwrap();
        index.apply(0, now, &PrefixIndex::words(Capacity::first(100_000), &chain_of(prompt)));
        sent_at[usize::from(prompt)] = Some(now);
        // An addition makes blocks fresh, and a rewrite makes none.
        rewritten += usize::from(index.logs[0].fresh == 0);
        let since = now.saturating_sub(Duration::from_millis(rng.next_u64() % 1_800));
        let other = u8::try_from(rng.below(50)).unwrap();
        let mut sent = [0];
        index.count_sent_since(&chain_of(other), since, &mut sent);
        match sent_at[usize::from(other)] {
            Some(at) if at >= since + Duration::from_millis(125) => {
                assert_eq!(sent, [40], "{other} at {now:?}");
            }
            Some(at) if at >= since => {}
            Some(_) | None => assert_eq!(sent, [0], "{other} at {now:?}"),
        }
    }
    assert!(rewritten > 10, "{rewritten}");
}
