//! Requests/s through Envoy Gateway's Envoy: of a route to a pool, whose cluster is the module's, of a picked
//! route with an `ORIGINAL_DST` cluster, and of the same route to a Service, in turns: `make bench-gateway`.
//!
//! The proxy has one worker and a processor of its own, so that its work decides on requests/s.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot continue has failed")]

mod fixture;
mod proxy;

use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::load::bodies::chat_line;
use endpoint_picker_bench::load::wrk::{self, WrkLoad};
use endpoint_picker_bench::report::{Machine, median, rounded};
use fixture::{Fixture, Way};
use std::fs;
use std::time::Duration;
use tempfile::NamedTempFile;

const ROUNDS: u32 = 30;
/// Between a change of the way and its measurement.
const WARM_UP: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_secs(2);
const CONNECTIONS: u32 = 32;
/// Prompts that come again and again, and the bytes of a request.
const PROMPTS: usize = 10;
const BYTES: usize = 2048;

/// Minimum of a pool's requests/s, as a fraction of a Service's.
const AIM: f64 = 0.75;

/// The figures of a way in a round.
#[derive(Clone, Copy)]
struct Turn {
    rate: f64,
    /// Processor time of the proxy for a request, in µs.
    micros: f64,
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_to_a_pool_and_to_a_service() {
    let fixture = Fixture::start().await;
    let bodies = NamedTempFile::new().unwrap();
    let lines: String = (0..PROMPTS).map(|number| chat_line(number, BYTES, false)).collect();
    fs::write(bodies.path(), lines).unwrap();
    let measure = |way: Way| {
        let run = |lasting| {
            let load = WrkLoad::Saturating { connections: CONNECTIONS };
            wrk::run(fixture.address(way), load, lasting, bodies.path(), None).unwrap()
        };
        run(WARM_UP);
        let before = fixture.proxy.processor_time();
        let figures = run(TURN);
        let used = fixture.proxy.processor_time().saturating_sub(before);
        assert_eq!(figures.failed, 0, "{way:?}");
        Turn { rate: figures.rate(), micros: used.as_secs_f64() * 1e6 / figures.requests as f64 }
    };
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut turns: Vec<(Way, Turn)> = in_turns(&Way::ALL, round).map(|way| (way, measure(way))).collect();
        turns.sort_by_key(|(way, _)| *way);
        let turns: Vec<Turn> = turns.into_iter().map(|(_, turn)| turn).collect();
        println!(
            "round {round}: {}",
            turns.iter().map(|turn| rounded(turn.rate)).collect::<Vec<_>>().join(", ")
        );
        rounds.push(turns);
    }
    println!(
        "{}\n\n| Route to | requests/s | of a Service's | processor µs of a request |\n|---|---|---|---|",
        Machine::read(vec![wrk::version().unwrap()]).unwrap()
    );
    let column = |way: usize, figure: fn(&Turn) -> f64| {
        rounds.iter().map(move |turns| figure(&turns[way])).collect::<Vec<f64>>()
    };
    let mut shares = Vec::new();
    for (index, way) in Way::ALL.into_iter().enumerate() {
        let share: Vec<f64> = rounds.iter().map(|turns| turns[index].rate / turns[0].rate).collect();
        let min = share.iter().copied().fold(f64::INFINITY, f64::min);
        let max = share.iter().copied().fold(0.0, f64::max);
        let rate = rounded(median(column(index, |turn| turn.rate)));
        let micros = rounded(median(column(index, |turn| turn.micros)));
        println!(
            "| {} | {rate} | {:.2} ({min:.2} to {max:.2}) | {micros} |",
            way.description(),
            median(share.clone())
        );
        shares.push(median(share));
    }
    let result = if shares[1] >= AIM { "met" } else { "missed" };
    println!("\nAim of {AIM} for the pool: {result}");
}
