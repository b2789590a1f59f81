//! The index against an obvious one, its bounds, and hostile blocks.

use std::sync::Arc;

use super::*;
use crate::request::cached_prompt::TierWeights;
use crate::rng::{Rng, SplitMix64};
use crate::state::prefix::key;
use crate::test;

const ROOT: u64 = 1;

const WEIGHTS: TierWeights = TierWeights([1.0, 0.8, 1.0]);

/// The blocks of a text, of this many bytes and four tokens each.
fn blocks(root: u64, text: &str, length: usize) -> Vec<Block> {
    let mut parent = root;
    let blocks = text.as_bytes().chunks_exact(length).map(|block| {
        let key = key::child(parent, block);
        let block = Block { parent, key, length: u32::try_from(length).unwrap(), tokens: 4 };
        parent = key;
        block
    });
    blocks.collect()
}

/// An index with endpoints of these keys, all of them complete.
fn index(endpoints: &[u64]) -> CachedPrefixes {
    let mut index = CachedPrefixes::default();
    index.follow(endpoints.iter().map(|&endpoint| Events { endpoint, by_text: true, by_token_ids: false }));
    index
}

fn store(index: &mut CachedPrefixes, endpoint: u64, tier: Tier, blocks: &[Block]) {
    let holder = index.holder(endpoint).unwrap();
    for block in blocks {
        index.store(holder, tier, Ranks::default(), block);
    }
}

fn remove(index: &mut CachedPrefixes, endpoint: u64, blocks: &[Block]) {
    let holder = index.holder(endpoint).unwrap();
    for block in blocks {
        index.remove(holder, block.key);
    }
}

/// The tokens of a text that each endpoint has, by their keys.
fn tokens(index: &CachedPrefixes, root: u64, text: &str) -> Vec<(u64, u64)> {
    let found = index.find(root, PromptKind::Text, [text.as_bytes()]);
    found.runs().iter().map(|run| (run.endpoint(), run.tokens())).collect()
}

#[test]
fn a_prompt_is_found_up_to_the_last_whole_block_that_an_endpoint_has() {
    let mut index = index(&[7, 8, 9]);
    let of_text = blocks(ROOT, "the quick brown fox jumps", 5);
    store(&mut index, 7, Tier::Gpu, &of_text);
    store(&mut index, 8, Tier::Gpu, &of_text[..2]);
    assert_eq!(tokens(&index, ROOT, "the quick brown fox jumps over"), [(7, 20), (8, 8), (9, 0)]);
    assert_eq!(tokens(&index, ROOT, "the quick brown"), [(7, 12), (8, 8), (9, 0)]);
    assert_eq!(tokens(&index, ROOT, "the quick brow"), [(7, 8), (8, 8), (9, 0)]);
    assert_eq!(tokens(&index, ROOT, "quick brown fox"), [(7, 0), (8, 0), (9, 0)]);
    assert_eq!(tokens(&index, 2, "the quick brown fox"), [(7, 0), (8, 0), (9, 0)], "another model or salt");
}

#[test]
fn a_run_ends_where_a_block_is_missing() {
    let mut index = index(&[7, 8]);
    let of_text = blocks(ROOT, "the quick brown fox jumps", 5);
    store(&mut index, 7, Tier::Gpu, &of_text);
    store(&mut index, 8, Tier::Gpu, &of_text);
    remove(&mut index, 8, &of_text[1..2]);
    assert_eq!(tokens(&index, ROOT, "the quick brown fox jumps"), [(7, 20), (8, 4)]);
    remove(&mut index, 7, &of_text[1..2]);
    assert_eq!(tokens(&index, ROOT, "the quick brown fox jumps"), [(7, 4), (8, 4)]);
    store(&mut index, 8, Tier::Gpu, &of_text[1..2]);
    assert_eq!(
        tokens(&index, ROOT, "the quick brown fox jumps"),
        [(7, 4), (8, 20)],
        "its children are still known"
    );
}

#[test]
fn a_block_weighs_as_its_tier_and_can_move() {
    let mut index = index(&[7]);
    let of_text = blocks(ROOT, "0123456789abcdefghij", 5);
    store(&mut index, 7, Tier::Cpu, &of_text[..3]);
    store(&mut index, 7, Tier::Gpu, &of_text[..2]);
    store(&mut index, 7, Tier::Other, &of_text[3..]);
    let part = |index: &CachedPrefixes, weights| {
        let found = index.find(ROOT, PromptKind::Text, [&b"0123456789abcdefghij"[..]]);
        found.part_of(&found.runs()[0], &weights, 100)
    };
    assert_eq!(part(&index, WEIGHTS), 95);
    assert_eq!(part(&index, TierWeights([0.5, 0.8, 0.0])), 45);
    remove(&mut index, 7, &of_text[..1]);
    assert_eq!(part(&index, WEIGHTS), 0, "the first block is gone");
}

