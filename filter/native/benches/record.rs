//! Cost of the record of a request: processor time of the module's own code for a usual chat of 2 KB, with
//! and without its record, by the shipped rules.
//!
//! `cargo bench -p endpoint-picker-native --bench record`. Both are sent in turns in one process, so other
//! work on the machine changes both alike. The caches of the processor are warm. A pool that counts tokens
//! reads its responses without a record, too.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench that cannot go on has failed"
)]

#[allow(dead_code, reason = "the test of the budget uses the rest")]
#[path = "../tests/budget/cases.rs"]
mod cases;
#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/module/envoy/mod.rs"]
mod envoy;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/module/pool.rs"]
mod pool;
#[path = "../tests/budget/rules.rs"]
mod rules;

use core::time::Duration;

use endpoint_picker_native as _;
use rustix::time::{ClockId, clock_gettime};

use self::cases::{begin, body, end, pass_chunk, pool_of};
use self::pool::Pool;

/// Turns of each pool. They are short, so that other programs interrupt few of them.
const ROUNDS: usize = 4_001;
/// Requests of a turn.
const REQUESTS: u32 = 20;
/// Chunks of a response after its first token.
const CHUNKS: u32 = 20;

fn main() {
    let body = body();
    for (name, pools) in
        [("", ["latency-10", "recorded-10"]), (" with `countTokens`", ["counted-10", "counted_recorded-10"])]
    {
        let [unrecorded, recorded] = pools.map(pool_of);
        for chunks in [0, CHUNKS] {
            let (request, record) = compare(&unrecorded, &recorded, &body, chunks);
            println!("{chunks} later chunks{name}: a request {request}, its record + {record}");
        }
    }
}

/// Processor time of a request, and how much more it takes where it is recorded.
fn compare(unrecorded: &Pool, recorded: &Pool, body: &[u8], chunks: u32) -> (String, String) {
    let turn = |pool| nanoseconds(pool, body, chunks);
    let (mut without, mut difference) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Each is the first one in half of the rounds.
        let (one, other) = if round % 2 == 0 {
            let one = turn(unrecorded);
            (one, turn(recorded))
        } else {
            let other = turn(recorded);
            (turn(unrecorded), other)
        };
        without.push(one);
        difference.push(other - one);
    }
    (quartiles(without), quartiles(difference))
}

/// Processor time of this thread for one request in a turn, in nanoseconds.
fn nanoseconds(pool: &Pool, body: &[u8], chunks: u32) -> f64 {
    let before = processor_time();
    for _ in 0..REQUESTS {
        let request = begin(pool, body);
        (0..chunks).for_each(|_| pass_chunk(&request));
        end(request);
    }
    processor_time().saturating_sub(before).as_secs_f64() * 1e9 / f64::from(REQUESTS)
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// The median of these nanoseconds, with the quartiles.
fn quartiles(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |quarter: usize| values[values.len() * quarter / 4];
    format!("{:.0} ns ({:.0} to {:.0})", at(2), at(1), at(3))
}
