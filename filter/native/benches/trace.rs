//! The budgeted requests, for `tools/test/trace-request`, which loads the module into this program with
//! `LD_PRELOAD` and runs both in valgrind. Alone the program does not start. The argument names the case.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a trace that cannot continue has failed"
)]

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

use self::cases::{BEFORE, CASES, CHUNKS, begin, body, end, pass_chunk, pool_of};
use self::envoy::Request;
use self::pool::Pool;

/// Traced requests, and chunks.
const TRACED: usize = 10;

// Functions of their own, whose names valgrind knows.

#[inline(never)]
fn traced_request(pool: &Pool, body: &[u8]) {
    end(begin(pool, body));
}

#[inline(never)]
fn traced_chunk(request: &Request) {
    pass_chunk(request);
}

fn main() {
    let case = std::env::args().nth(1).unwrap();
    let body = body();
    let chunk = CHUNKS.into_iter().find(|(column, _)| *column == case);
    assert!(chunk.is_some() || CASES.contains(&&*case), "{case}");
    let pool = pool_of(chunk.map_or(&*case, |(_, of)| of));
    (0..BEFORE).for_each(|_| end(begin(&pool, &body)));
    if chunk.is_some() {
        let request = begin(&pool, &body);
        pass_chunk(&request);
        (0..TRACED).for_each(|_| traced_chunk(&request));
        end(request);
    } else {
        (0..TRACED).for_each(|_| traced_request(&pool, &body));
    }
}
