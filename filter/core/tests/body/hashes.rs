//! Block hashes, against values computed with an independent XXH64.

use endpoint_picker::request::body::Api;
use endpoint_picker::request::prompt::block_hashes;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{read, read_limited};

const ALL: usize = usize::MAX;

fn hashes(api: Api, json: &str, model: &str, salt: Option<&str>, block: usize, max: usize) -> Vec<Vec<u64>> {
    let body = read(api, json).unwrap();
    let hashes = block_hashes(&body.prompt, model, salt, block, max);
    let lists: Vec<Vec<u64>> = hashes.lists().map(<[u64]>::to_vec).collect();
    assert_eq!(hashes.all(), lists.concat());
    lists
}

const TEN_TOKENS: &str = r#"{"prompt":[1,2,3,4,5,6,7,8,9,10]}"#;

#[test]
fn token_ids_hash_to_the_golden_chain() {
    assert_eq!(
        hashes(Api::Completions, TEN_TOKENS, "test-model", None, 4, ALL),
        [[0xbbaf_f9ab_40b2_fc24, 0xaccb_2a88_63c7_324c, 0x2ca6_840a_ac25_5efb]]
    );
    assert_eq!(
        hashes(Api::Completions, r#"{"prompt":[1,2]}"#, "m", None, 1, ALL),
        [[0xf198_a5be_82e0_2ff8, 0x98f5_5106_9681_1b0e]]
    );
    assert_eq!(hashes(Api::Completions, r#"{"prompt":[1]}"#, "", None, 64, ALL), [[0xab45_0260_24c8_378d]]);
}

#[test]
fn a_salt_changes_every_hash_of_the_chain() {
    assert_eq!(
        hashes(Api::Completions, TEN_TOKENS, "test-model", Some("salt"), 4, ALL),
        [[0xb137_c078_8c8b_7b4a, 0x02b4_9790_c8fb_0d18, 0xe31b_110a_c3d4_c511]]
    );
    assert_eq!(
        hashes(Api::Completions, TEN_TOKENS, "test-model", Some(""), 4, ALL),
        hashes(Api::Completions, TEN_TOKENS, "test-model", None, 4, ALL),
        "an empty salt is none"
    );
}

#[test]
fn a_completions_body_hashes_to_the_golden_value() {
    let json = r#"{"model":"test-model","prompt":"hello world"}"#;
    assert_eq!(hashes(Api::Completions, json, "test-model", None, 64, ALL), [[0xa87c_e1f9_910f_3da7]]);
    let ids = r#"{"prompt":[1819043176, 1870078063, 6581362]}"#;
    assert_eq!(hashes(Api::Completions, ids, "test-model", None, 64, ALL), [[0xa87c_e1f9_910f_3da7]]);
}

#[test]
fn a_chat_body_hashes_to_the_golden_value_however_it_is_spelled() {
    for json in [
        r#"{"model":"test-model","messages":[{"role":"user","content":"hello"}]}"#,
        r#"{"messages":[{"content":"hello","role":"user"}],"model":"test-model"}"#,
        r#"{"messages":[{"content":"h\u0065llo","role":"us\u0065r"}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hel"},{"text":"lo","type":"text"}]}]}"#,
        r#"{"messages":[{"role":"u"},{"content":"ser"},{"role":"hello","content":null}]}"#,
    ] {
        assert_eq!(hashes(Api::Chat, json, "test-model", None, 64, ALL), [[0xaab2_38db_0d1c_4025]], "{json}");
    }
}

#[test]
fn a_prompt_of_two_blocks_hashes_to_the_golden_chain() {
    let prompt = "The quick brown fox jumps over the lazy dog. ".repeat(8);
    let json = format!(r#"{{"prompt":"{prompt}"}}"#);
    assert_eq!(
        hashes(Api::Completions, &json, "test-model", None, 64, ALL),
        [[0x9338_e7ef_3f65_cfec, 0xa7ea_2128_9a6c_685d]]
    );
    assert_eq!(read(Api::Completions, &json).unwrap().prompt.token_count(), 90);
}

#[test]
fn blocks_are_cut_at_the_block_size_and_the_rest_is_a_block() {
    let count = |ids: &str, block| {
        let json = format!(r#"{{"prompt":{ids}}}"#);
        hashes(Api::Completions, &json, "m", None, block, ALL).concat().len()
    };
    assert_eq!(count("[1,2,3,4,5,6,7,8]", 4), 2);
    assert_eq!(count("[1,2,3,4,5,6,7,8,9,10]", 4), 3);
    assert_eq!(count("[1,2,3]", 0), 0, "no block size, no blocks");
    assert_eq!(count("[1,2,3]", usize::MAX), 0, "a block larger than memory");
}

#[test]
fn no_more_blocks_than_asked_for_are_hashed_of_each_list() {
    let all = hashes(Api::Completions, TEN_TOKENS, "m", None, 4, ALL).concat();
    assert_eq!(hashes(Api::Completions, TEN_TOKENS, "m", None, 4, 2).concat(), all[..2]);
    assert!(hashes(Api::Completions, TEN_TOKENS, "m", None, 4, 0).is_empty());
    let two = hashes(Api::Completions, r#"{"prompt":["aaaabbbb","aaaacccc"]}"#, "m", None, 1, 1);
    assert_eq!(two.len(), 2);
    assert_eq!(two[0], two[1]);
}

#[test]
fn every_prompt_of_several_starts_its_own_chain() {
    let one = |text: &str| {
        hashes(Api::Completions, &format!(r#"{{"prompt":"{text}"}}"#), "m", None, 1, ALL).concat()
    };
    let several =
        hashes(Api::Completions, r#"{"prompt":["hello world","","hello moon"]}"#, "m", None, 1, ALL);
    assert_eq!(several, [one("hello world"), one("hello moon")]);
    assert_eq!(several[0][0], several[1][0], "equal beginnings");
}

#[test]
fn a_cut_prompt_has_only_the_blocks_that_were_kept_whole() {
    let json = r#"{"prompt":"aaaabbbbccccddddeeeeffff"}"#;
    let all = hashes(Api::Completions, json, "m", None, 2, ALL).concat();
    assert_eq!(all.len(), 3);
    for (keep, blocks) in [(0, 0), (7, 0), (8, 1), (15, 1), (16, 2), (23, 2), (24, 3)] {
        let body = read_limited(Api::Completions, json, keep);
        assert_eq!(block_hashes(&body.prompt, "m", None, 2, ALL).all(), &all[..blocks], "{keep} kept");
        assert_eq!(body.prompt.is_cut(), keep < 24);
        assert_eq!(body.prompt.token_count(), 6, "all tokens count");
    }
}

#[test]
fn of_several_prompts_each_is_kept_up_to_the_bound_and_all_up_to_four_times_that() {
    let texts: Vec<String> = (0..6).map(|n| n.to_string().repeat(1_000)).collect();
    let json = serde_json::json!({"prompt": texts}).to_string();
    let all = hashes(Api::Completions, &json, "m", None, 64, ALL);
    assert_eq!((all.len(), all[0].len()), (6, 4));
    let body = read_limited(Api::Completions, &json, 600);
    let found = block_hashes(&body.prompt, "m", None, 64, ALL);
    let kept: Vec<&[u64]> = found.lists().collect();
    assert_eq!(
        kept,
        [&all[0][..2], &all[1][..2], &all[2][..2], &all[3][..2]],
        "2 × 256 of 600 bytes of each"
    );
    assert_eq!((body.prompt.token_count(), body.prompt.is_cut()), (1_500, true));
    assert!(
        !read_limited(Api::Completions, &json, 1_500).prompt.is_cut(),
        "4 × 1500 bytes are enough for all"
    );
}

#[test]
fn all_tokens_count_when_none_is_kept() {
    for json in [
        r#"{"prompt":"aaaabbbb"}"#,
        r#"{"prompt":["aaaabbbb"]}"#,
        r#"{"prompt":["aaaa","bbbb"]}"#,
        r#"{"prompt":[1,2]}"#,
    ] {
        assert_eq!(read_limited(Api::Completions, json, 0).prompt.token_count(), 2, "{json}");
    }
}

#[test]
fn a_prompt_without_tokens_has_no_blocks() {
    for (api, json) in [
        (Api::Completions, r#"{"prompt":[""]}"#),
        (Api::Completions, r#"{"prompt":["",""]}"#),
        (Api::Chat, r#"{"messages":[{}]}"#),
        (Api::Images, r#"{"prompt":"a cat"}"#),
    ] {
        assert!(hashes(api, json, "m", None, 64, ALL).is_empty(), "{json}");
        assert_eq!(read(api, json).unwrap().prompt.token_count(), 0, "{json}");
    }
}
