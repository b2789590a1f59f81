//! Herds: how often a request meets a busy server while another is idle, with several proxies, in simulated
//! time.
//!
//! Servers work on four requests at a time. Only `active-request-scorer` decides. The engine's rule for the
//! loads of other proxies is compared with two simpler ones.

mod gateway;

use core::time::Duration;

use gateway::{Gateway, Rule, Setup};

use crate::seeds;

const MS: Duration = Duration::from_millis(1);

/// Servers are busy to five eighths.
const USUAL: Setup = Setup {
    proxies: 4,
    rule: Rule::Deferred,
    servers: 24,
    per_second: 500,
    service_ms: 80..160,
    slowness: 1,
    delay: MS.saturating_mul(2),
    stops: false,
    burst: 0,
    seconds: 6,
};

/// The percentage of requests that met a busy server while another was idle.
fn herded(setup: &Setup, seed: u64) -> f64 {
    let count = Gateway::new(setup.clone(), seed).run();
    println!("{} × {:?}: {count}", setup.proxies, setup.rule);
    count.herded()
}

fn cases() -> Vec<(&'static str, Setup)> {
    let one_second = Setup { service_ms: 700..1_300, ..USUAL };
    vec![
        ("80 to 160 ms for a request", USUAL),
        ("the same, loads 20 ms later", Setup { delay: 20 * MS, ..USUAL }),
        ("1 s for a request, 24 servers", Setup { per_second: 60, seconds: 12, ..one_second.clone() }),
        ("1 s for a request, 200 servers", Setup { servers: 200, ..one_second }),
        ("half of 36 servers three times slower", Setup { servers: 36, slowness: 3, ..USUAL }),
        ("100 servers, 2 080 requests/s", Setup { servers: 100, per_second: 2_080, seconds: 3, ..USUAL }),
        ("a server serves nothing for 2 s", Setup { stops: true, ..USUAL }),
        ("12 requests at once, twice a second", Setup { burst: 12, per_second: 450, ..USUAL }),
    ]
}

#[test]
fn one_proxy_sends_no_herds() {
    for seed in seeds() {
        assert!(herded(&Setup { proxies: 1, ..USUAL }, seed) <= 0.0);
    }
}

#[test]
fn proxies_that_share_send_fewer_herds_than_without_and_than_if_all_counted_at_once() {
    for seed in seeds() {
        for (proxies, most) in [(2, 0.5), (4, 1.0), (8, 5.0)] {
            let setup = Setup { proxies, ..USUAL };
            let deferred = herded(&setup, seed);
            let apart = herded(&Setup { rule: Rule::Apart, ..setup.clone() }, seed);
            let at_once = herded(&Setup { rule: Rule::AtOnce, ..setup.clone() }, seed);
            assert!(deferred < most && deferred < apart + 0.1, "{proxies} proxies");
            assert!(deferred < at_once / 4.0, "{proxies} proxies");
        }
    }
}

#[test]
fn of_four_proxies_at_most_one_request_in_a_hundred_joins_a_herd_and_fewer_than_if_all_counted_at_once() {
    for seed in seeds() {
        for (name, setup) in cases() {
            println!("{name}:");
            let deferred = herded(&setup, seed);
            let at_once = herded(&Setup { rule: Rule::AtOnce, ..setup }, seed);
            assert!(deferred < 1.0 && deferred <= at_once, "{name}");
        }
    }
}

#[test]
fn a_server_that_stops_serving_gets_few_requests() {
    for seed in seeds() {
        let to_stopped = |rule| {
            let setup = Setup { stops: true, rule, ..USUAL };
            Gateway::new(setup, seed).run().to_stopped
        };
        let (deferred, apart) = (to_stopped(Rule::Deferred), to_stopped(Rule::Apart));
        println!("{deferred} requests to a server that has stopped, {apart} without sharing");
        assert!(deferred <= apart + 2);
    }
}
