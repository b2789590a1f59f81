//! The queue of a pool as a table of text.

use core::fmt;

use crate::columns::{self, NOTHING};
use crate::queues::status::{BandStatus, QueueStatus, TenantStatus, WaitPercentiles};

const HEADER: [&str; 9] =
    ["PRIORITY", "QUEUED", "LIMIT", "BYTES", "WAIT P50", "P90", "P99", "DISPATCHED", "OTHER ENDS"];

const TENANTS_HEADER: [&str; 7] = ["PRIORITY", "TENANT", "QUEUED", "BYTES", "WAIT P50", "P90", "P99"];

/// Maximum number of characters of a tenant's name: clients choose it.
const MAX_TENANT: usize = 40;

/// The end of most waits; the others are listed.
const DISPATCHED: &str = "Dispatched";

pub(crate) fn write(f: &mut fmt::Formatter<'_>, queue: &QueueStatus) -> fmt::Result {
    let saturation = queue.saturation.map_or_else(|| NOTHING.to_owned(), |it| format!("{it:.2}"));
    writeln!(f)?;
    write!(
        f,
        "queue: saturation {saturation}, {} in flight, {} aborted to make room",
        queue.in_flight, queue.evicted
    )?;
    writeln!(f, "\n")?;
    columns::write(f, HEADER, queue.bands.iter().map(row), 0..8)?;
    let of_band = |band: &BandStatus| -> Vec<_> {
        band.tenants.iter().map(|tenant| tenant_row(band.priority, tenant)).collect()
    };
    let tenants: Vec<_> = queue.bands.iter().flat_map(of_band).collect();
    if tenants.is_empty() {
        return Ok(());
    }
    writeln!(f)?;
    columns::write(f, TENANTS_HEADER, tenants, 2..7)
}

fn row(band: &BandStatus) -> [String; 9] {
    let [p50, p90, p99] = percentiles(band.wait_ms);
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

fn tenant_row(priority: i32, tenant: &TenantStatus) -> [String; 7] {
    let [p50, p90, p99] = percentiles(tenant.wait_ms);
    let name = columns::shortened(&columns::printable(&tenant.fairness_id), MAX_TENANT);
    let (requests, bytes) = (tenant.requests.to_string(), tenant.bytes.to_string());
    [priority.to_string(), name, requests, bytes, p50, p90, p99]
}

fn percentiles(waits: Option<WaitPercentiles>) -> [String; 3] {
    waits.map_or_else(
        || [NOTHING; 3].map(str::to_owned),
        |waits| [waits.p50, waits.p90, waits.p99].map(milliseconds),
    )
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
    use crate::pool::PoolStatus;
    use crate::queues::status::WaitPercentiles;

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
            tenants: vec![],
        };
        let idle = BandStatus { priority: 0, max_requests: 5000, ..BandStatus::default() };
        let queue =
            QueueStatus { saturation: Some(1.25), in_flight: 31, evicted: 2, bands: vec![idle, busy] };
        let pool =
            PoolStatus { pool: "p".to_owned(), queue: Some(queue), ..PoolStatus::default() }.to_string();
        let expected = "\
queue: saturation 1.25, 31 in flight, 2 aborted to make room

PRIORITY  QUEUED  LIMIT  BYTES  WAIT P50     P90     P99  DISPATCHED  OTHER ENDS
       0       0   5000      0         -       -       -           0  -
     -10      42   5000  51200    7.2 ms  340 ms  12.5 s         900  3 EvictedTTL
";
        assert!(pool.ends_with(expected), "{pool}");
    }

    #[test]
    fn tenants_have_rows_of_their_own() {
        let tenant = |fairness_id: &str, requests, wait_ms| TenantStatus {
            fairness_id: fairness_id.to_owned(),
            requests,
            bytes: requests * 100,
            wait_ms,
        };
        let waits = WaitPercentiles { p50: 7.25, p90: 340.0, p99: 12_500.0 };
        let long = format!("\u{1b}[2J{}", "x".repeat(100));
        let tenants = vec![tenant("team-a", 42, Some(waits)), tenant(&long, 3, None)];
        let busy = BandStatus { priority: -10, tenants, ..BandStatus::default() };
        let queue = QueueStatus { bands: vec![BandStatus::default(), busy], ..QueueStatus::default() };
        let pool = PoolStatus { pool: "p".to_owned(), queue: Some(queue), ..PoolStatus::default() };
        let expected = "
PRIORITY  TENANT                                    QUEUED  BYTES  WAIT P50     P90     P99
-10       team-a                                        42   4200    7.2 ms  340 ms  12.5 s
-10       \u{fffd}[2Jxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…       3    300         -       -       -
";
        assert!(pool.to_string().ends_with(expected), "{pool}");
    }
}
