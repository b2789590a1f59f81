//! The budgeted polls, for `tools/test/trace-request`, which runs this program in valgrind. The argument
//! names the column.

#![allow(clippy::unwrap_used, reason = "a trace that cannot continue has failed")]

#[path = "../tests/budget/polls.rs"]
mod polls;
#[path = "../tests/budget/rules.rs"]
mod rules;

use self::polls::{POLLS, Polls};

/// Traced polls.
const TRACED: usize = 10;

// A function of its own, whose name valgrind knows.
#[inline(never)]
fn traced_poll(polls: &mut Polls, response: Vec<u8>) {
    polls.take(response);
}

fn main() {
    let column = std::env::args().nth(1).unwrap();
    let (_, changed) = POLLS.into_iter().find(|(known, _)| *known == column).unwrap();
    let mut polls = Polls::new(changed);
    for _ in 0..TRACED {
        let response = polls.next_response();
        traced_poll(&mut polls, response);
    }
}
