//! The queue of a pool as a table of text.

use core::fmt;

use crate::api::queues::status::{BandStatus, QueueStatus};
use crate::commands::columns::{self, NOTHING};

const HEADER: [&str; 9] =
    ["PRIORITY", "WAITING", "LIMIT", "BYTES", "WAIT P50", "P90", "P99", "DISPATCHED", "OTHER ENDS"];

/// The end of most waits; the others are listed.
const DISPATCHED: &str = "Dispatched";

pub(super) fn write(f: &mut fmt::Formatter<'_>, queue: &QueueStatus) -> fmt::Result {
    let saturation = queue.saturation.map_or_else(|| NOTHING.to_owned(), |it| format!("{it:.2}"));
    writeln!(f)?;
    write!(
        f,
        "queue: saturation {saturation}, {} in flight, {} aborted to make room",
        queue.in_flight, queue.evicted
    )?;
    writeln!(f, "\n")?;
    columns::write(f, HEADER, queue.bands.iter().map(row), 0..8)
}

fn row(band: &BandStatus) -> [String; 9] {
    let [p50, p90, p99] =
        [band.wait_ms.map(|it| it.p50), band.wait_ms.map(|it| it.p90), band.wait_ms.map(|it| it.p99)]
            .map(|ms| ms.map_or_else(|| NOTHING.to_owned(), milliseconds));
    let others = band.outcomes.iter().filter(|(outcome, count)| *outcome != DISPATCHED && **count > 0);
    let others: Vec<String> =
        others.map(|(outcome, count)| format!("{count} {}", columns::printable(outcome))).collect();
    [
        band.priority.to_string(),
        band.requests.to_string(),
        band.max_requests.to_string(),
        band.bytes.to_string(),
        p50,
        p90,
        p99,
        band.outcomes.get(DISPATCHED).copied().unwrap_or(0).to_string(),
        if others.is_empty() { NOTHING.to_owned() } else { others.join(", ") },
    ]
}

fn milliseconds(ms: f64) -> String {
    if ms < 10.0 {
        format!("{ms:.1} ms")
    } else if ms < 1000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.1} s", ms / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pools::status::PoolStatus;
    use crate::api::queues::status::WaitPercentiles;

    #[test]
    fn each_band_has_a_row() {
        let busy = BandStatus {
            priority: -10,
            requests: 42,
            bytes: 51_200,
            max_requests: 5000,
            max_bytes: 1_000_000_000,
            wait_ms: Some(WaitPercentiles { p50: 7.25, p90: 340.0, p99: 12_500.0 }),
            outcomes: [("Dispatched", 900), ("EvictedTTL", 3), ("RejectedCapacity", 0)]
                .map(|(outcome, count)| (outcome.to_owned(), count))
                .into(),
        };
        let idle = BandStatus { priority: 0, max_requests: 5000, ..BandStatus::default() };
        let queue =
            QueueStatus { saturation: Some(1.25), in_flight: 31, evicted: 2, bands: vec![idle, busy] };
        let pool =
            PoolStatus { pool: "p".to_owned(), queue: Some(queue), ..PoolStatus::default() }.to_string();
        let expected = "\
queue: saturation 1.25, 31 in flight, 2 aborted to make room

PRIORITY  WAITING  LIMIT  BYTES  WAIT P50     P90     P99  DISPATCHED  OTHER ENDS
       0        0   5000      0         -       -       -           0  -
     -10       42   5000  51200    7.2 ms  340 ms  12.5 s         900  3 EvictedTTL
";
        assert!(pool.ends_with(expected), "{pool}");
    }
}
