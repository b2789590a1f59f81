use super::batch::{BLOCK_TOKENS, Batch, BatchRequest, PrefixCacheCounts, Progress, TOKEN_BYTES};
use crate::service_times::{Allocation, ServiceTimes};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const BLOCK: usize = BLOCK_TOKENS as usize;

/// A step takes 10 ms, 1 ms more for each request that decodes, and each token that is read 1 ms.
const TIMES: ServiceTimes = ServiceTimes {
    max_running: 2,
    step: Duration::from_millis(10),
    step_per_sequence: MS,
    step_per_context_token: Duration::ZERO,
    prefill_per_token: MS,
    doubling_context: None,
    reads_apart: false,
    max_batched_tokens: 100,
    kv_blocks: 100,
    allocation: Allocation::AtOnce,
    max_loras: 1,
    lora_load: Duration::from_millis(500),
    stream_interval: 1,
};

fn batch(times: ServiceTimes) -> Batch<u32> {
    Batch::new(times)
}

/// Some prompt of this many tokens.
fn asked(number: u8, tokens: usize, answer: u64) -> BatchRequest {
    BatchRequest::new(None, &vec![number; tokens * TOKEN_BYTES], answer)
}

/// The requests that ended with the step.
fn end(batch: &mut Batch<u32>) -> Vec<u32> {
    let mut ended = Vec::new();
    batch.end_step(|&mut request, progress| {
        if progress.is_all {
            ended.push(request);
        }
        true
    });
    ended
}

#[test]
fn a_prompt_is_read_once_and_then_every_step_makes_a_token() {
    let mut batch = batch(TIMES);
    assert_eq!(batch.begin_step(), None);
    batch.add(asked(1, 5, 2), 1);
    assert_eq!(batch.begin_step(), Some(15 * MS));
    assert!(end(&mut batch).is_empty());
    assert_eq!(batch.begin_step(), Some(11 * MS));
    assert_eq!(end(&mut batch), [1]);
    assert_eq!(batch.begin_step(), None);
}

#[test]
fn what_is_cached_is_not_read_again_but_for_the_last_token() {
    let mut batch = batch(TIMES);
    for expected in [10 * MS + 32 * MS, 10 * MS + MS] {
        batch.add(asked(1, 2 * BLOCK, 1), 1);
        assert_eq!(batch.begin_step(), Some(expected));
        end(&mut batch);
    }
    assert_eq!(batch.prefix_cache(), PrefixCacheCounts { queried: 64, hit: 32 });
}

#[test]
fn a_step_reads_no_more_than_its_budget() {
    let mut batch = batch(ServiceTimes { max_batched_tokens: 20, ..TIMES });
    batch.add(asked(1, 30, 1), 1);
    assert_eq!(batch.begin_step(), Some(30 * MS));
    assert!(end(&mut batch).is_empty());
    assert_eq!(batch.begin_step(), Some(20 * MS));
    assert_eq!(end(&mut batch), [1]);
}

#[test]
fn prompts_read_apart_the_steps_make_none_longer_and_wait_for_none() {
    let mut batch = batch(ServiceTimes { reads_apart: true, ..TIMES });
    batch.add(asked(1, 10, 3), 1);
    assert_eq!(batch.begin_step(), Some(10 * MS));
    assert!(end(&mut batch).is_empty());
    // Both decode and read: 11 ms, in which 11 of 20 tokens are read.
    batch.add(asked(2, 20, 1), 2);
    for ended in [&[][..], &[1, 2]] {
        assert_eq!(batch.begin_step(), Some(11 * MS));
        assert_eq!(end(&mut batch), ended);
    }
}

#[test]
fn one_over_the_batch_waits() {
    let mut batch = batch(TIMES);
    for request in 1..=3 {
        batch.add(asked(1, 1, 1), request);
    }
    batch.begin_step();
    assert_eq!((batch.running(), batch.waiting()), (2, 1));
    assert_eq!(end(&mut batch), [1, 2]);
    batch.begin_step();
    assert_eq!(end(&mut batch), [3]);
}

#[test]
fn a_request_waits_until_its_blocks_fit() {
    let mut batch = batch(ServiceTimes { kv_blocks: 4, ..TIMES });
    batch.add(asked(1, 3 * BLOCK, 1), 1);
    batch.add(asked(2, 3 * BLOCK, 1), 2);
    batch.begin_step();
    assert_eq!((batch.running(), batch.waiting()), (1, 1));
    assert!((batch.cache_usage() - 1.0).abs() < 1e-9);
    end(&mut batch);
    batch.begin_step();
    assert_eq!(end(&mut batch), [2]);
    assert!(batch.cache_usage() < 1e-9);
}

