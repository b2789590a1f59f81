//! Limits for the first token: of the requests that are admitted, nearly all keep theirs, also near the
//! capacity.

use endpoint_picker_simulation::cell::capacity;
use endpoint_picker_simulation::cell::conditions::Conditions;
use endpoint_picker_simulation::cell::run::Cell;
use endpoint_picker_simulation::cell::source::Source;
use endpoint_picker_simulation::cell::variant::Variant;
use endpoint_picker_simulation::cell::workloads::Workload;
use metrics_agent_replay::simulation::figures::Figures;
use std::time::Duration;

use crate::seeds;

/// Share of the capacity that clients ask for.
const LOAD: f64 = 0.9;

/// Share of the admitted requests that have to keep their limit.
const BAR: f64 = 0.9;

/// All requests are sheddable and have this limit.
fn run(workload: Workload, per_second: f64, limit: Option<Duration>, seed: u64) -> Figures {
    let cell = Cell {
        source: Source::Open { workload, per_second },
        requests: 2_000,
        seed,
        conditions: Conditions::USUAL,
        limit,
    };
    cell.run(Variant::named("expected latency, limits").unwrap())
}

#[test]
fn nine_of_ten_admitted_requests_keep_their_limit_at_nine_tenths_of_the_capacity() {
    for workload in [Workload::ShareGpt, Workload::Conversations, Workload::LongMix] {
        let name = workload.name();
        let per_second = LOAD * capacity::of_workload(workload, 1);
        for seed in seeds() {
            // A limit that a quarter of the requests would miss if all were admitted.
            let free = run(workload, per_second, None, seed);
            let limit = Duration::from_secs_f64(free.percentile(0.75) / 1e3);
            let limited = run(workload, per_second, Some(limit), seed);
            let (kept, refused) = (limited.share_within(limit), limited.share_refused());
            println!(
                "{name}: limit {limit:.0?}, {:.1} % refused, {:.1} % of the others kept it",
                100.0 * refused,
                100.0 * kept
            );
            assert!(kept >= BAR, "{name}: {kept:.3} of the admitted requests kept {limit:?}");
            assert!((0.001..0.6).contains(&refused), "{name}: {refused:.3} of the requests were refused");
        }
    }
}
