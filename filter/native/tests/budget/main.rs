//! The budget of a request, and of a poll: what the module allocates, calls, locks and reads for it, exactly
//! as `numbers.md` has it.

#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod allocations;
mod cases;
#[allow(dead_code, unused_imports, reason = "the tests of the module use the rest")]
#[path = "../module/envoy/mod.rs"]
mod envoy;
mod polls;
#[allow(dead_code, reason = "the tests of the module use the rest")]
#[path = "../module/pool.rs"]
mod pool;
mod rules;

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};

use endpoint_picker_native::counts;

use self::cases::{BEFORE, CASES, CHUNKS, begin, body, end, named_body, pass_chunk, pool_of};
use self::envoy::calls::{self, Side};
use self::polls::{POLLS, Polls};
use self::pool::Pool;

/// The file that has the budget.
const NUMBERS: &str = include_str!("numbers.md");

/// The heading of the part that this test compares.
const HEADING: &str = "## Exact\n";

/// Measured requests. The smallest number of each kind counts, because a table of hashes may grow in any of
/// them.
const MEASURED: usize = 10;

/// Numbers by their names.
type Numbers = BTreeMap<String, u64>;

/// Takes the numbers since the last call.
fn take() -> Numbers {
    let calls = calls::take();
    let all = calls.iter().map(|(_, count)| count).sum();
    let of_calls = calls.into_iter().map(|(name, count)| (format!("calls of {name}"), count));
    let of_calls = of_calls.chain([("calls into Envoy".to_owned(), all)]);
    allocations::take().into_iter().chain(of_calls).chain(counts::take()).collect()
}

/// The smallest numbers of some runs, of which each returns its own.
fn smallest(run: impl FnMut() -> Numbers) -> Numbers {
    let keep = |mut kept: Numbers, next: Numbers| {
        kept.retain(|name, _| next.contains_key(name));
        for (name, number) in &mut kept {
            *number = next[name].min(*number);
        }
        kept
    };
    core::iter::repeat_with(run).take(MEASURED).reduce(keep).unwrap()
}

/// The cost of a request with this body, which was sent before.
fn cost_of(pool: &Pool, body: &[u8]) -> Numbers {
    let request = || {
        take();
        end(begin(pool, body));
        take()
    };
    (0..BEFORE).for_each(|_| drop(request()));
    // Changes are collected until the module has read that its agent does not share them.
    pool.run_until("request without them", |_| (!request().contains_key("locks of Outbox")).then_some(()));
    smallest(request)
}

/// The table of these columns. A number that is not there is zero.
fn table(columns: &[(&str, Numbers)]) -> String {
    let names: BTreeSet<&String> = columns.iter().flat_map(|(_, numbers)| numbers.keys()).collect();
    let mut table = String::from("| |");
    for (column, _) in columns {
        let _ = write!(table, " {column} |");
    }
    let _ = write!(table, "\n|---|{}\n", "---|".repeat(columns.len()));
    for name in names {
        let _ = write!(table, "| {name} |");
        for (_, numbers) in columns {
            let _ = write!(table, " {} |", numbers.get(name).copied().unwrap_or(0));
        }
        table.push('\n');
    }
    table
}

#[test]
fn a_request_costs_exactly_its_budget() {
    let body = body();
    let mut columns = Vec::new();
    for case in CASES {
        columns.push((case, cost_of(&pool_of(case), &body)));
    }
    for (column, case) in CHUNKS {
        let pool = pool_of(case);
        let request = begin(&pool, &body);
        pass_chunk(&request);
        let of_chunk = smallest(|| {
            take();
            pass_chunk(&request);
            take()
        });
        end(request);
        columns.push((column, of_chunk));
    }
    for (column, changed) in POLLS {
        let mut polls = Polls::new(changed);
        let of_poll = smallest(|| {
            let response = polls.next_response();
            take();
            let side = Side::hook();
            polls.take(response);
            drop(side);
            take()
        });
        columns.push((column, of_poll));
    }
    let named = cost_of(&pool_of(CASES[2]), &named_body());
    assert_eq!(named, columns[2].1, "a chat that names its session costs nothing else");
    let new = table(&columns);
    let (_, kept) = NUMBERS.split_once(HEADING).unwrap();
    let kept = kept.split("\n#").next().unwrap().trim();
    let kept = &kept[kept.find("| |").unwrap()..];
    assert!(
        kept == new.trim(),
        "a request costs something else than filter/native/tests/budget/numbers.md has. The new table:\n\n{new}"
    );
}