#[test]
fn the_same_text_is_followed_in_both_ways_in_which_it_was_cut() {
    let mut index = index(&[7, 8]);
    let text = "0123456789abcdefghij";
    let by_five = blocks(ROOT, text, 5);
    let mut by_four = blocks(by_five[0].key, &text[5..], 4);
    store(&mut index, 7, Tier::Gpu, &by_five[..2]);
    store(&mut index, 7, Tier::Gpu, &by_four);
    store(&mut index, 8, Tier::Gpu, &by_five);
    assert_eq!(tokens(&index, ROOT, text), [(7, 16), (8, 16)]);
    by_four.truncate(1);
    remove(&mut index, 7, &by_four);
    assert_eq!(tokens(&index, ROOT, text), [(7, 8), (8, 16)]);
}

#[test]
fn several_prompts_add_up() {
    let mut index = index(&[7]);
    store(&mut index, 7, Tier::Gpu, &blocks(ROOT, "0123456789", 5));
    let found = index.find(ROOT, PromptKind::Text, [&b"0123456789"[..], b"01234xxxxx", b"yyyyyyyyyy"]);
    assert_eq!((found.runs()[0].tokens(), found.part_of(&found.runs()[0], &WEIGHTS, 6)), (12, 3));
}

#[test]
fn only_endpoints_whose_events_are_complete_are_found() {
    let mut index = index(&[7, 8]);
    let of_text = blocks(ROOT, "the quick ", 5);
    store(&mut index, 7, Tier::Gpu, &of_text);
    store(&mut index, 8, Tier::Gpu, &of_text);
    let events = |endpoint, by_text| Events { endpoint, by_text, by_token_ids: false };
    index.follow([events(7, false), events(8, true)]);
    assert_eq!(tokens(&index, ROOT, "the quick "), [(8, 8)]);
    index.follow([events(7, true), events(8, true)]);
    assert_eq!(tokens(&index, ROOT, "the quick "), [(7, 8), (8, 8)]);
    index.follow([events(9, true), events(8, true)]);
    assert_eq!(
        tokens(&index, ROOT, "the quick "),
        [(9, 0), (8, 8)],
        "the place of an endpoint that left is free"
    );
    assert_eq!(index.holder(7), None);
    index.follow([]);
    assert_eq!(index.len(), 0);
}

/// Sends random blocks of a small forest, and compares with a map from text to holders.
#[test]
fn the_index_agrees_with_an_obvious_one() {
    let mut rng = SplitMix64::new(5);
    let mut index = index(&[0, 1, 2]);
    let mut obvious = std::collections::BTreeSet::<(u64, String)>::new();
    let lengths = [3, 5];
    for _ in 0..20_000 {
        let endpoint = rng.below(3) as u64;
        let text: String = (0..12).map(|_| if rng.below(3) == 0 { 'b' } else { 'a' }).collect();
        let length = lengths[rng.below(2)];
        let chain = blocks(ROOT, &text, length);
        let tier = Tier::ALL[rng.below(3)];
        let at = rng.below(chain.len());
        let prefix = format!("{length}{}", &text[..(at + 1) * length]);
        if rng.below(2) == 0 {
            obvious.insert((endpoint, prefix));
            store(&mut index, endpoint, tier, &chain[at..=at]);
        } else {
            obvious.remove(&(endpoint, prefix));
            remove(&mut index, endpoint, &chain[at..=at]);
        }
        let expected = |endpoint: u64| {
            let runs = lengths.iter().map(|length| {
                let has =
                    |end: &usize| obvious.contains(&(endpoint, format!("{length}{}", &text[..end * length])));
                (1..=12 / length).take_while(has).count() as u64 * 4
            });
            runs.max().unwrap_or_default()
        };
        assert_eq!(tokens(&index, ROOT, &text), [(0, expected(0)), (1, expected(1)), (2, expected(2))]);
    }
    index.follow([]);
    assert!(index.is_empty());
}

/// The rank of the first endpoint that is named for a text.
fn rank(index: &CachedPrefixes, texts: &[&str]) -> Option<u32> {
    let found = index.find(ROOT, PromptKind::Text, texts.iter().map(|text| text.as_bytes()));
    found.rank_of(&found.runs()[0])
}

