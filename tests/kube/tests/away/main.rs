//! Requests through a gateway while the API server is away: `make test-gateway`. A program of its own,
//! because other tests need their API server.

use endpoint_picker_harness::Filter;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_kube::{GatewayGround, Installation, Load};
use std::time::{Duration, Instant};

/// How long the API server is away. Watches end at once, and the agent's back-off has its full length after 4
/// s.
const AWAY: Duration = Duration::from_secs(60);

/// The pause of a client after each response.
const PAUSE: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_costs_no_request() {
    let mut logs = RunDir::new().unwrap();
    let ground = GatewayGround::start(logs.path()).await.unwrap();
    let installation = Installation::new(&ground, Filter::Wasm, 3).await;
    let load = Load::start(&installation.url("/v1/chat/completions"), 4, PAUSE);
    let begin = Instant::now();
    ground.cluster().kill_api_server();
    tokio::time::sleep(AWAY).await;
    ground.cluster().start_api_server().await.unwrap();
    let back = Instant::now();

    // Changes count again: a pod that is not ready gets no request, and then it gets some.
    let pod = installation.servers().await[0].metadata.name.clone().unwrap();
    for is_ready in [false, true] {
        installation.set_gate(&pod, is_ready).await;
        let changed = eventually("the pod's readiness is another", async || {
            let change = ground.node().readiness_changes().into_iter().rfind(|change| change.pod == pod);
            change.filter(|change| change.is_ready == is_ready).map(|change| change.at).ok_or("not yet")
        })
        .await;
        let url = installation.url("/v1/chat/completions");
        eventually("requests go by it", async || {
            let sent = Instant::now();
            let answers = Load::start(&url, 4, Duration::ZERO);
            tokio::time::sleep(Duration::from_millis(500)).await;
            let answers = answers.stop().await;
            let seen = answers.by_pod();
            if seen.contains_key(pod.as_str()) == is_ready {
                println!(
                    "{pod} had Ready={is_ready} {:?} after the return; requests went by it {:?} later",
                    changed - back,
                    sent - changed
                );
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await;
    }
    println!("the API server was away for {:?}", back - begin);
    load.stop().await.assert_none_lost();
    installation.remove().await;
    logs.settle();
}
