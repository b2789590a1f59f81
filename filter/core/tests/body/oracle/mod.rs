//! A slow and obvious second reading of bodies, over a tree and one buffer, must agree with the first.

mod bodies;
mod tree;

use core::cell::Cell;

use bodies::{Json, chat, given};
use endpoint_picker::request::body::Api;
use endpoint_picker::request::prompt::block_hashes;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use tree::{from_tree, plain_hashes};

use crate::read;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

const SEED: u64 = 0x5eed_b0d1;

fn agree(api: Api, bodies: impl Strategy<Value = Json>) {
    let seed = option_env!("PROPERTY_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(Config::with_cases(600), rng);
    let accepted = Cell::new(0);
    let refused = Cell::new(0);
    let inputs = (bodies, select(vec!["", " ", "\r\n\t"]), 1..9_usize);
    let run = runner.run(&inputs, |(body, blank, block)| {
        let mut json = String::new();
        body.write(blank, &mut json);
        let tree: Value = serde_json::from_str(&json).unwrap();
        let Some((model, stream, limit, lists)) = from_tree(api, &tree) else {
            prop_assert!(read(api, &json).is_err(), "{json} should be refused");
            refused.set(refused.get() + 1);
            return Ok(());
        };
        let body = read(api, &json).map_err(|error| TestCaseError::fail(format!("{json}: {error}")))?;
        prop_assert_eq!(body.model.as_deref(), model.as_deref());
        prop_assert_eq!(body.stream, stream);
        prop_assert_eq!(body.max_output_tokens, limit);
        let salt = tree["cache_salt"].as_str().unwrap_or_default();
        prop_assert_eq!(body.cache_salt.as_deref().unwrap_or_default(), salt);
        if let Some(span) = body.model_span {
            prop_assert_eq!(&serde_json::from_str::<Value>(&json[span]).unwrap(), &tree["model"]);
        } else {
            prop_assert!(tree.get("model").is_none());
        }
        let tokens: usize = lists.iter().map(|list| list.len().div_ceil(4)).sum();
        prop_assert_eq!(body.prompt.token_count(), tokens as u64);
        let hashes: Vec<Vec<u64>> = lists
            .iter()
            .map(|list| plain_hashes(list, "m", salt, block))
            .filter(|list| !list.is_empty())
            .collect();
        let found = block_hashes(&body.prompt, "m", body.cache_salt.as_deref(), block, usize::MAX);
        prop_assert_eq!(found.lists().map(<[u64]>::to_vec).collect::<Vec<_>>(), hashes, "{}", json);
        accepted.set(accepted.get() + 1);
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    // Both outcomes must occur in many of the cases.
    assert!(accepted.get() > 150 && refused.get() > 20, "seed {seed}: {accepted:?} {refused:?}");
}

#[test]
fn chat_bodies_are_read_like_their_trees() {
    agree(Api::Chat, chat());
}

#[test]
fn completions_bodies_are_read_like_their_trees() {
    agree(Api::Completions, given("prompt"));
}

#[test]
fn responses_bodies_are_read_like_their_trees() {
    agree(Api::Responses, given("input"));
}