#[test]
fn a_rank_is_named_that_has_half_of_a_prompt_and_more_than_others() {
    let mut index = index(&[7, 8]);
    let text = "the quick brown fox jumps over";
    let of_text = blocks(ROOT, text, 5);
    let holder = index.holder(7).unwrap();
    for (block, ranks) in of_text.iter().zip([0b11, 0b11, 0b10, 0b10, 0b01, 0b11]) {
        index.store(holder, Tier::Gpu, Ranks(ranks), block);
    }
    assert_eq!(rank(&index, &[text]), Some(1), "rank 1 has 20 of 30 bytes");
    assert_eq!(rank(&index, &[&text[..10]]), None, "both have all");
    assert_eq!(rank(&index, &[&format!("{text} the lazy dog")]), None, "less than half");
    assert_eq!(rank(&index, &[text, "x"]), None, "two prompts");
    // The run of the endpoint is longer than the run of its rank.
    assert_eq!(tokens(&index, ROOT, text), [(7, 24), (8, 0)]);
    store(&mut index, 8, Tier::Gpu, &of_text);
    assert_eq!(rank(&index, &[text]), Some(1), "shared by another endpoint");
    index.store(holder, Tier::Gpu, Ranks(0b01), &of_text[0]);
    assert_eq!(rank(&index, &[text]), None, "rank 1 lacks the first block");
    index.follow([Events { endpoint: 8, by_text: true, by_token_ids: false }]);
    assert_eq!(rank(&index, &[text]), None, "no ranks");
}

#[test]
fn the_bytes_of_a_search_are_bounded() {
    let text = "x".repeat(65_000);
    for (others, expected) in [(100, 4), (600, 0)] {
        let mut index = index(&[7]);
        let other = |n: u32| Block { parent: ROOT, key: u64::from(1000 + n), length: 64_999 - n, tokens: 1 };
        store(&mut index, 7, Tier::Gpu, &(0..others).map(other).collect::<Vec<_>>());
        store(&mut index, 7, Tier::Gpu, &blocks(ROOT, &text, text.len()));
        assert_eq!(tokens(&index, ROOT, &text), [(7, expected)], "{others}");
    }
}

#[test]
fn hostile_blocks_change_nothing_else() {
    let mut index = index(&[7]);
    let of_text = blocks(ROOT, "the quick ", 5);
    store(&mut index, 7, Tier::Gpu, &of_text);
    let good = of_text[0];
    for hostile in [
        Block { length: 0, key: 99, ..good },
        Block { length: 65_536, key: 99, ..good },
        Block { tokens: 0, key: 99, ..good },
        Block { tokens: 65_536, key: 99, ..good },
        Block { parent: 99, key: 99, ..good },
        Block { parent: 98, ..good },
        Block { length: 6, ..good },
    ] {
        store(&mut index, 7, Tier::Gpu, &[hostile]);
        assert_eq!((index.len(), tokens(&index, ROOT, "the quick ")), (3, vec![(7, 8)]), "{hostile:?}");
    }
    let circle = [Block { parent: 11, key: 10, ..good }, Block { parent: 10, key: 11, ..good }];
    store(&mut index, 7, Tier::Gpu, &circle);
    assert_eq!(tokens(&index, 10, "the quick "), [(7, 0)]);
    index.remove(Holder(99), good.key);
    index.remove(Holder(0), 12_345);
    assert_eq!(tokens(&index, ROOT, "the quick "), [(7, 8)]);
    drop(index.clear());
    assert!(index.is_empty() && index.holder(7).is_some());
}

#[test]
fn a_flood_is_bounded_and_a_node_with_children_of_all_lengths_too() {
    let mut index = index(&[7]);
    let flood = |n: u64| Block { parent: 2, key: n, length: 1, tokens: 1 };
    (3..3 + MAX_NODES as u64 + 10).for_each(|n| store(&mut index, 7, Tier::Gpu, &[flood(n)]));
    assert_eq!(index.len(), MAX_NODES);
    assert!(index.bytes() < 100_000_000, "{}", index.bytes());
    drop(index.clear());
    let lengths =
        (1..=65_535).map(|length| Block { parent: ROOT, key: 1_000 + u64::from(length), length, tokens: 1 });
    store(&mut index, 7, Tier::Gpu, &lengths.collect::<Vec<_>>());
    let text = "x".repeat(70_000);
    assert_eq!(tokens(&index, ROOT, &text), [(7, 0)]);
}

