//! The picker's statistics, which workers add to Envoy's once a second.

use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::statistics::PickerStatistics;

/// Requests that were sent to an endpoint.
pub const ROUTED: &str = r#"routed{pool="default"}"#;

/// Routed requests that were decided without readings.
pub const ROUTED_STALE: &str = r#"routed_stale{pool="default"}"#;

/// Requests in flight, of all workers.
pub const IN_FLIGHT: &str = r#"in_flight{pool="default"}"#;

/// The statistics as they are now; requests of the last second may be missing.
pub async fn statistics(stack: &Stack) -> PickerStatistics {
    PickerStatistics::of(stack.envoy()).await.unwrap()
}

/// Waits until the statistics have every request that Envoy has completed, all of which must have come to the
/// picker.
pub async fn complete_statistics(stack: &Stack) -> PickerStatistics {
    eventually("the statistics have all requests", async || {
        let active = stack.envoy().stat("http.inference.downstream_rq_active").await?;
        anyhow::ensure!(active == 0, "{active} requests are not over");
        let completed = stack.envoy().stat("http.inference.downstream_rq_completed").await?;
        let statistics = PickerStatistics::of(stack.envoy()).await?;
        let decided = statistics.decided();
        anyhow::ensure!(decided == completed, "the picker has counted {decided} of {completed} requests");
        anyhow::Ok(statistics)
    })
    .await
}

/// Waits until every worker has added what it has counted so far, which takes a second: snapshots are counted
/// all the time, so two changes of their number are a second apart.
pub async fn published_statistics(stack: &Stack) -> PickerStatistics {
    const SNAPSHOTS: &str = r#"snapshots{pool="default"}"#;
    let mut last = statistics(stack).await;
    for _ in 0..2 {
        let before = last.count(SNAPSHOTS);
        last = eventually("more snapshots are counted", async || {
            let now = statistics(stack).await;
            if now.count(SNAPSHOTS) > before { Ok(now) } else { Err(before) }
        })
        .await;
    }
    last
}

/// Waits until a counter or gauge of the pool `default`, such as `in_flight`, has this value.
pub async fn until_counted(stack: &Stack, name: &str, expected: u64) {
    let series = format!("{name}{{pool=\"default\"}}");
    eventually(&format!("{name} is {expected}"), async || match statistics(stack).await.count(&series) {
        found if found == expected => Ok(()),
        found => Err(found),
    })
    .await;
}
