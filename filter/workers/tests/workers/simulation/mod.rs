//! Whole proxies: eight workers, whose calls of shared data interleave at random, with faults.
//!
//! Every worker runs in a thread of its own, but only one at a time: before a call of shared data a worker
//! waits until the scheduler lets it continue. So any interleaving of calls can happen, and a seed always
//! gives the same one.

mod proxy;
mod turn;
mod worker;

use proxy::{Faults, Proxy};

/// Seeds of each test: 1 to 6, or 1 to n with `SEEDS=n` in the environment.
fn seeds() -> impl Iterator<Item = u64> {
    let number = std::env::var("SEEDS").ok().and_then(|number| number.parse().ok());
    (1..=number.unwrap_or(6)).inspect(|seed| println!("seed {seed}"))
}

fn simulate(faults: Faults) {
    for seed in seeds() {
        let mut proxy = Proxy::start(seed, faults);
        proxy.run();
        proxy.rest();
        proxy.end_all_requests();
    }
}

const NONE: Faults = Faults {
    traps: false,
    clock_steps: false,
    refusals: false,
    stalls: false,
    reorders: false,
    overruns: false,
};

#[test]
fn workers_that_live_agree() {
    simulate(NONE);
}

#[test]
fn workers_that_trap_are_replaced() {
    simulate(Faults { traps: true, ..NONE });
}

#[test]
fn the_clock_is_set_forward_and_back() {
    simulate(Faults { clock_steps: true, ..NONE });
}

#[test]
fn shared_data_refuses_calls() {
    simulate(Faults { refusals: true, ..NONE });
}

#[test]
fn workers_are_held_up_for_longer_than_members_stay() {
    simulate(Faults { stalls: true, ..NONE });
}

#[test]
fn workers_are_away_for_longer_than_the_log_is_kept() {
    simulate(Faults { stalls: true, overruns: true, ..NONE });
}

#[test]
fn endpoints_change_their_order() {
    simulate(Faults { reorders: true, ..NONE });
}

#[test]
fn everything_happens_at_once() {
    simulate(Faults {
        traps: true,
        clock_steps: true,
        refusals: true,
        stalls: true,
        reorders: true,
        overruns: true,
    });
}