#[test]
fn a_hundred_caches_of_400_000_tokens_take_less_than_25_mb() {
    let endpoints: Vec<u64> = (0..100).collect();
    let mut index = index(&endpoints);
    let mut rng = SplitMix64::new(1);
    for &endpoint in &endpoints {
        let mut parent = ROOT;
        for at in 0..6_250 {
            // A conversation has some 50 blocks.
            let key = rng.next_u64();
            let block =
                Block { parent: if at % 50 == 0 { ROOT } else { parent }, key, length: 256, tokens: 64 };
            store(&mut index, endpoint, Tier::Gpu, &[block]);
            parent = key;
        }
    }
    assert_eq!(index.len(), 625_001);
    assert!(index.bytes() < 25_000_000, "{}", index.bytes());
}

#[test]
fn texts_and_token_ids_are_different_prompts_of_one_model() {
    use crate::request::body::{Api, Body, Options};

    #[derive(Debug)]
    struct Plain;

    impl PromptTexts for Plain {
        fn has_chats(&self) -> bool {
            false
        }

        fn chat(&self, _api: Api, _body: &[u8], _max_bytes: usize) -> Option<String> {
            None
        }

        fn completion(&self, prompt: String) -> String {
            format!("<s>{prompt}")
        }
    }

    let of_request = |has_texts: bool, has_token_ids, api, json: &str, keep_bytes| {
        let texts: Option<Arc<dyn PromptTexts>> = if has_texts { Some(Arc::new(Plain)) } else { None };
        let prompts = MatchedPrompts { texts, has_token_ids };
        let body =
            Body::read_bytes(json.as_bytes(), api, &Options { keep_bytes, ..Options::default() }).unwrap();
        let found = prompts.of_request(api, &body, json.as_bytes(), 100)?;
        assert!(prompts.can_match(api));
        Some((found.kind, found.prompts))
    };
    let ids = |has_texts, has_token_ids, api, json| of_request(has_texts, has_token_ids, api, json, 100);
    let one = Some((PromptKind::TokenIds, vec![vec![1, 0, 0, 0, 0, 1, 0, 0]]));
    let json = r#"{"model":"m","prompt":[1,256]}"#;
    assert_eq!(ids(false, true, Api::Completions, json), one);
    assert_eq!(ids(true, true, Api::Completions, json), one);
    assert_eq!(ids(true, false, Api::Completions, json), None);
    assert_eq!(ids(false, true, Api::Generate, r#"{"model":"m","token_ids":[1,256]}"#), one);
    assert_eq!(ids(true, false, Api::Generate, r#"{"model":"m","token_ids":[1,256]}"#), None);
    assert_eq!(ids(false, true, Api::Embeddings, r#"{"model":"m","input":[1,256]}"#), None);
    let several = ids(false, true, Api::Completions, r#"{"model":"m","prompt":[[1],[2,3]]}"#);
    assert_eq!(
        several.map(|(_, prompts)| prompts),
        Some(vec![vec![1, 0, 0, 0], vec![2, 0, 0, 0, 3, 0, 0, 0]])
    );
    let text = r#"{"model":"m","prompt":"a"}"#;
    assert_eq!(ids(true, true, Api::Completions, text), Some((PromptKind::Text, vec![b"<s>a".to_vec()])));
    assert_eq!(ids(false, true, Api::Completions, text), None, "no texts");
    assert_eq!(of_request(false, true, Api::Completions, json, 7), None, "not kept whole");
    let many = format!(r#"{{"model":"m","prompt":{}[1]]}}"#, "[".to_owned() + &"[1],".repeat(64));
    assert_eq!(of_request(false, true, Api::Completions, &many, 1 << 20), None, "65 prompts");
}

#[test]
fn an_endpoint_may_be_complete_for_one_kind_only() {
    let mut index = CachedPrefixes::default();
    let events = |endpoint, by_text, by_token_ids| Events { endpoint, by_text, by_token_ids };
    index.follow([events(7, true, true), events(8, true, false), events(9, false, true)]);
    let of_ids = blocks(ROOT, "0123", 4);
    store(&mut index, 9, Tier::Gpu, &of_ids);
    let tokens = |kind| {
        let found = index.find(ROOT, kind, [&b"0123"[..]]);
        assert_eq!(found.kind(), kind);
        found.runs().iter().map(|run| (run.endpoint(), run.tokens())).collect::<Vec<_>>()
    };
    assert_eq!(tokens(PromptKind::Text), [(7, 0), (8, 0)]);
    assert_eq!(tokens(PromptKind::TokenIds), [(7, 0), (9, 4)]);
}