#[test]
fn an_adapter_costs_its_loading_and_others_pass_one_that_has_no_place() {
    let mut batch = batch(TIMES);
    let with = |adapter| BatchRequest::new(adapter, b"1234", 2);
    batch.add(with(Some("a")), 1);
    batch.add(with(Some("b")), 2);
    batch.add(with(None), 3);
    assert_eq!(batch.begin_step(), Some(10 * MS + 500 * MS + 2 * MS));
    assert_eq!(batch.adapters(), [vec!["a".to_owned()], vec!["b".to_owned()]]);
    assert_eq!((batch.running(), batch.waiting()), (2, 1));
    end(&mut batch);
    batch.begin_step();
    assert_eq!(end(&mut batch), [1, 3]);
    assert_eq!(batch.begin_step(), Some(10 * MS + 500 * MS + MS));
}

#[test]
fn a_block_read_for_one_adapter_is_none_for_another() {
    let prompt = [7; BLOCK * TOKEN_BYTES];
    let mut batch = batch(TIMES);
    for adapter in [Some("a"), None, Some("a")] {
        batch.add(BatchRequest::new(adapter, &prompt, 1), 1);
        batch.begin_step();
        end(&mut batch);
    }
    assert_eq!(batch.prefix_cache().hit, BLOCK as u64);
}

/// As [`TIMES`], with blocks as needed.
const AS_NEEDED: ServiceTimes = ServiceTimes { allocation: Allocation::AsNeeded, ..TIMES };

/// A request whose blocks are numbered from `first` on, its response's included.
fn numbered(first: u64, prompt: usize, answer: u64) -> BatchRequest {
    let blocks = (prompt as u64 + answer) / BLOCK as u64;
    BatchRequest::of_blocks(None, prompt, (first..first + blocks).collect(), answer)
}

#[test]
fn an_answer_stays_in_the_cache_without_its_last_token() {
    for (answer, cached) in [(BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK)] {
        let mut batch = batch(AS_NEEDED);
        batch.add(numbered(1, BLOCK, answer as u64), 1);
        while batch.begin_step().is_some() {
            end(&mut batch);
        }
        assert_eq!(batch.cached_tokens(&numbered(1, 4 * BLOCK, 1)), cached);
        assert!(batch.cache_usage() < 1e-9);
    }
}

#[test]
fn the_request_that_began_last_is_put_back_when_no_block_is_left_and_makes_the_rest_later() {
    let mut batch = batch(ServiceTimes { kv_blocks: 4, ..AS_NEEDED });
    // Each needs a block for its prompt and two for its response.
    batch.add(numbered(1, BLOCK, 20), 1);
    batch.add(numbered(101, BLOCK, 20), 2);
    let mut tokens = [0; 3];
    let mut ended = Vec::new();
    while batch.begin_step().is_some() {
        batch.end_step(|&mut request, Progress { made, is_all, .. }| {
            tokens[request as usize] = made;
            ended.extend(is_all.then_some(request));
            true
        });
        assert!(batch.cache_usage() <= 1.0);
    }
    assert_eq!((ended.as_slice(), tokens, batch.preemptions()), (&[1, 2][..], [0, 20, 20], 1));
}

#[test]
fn a_request_that_is_alone_ends_though_its_answer_does_not_fit() {
    let mut batch = batch(ServiceTimes { kv_blocks: 1, ..AS_NEEDED });
    batch.add(numbered(1, BLOCK, 40), 1);
    let mut ended = Vec::new();
    while batch.begin_step().is_some() {
        ended.extend(end(&mut batch));
    }
    assert_eq!((ended, batch.preemptions()), (vec![1], 0));
}

#[test]
fn a_token_takes_one_of_the_budget_and_its_context_takes_time() {
    let times = ServiceTimes {
        max_batched_tokens: 20,
        step_per_context_token: Duration::from_micros(10),
        ..AS_NEEDED
    };
    let mut batch = batch(times);
    batch.add(numbered(1, 10, 5), 1);
    assert_eq!(batch.begin_step(), Some(20 * MS));
    end(&mut batch);
    batch.add(numbered(101, 30, 5), 2);
    // 19 of its tokens are read, in addition to a token behind a context of 11.
    assert_eq!(batch.begin_step(), Some(30 * MS + Duration::from_micros(110)));
}

#[test]
fn a_prompt_takes_longer_behind_a_context() {
    let mut batch = batch(ServiceTimes { doubling_context: Some(64), ..TIMES });
    batch.add(numbered(1, 64, 1), 1);
    assert_eq!(batch.begin_step(), Some(10 * MS + 96 * MS));
    end(&mut batch);
    batch.add(numbered(1, 96, 1), 2);
    assert_eq!(batch.begin_step(), Some(10 * MS + 72 * MS));
}
