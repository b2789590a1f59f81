//! Simulations of several proxies, with assertions on the effect of the rules.
#![allow(clippy::unwrap_used, reason = "a simulation that cannot continue has failed")]
#![allow(clippy::unchecked_time_subtraction, reason = "the simulations begin long after the epoch")]

mod cells;
mod crowd;
mod herds;
mod limits;
mod queues;
mod rounds;

/// Seeds of each test: 1, or 1 to n with `SEEDS=n` in the environment.
fn seeds() -> impl Iterator<Item = u64> {
    let number = std::env::var("SEEDS").ok().and_then(|number| number.parse().ok());
    (1..=number.unwrap_or(1)).inspect(|seed| println!("seed {seed}"))
}
