//! A proxy is killed: how long its loads count in the view of another.

use crate::bench_proxies::arrangement::Arrangement;
use crate::bench_proxies::fleet::{Fleet, FleetPlan};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::configurations::LEAST_LOADED;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::{Filter, client};
use endpoint_picker_model_server::{Behaviour, ModelServer};
use std::time::{Duration, Instant};

/// Requests in a row that go to one of two servers because it is the best: by chance, this happens once in a million times.
const IN_A_ROW: usize = 20;
const SEEN_DEADLINE: Duration = Duration::from_secs(20);
const GIVE_UP: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Kills one of two proxies that has a request in flight, and its agent if it has one of its own. Returns the time until the other
/// proxy picks the request's server again.
pub(crate) async fn measure(arrangement: Arrangement, filter: Filter) -> Result<Duration> {
    let servers = [ModelServer::start()?, ModelServer::start()?];
    let endpoints = [servers[0].address(), servers[1].address()];
    let rules = Some(LEAST_LOADED);
    let mut fleet =
        Fleet::start(FleetPlan { arrangement, proxies: 2, filter, endpoints: &endpoints, rules, epp: None })
            .await?;
    let urls = fleet.listeners();
    let urls: Vec<String> =
        urls.iter().map(|address| format!("http://{address}/v1/chat/completions")).collect();
    let [killed, other] = &urls[..] else { anyhow::bail!("two proxies") };

    for server in &servers {
        server.take_requests();
        server.behave(Behaviour::Hang);
    }
    let hanging = tokio::spawn(client::http1().post(killed).json(&client::chat("hangs")).send());
    let busy = within(SEEN_DEADLINE, async || {
        servers.iter().position(|server| !server.requests().is_empty()).context("the request is at no server")
    });
    let busy = &servers[busy.await.map_err(anyhow::Error::msg)?];
    for server in &servers {
        server.behave(Behaviour::default());
    }
    let seen = within(SEEN_DEADLINE, async || {
        for _ in 0..IN_A_ROW {
            ensure!(!goes_to(busy, other).await?, "the other proxy picks the busy server");
        }
        Ok(())
    });
    seen.await.map_err(anyhow::Error::msg).context("the load does not count in the other proxy")?;

    fleet.kill_first();
    let begin = Instant::now();
    hanging.abort();
    while !goes_to(busy, other).await? {
        ensure!(
            begin.elapsed() < GIVE_UP,
            "the loads of a proxy that was killed still count after {GIVE_UP:?}"
        );
        tokio::time::sleep(PAUSE).await;
    }
    Ok(begin.elapsed())
}

/// Sends a request; whether this server got it.
async fn goes_to(server: &ModelServer, url: &str) -> Result<bool> {
    server.take_requests();
    client::http1().post(url).json(&client::chat("hello")).send().await?.error_for_status()?;
    Ok(!server.requests().is_empty())
}
