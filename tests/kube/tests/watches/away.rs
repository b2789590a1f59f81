//! Requests through a gateway while the API server is away. The test has a cluster of its own beside that of the others, and comes first in their order.

use endpoint_picker_harness::Filter;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_kube::{Ground, Installation, Load};
use std::time::{Duration, Instant};

/// How long the API server is away. Watches end at once, and the agent's back-off has its full length after 4 s.
const AWAY: Duration = Duration::from_secs(60);
/// From the return of the API server to the agent's use of what has changed: its longest back-off, 2 s, and a list.
const RECOVERY: Duration = Duration::from_secs(10);

/// Few requests, because the tests beside this one measure.
const PAUSE: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_costs_no_request() {
    let mut logs = RunDir::new().unwrap();
    let ground = Ground::start(logs.path()).await.unwrap();
    let installation = Installation::new(&ground, Filter::Wasm, 3).await;
    let load = Load::start(&installation.url("/v1/chat/completions"), 4, PAUSE);
    let begin = Instant::now();
    ground.cluster().kill_api_server();
    tokio::time::sleep(AWAY).await;
    ground.cluster().start_api_server().await.unwrap();
    let back = Instant::now();

    // Changes count again.
    installation.scale(4).await;
    let ready = installation.until_ready(4).await;
    let changed = Instant::now();
    let url = installation.url("/v1/chat/completions");
    eventually("every pod is picked", async || {
        let answers = Load::start(&url, 4, Duration::ZERO);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let answers = answers.stop().await;
        let seen = answers.by_pod();
        if ready.iter().all(|pod| seen.contains_key(pod.as_str())) {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await;
    println!(
        "the API server was away for {:?}; the new pod was ready {:?} later",
        back - begin,
        changed - back
    );
    assert!(
        changed.elapsed() < RECOVERY,
        "the new pod was picked {:?} after it was ready",
        changed.elapsed()
    );
    load.stop().await.assert_none_lost();
    logs.settle();
}
