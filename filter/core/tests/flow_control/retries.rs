//! Clients that are turned away and come again when they are asked to.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use endpoint_picker::flow_control::{Machine, Outcome, Ticket};
use endpoint_picker::plugin::Arrival;

use crate::fixture::config;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// The servers take a request every 100 ms.
const PACE: u64 = 100;

/// A queue of 20 requests in front of servers that take 10 in a second. `fresh` clients come in a second all
/// the time, and 100 more within the third second. All come again once, in whole seconds. Returns how many
/// came a second time, and how many of those waited.
fn second_tries(fresh: u64) -> (usize, usize) {
    let mut config = config();
    config.bands[0].1.max_requests = 20;
    let mut machine = Machine::new(config);
    let mut tries: BinaryHeap<Reverse<(u64, bool)>> = BinaryHeap::new();
    tries.extend((0..fresh * 60).map(|n| Reverse((n * 1_000 / fresh, false))));
    tries.extend((0..100).map(|n| Reverse((3_000 + n * 10, false))));
    let (mut ticket, mut second, mut served) = (0, 0, 0);
    for millisecond in 0..70_000 {
        let now = Duration::from_millis(1_000_000 + millisecond);
        machine.capacity(if millisecond % PACE == 0 { 0.0 } else { 1.0 }, true, now);
        while let Some(Reverse((_, again))) =
            tries.peek().copied().filter(|Reverse((at, _))| *at <= millisecond)
        {
            tries.pop();
            second += usize::from(again);
            let refused = machine.turn_away(&Arrival::default(), now);
            assert!(refused.is_none_or(|outcome| outcome == Outcome::RejectedCapacity));
            if refused.is_none() {
                ticket += 1;
                served += usize::from(again);
                machine.offer(Ticket(ticket), &Arrival::default(), now);
            } else if !again && let Some(after) = machine.retry_after(0, now) {
                tries.push(Reverse((
                    millisecond + u64::try_from(after.as_millis()).unwrap().div_ceil(1_000) * 1_000,
                    true,
                )));
            }
        }
        while machine.poll(now).is_some() {}
    }
    (second, served)
}

#[test]
fn nine_of_ten_clients_are_served_at_their_second_try_if_others_use_up_to_six_tenths() {
    for fresh in [1, 2, 4, 6] {
        let (second, served) = second_tries(fresh);
        assert!(second >= 60 && served * 10 >= second * 9, "{served} of {second} beside {fresh} a second");
    }
}
