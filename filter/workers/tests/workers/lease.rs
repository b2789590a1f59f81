//! Single steps of the lease.

use std::time::Duration;

use endpoint_picker_workers::Lease;

use crate::fixture::{POOL, START};
use crate::memory::{Calls, Memory};

const CHECK: Duration = Duration::from_millis(250);

#[test]
fn the_first_worker_holds_the_lease_for_as_long_as_it_renews_it() {
    let memory = Memory::default();
    let [mut one, mut other] = [1, 2].map(|worker| Lease::new(&memory, POOL, worker).unwrap());
    let mut now = START;
    for _ in 0..12 {
        one.keep(&memory, now).unwrap();
        other.keep(&memory, now).unwrap();
        assert!(one.is_held(now) && !other.is_held(now));
        now += CHECK;
    }
    // It vanishes.
    while now < START + 12 * CHECK + Duration::from_millis(749) {
        other.keep(&memory, now).unwrap();
        assert!(!other.is_held(now));
        now += CHECK;
    }
    other.keep(&memory, now).unwrap();
    assert!(other.is_held(now) && !one.is_held(now));
}

#[test]
fn a_check_that_is_not_due_costs_nothing() {
    let memory = Memory::default();
    let mut lease = Lease::new(&memory, POOL, 1).unwrap();
    memory.take_calls();
    lease.keep(&memory, START).unwrap();
    assert_eq!(memory.take_calls(), Calls { gets: 1, sets: 0, swaps: 1 });
    lease.keep(&memory, START + CHECK / 2).unwrap();
    assert_eq!(memory.take_calls(), Calls::default());
}

#[test]
fn a_lease_from_before_the_clock_was_set_back_is_taken_over() {
    let memory = Memory::default();
    let [mut one, mut other] = [1, 2].map(|worker| Lease::new(&memory, POOL, worker).unwrap());
    one.keep(&memory, START).unwrap();
    let back = START.checked_sub(Duration::from_secs(3600)).unwrap();
    assert!(!one.is_held(back));
    other.keep(&memory, back).unwrap();
    one.keep(&memory, back).unwrap();
    assert!(other.is_held(back) && !one.is_held(back));
}
