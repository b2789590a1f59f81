//! Many proxies that share through one agent, in simulated time: how traffic and agreement grow with them.
//!
//! A *reference* proxy applies every change at once: it decides as one proxy with all requests would. Prompts
//! are conversations with beginnings in common, whose turns reach the proxies at random.

mod conversations;
mod gateway;
mod tally;

use crate::seeds;
use gateway::{Crowd, Setup};

const SMALL: Setup = Setup { proxies: 4, endpoints: 100, requests_per_second: 100, steps: 200, shares: true };

#[test]
fn proxies_that_share_decide_nearly_as_one_and_agree_when_they_rest() {
    for seed in seeds() {
        let mut crowd = Crowd::new(SMALL, seed);
        let shared = crowd.run();
        crowd.rest();
        println!("{SMALL}: {shared}");
        let alone = Setup { shares: false, ..SMALL };
        let unshared = Crowd::new(alone, seed).run();
        println!("{alone}: {unshared}");
        assert!(shared.cached() >= 0.98 && unshared.cached() < 0.9, "of the blocks that one proxy finds");
        assert!(unshared.busier() > 2.0 * shared.busier(), "sent to a busier server than one proxy does");
        assert_eq!(unshared.traffic.uploaded, 0);
        // The newest blocks of a conversation, and a load that begins and one that ends.
        assert!((50.0..500.0).contains(&shared.bytes_per_request()), "{}", shared.bytes_per_request());
    }
}

#[test]
fn a_hundred_proxies_of_ten_thousand_endpoints_agree_when_they_rest() {
    for seed in seeds() {
        let setup =
            Setup { proxies: 100, endpoints: 10_000, requests_per_second: 2, steps: 100, shares: true };
        let mut crowd = Crowd::new(setup, seed);
        let tally = crowd.run();
        crowd.rest();
        println!("{setup}: {tally}");
        assert_eq!(tally.missed, 0);
        assert!(tally.cached() >= 0.95, "{tally}");
    }
}

/// The figures of docs/design/scale.md, minutes in a release build:
/// `SCALE=1 cargo test --release -p endpoint-picker-simulation -- crowd --nocapture`. Without `SCALE` it
/// simulates a short time of the first two rows.
#[test]
fn traffic_grows_with_the_proxies_and_not_with_the_endpoints() {
    let is_long = std::env::var_os("SCALE").is_some();
    let setup = |proxies, endpoints, requests_per_second| Setup {
        proxies,
        endpoints,
        requests_per_second,
        steps: if is_long { 400 } else { 40 },
        shares: true,
    };
    let short = [setup(2, 10, 200), setup(2, 1_000, 200)];
    let long = [
        setup(4, 100, 1_000),
        setup(16, 100, 1_000),
        setup(64, 1_000, 1_000),
        setup(100, 1_000, 1_000),
        setup(100, 10_000, 100),
        setup(100, 10_000, 1_000),
    ];
    let all = if is_long { [&short[..], &long].concat() } else { short.to_vec() };
    let mut bytes = Vec::new();
    for setup in all {
        let tally = Crowd::new(setup, 1).run();
        println!("{setup}: {tally}");
        bytes.push(tally.bytes_per_request());
        let alone = Setup { shares: false, ..setup };
        if is_long {
            println!("{alone}: {}", Crowd::new(alone, 1).run());
        }
    }
    assert!(bytes[1] < 1.5 * bytes[0], "with 100 times the endpoints: {bytes:?}");
}
