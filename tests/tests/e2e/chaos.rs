//! A short run of `make chaos`, always the same one.

use endpoint_picker_tests::chaos::{self, Plan};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn no_servable_request_is_lost_whatever_breaks() {
    const SEED: u64 = 4;
    eprintln!("seed {SEED}");
    let (lasting, longest) = (Duration::from_secs(30), Duration::from_secs(1));
    let plan = Plan { lasting, longest, seed: SEED, workers: 2, rate: 50 };
    let outcome = chaos::run(plan).await.unwrap();
    assert_eq!(outcome.lost, 0, "see above");
    assert!(outcome.slowest < Duration::from_secs(30), "the full rules did not come back");
}
