//! The prefix index: what every worker does for every prompt, its own and the others'.

#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use core::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker::state::prefix::PrefixIndex;

const ENDPOINTS: usize = 100;
const PROMPTS: usize = 1_000;
const CAPACITY: usize = 31_250;

fn chain(rng: &mut SplitMix64, blocks: usize) -> Vec<u64> {
    (0..blocks).map(|_| rng.next_u64()).collect()
}

fn index(criterion: &mut Criterion) {
    // 2 KB and 128 KB of text in blocks of 64 tokens.
    for (size, blocks) in [("2 KB", 8), ("128 KB", 512)] {
        let mut rng = SplitMix64::new(5);
        let mut index = PrefixIndex::default();
        let prompts: Vec<Vec<u64>> = (0..PROMPTS).map(|_| chain(&mut rng, blocks)).collect();
        for (number, prompt) in prompts.iter().enumerate() {
            index.add(number % ENDPOINTS, prompt, CAPACITY);
        }
        let everywhere = chain(&mut rng, blocks);
        (0..ENDPOINTS).for_each(|endpoint| index.add(endpoint, &everywhere, CAPACITY));

        let mut group = criterion.benchmark_group(format!("prefix index, {ENDPOINTS} endpoints, {size}"));
        group.bench_function("look up a prompt that all have", |bencher| {
            bencher.iter(|| {
                let mut matched = [0; ENDPOINTS];
                index.count_matches(black_box(&everywhere), &mut matched);
                matched
            });
        });
        let mut number = 0;
        group.bench_function("a prompt again", |bencher| {
            bencher.iter(|| {
                number = (number + 7) % PROMPTS;
                index.add(number % ENDPOINTS, black_box(&prompts[number]), CAPACITY);
            });
        });
        group.bench_function("a new prompt", |bencher| {
            bencher.iter(|| {
                number = (number + 7) % PROMPTS;
                index.add(number % ENDPOINTS, black_box(&chain(&mut rng, blocks)), CAPACITY);
            });
        });
        group.finish();
    }
}

criterion_group!(benches, index);
criterion_main!(benches);
