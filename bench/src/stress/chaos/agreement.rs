//! Whether several proxies decide as one, and whether nothing is left in flight.

use metrics_agent_status::pool::PoolStatus;

use super::recovery::{GIVE_UP, URGENT, fresh_prompt};
use crate::stress::proxies::Proxies;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::statistics::PickerStatistics;
use reqwest::{Response, StatusCode};
use std::time::{Duration, Instant};

/// In normal operation proxies and agents are less far behind.
const MOST_BEHIND_MS: u64 = 500;
/// Requests are over by then, except those at servers that hang.
const IDLE_DEADLINE: Duration = Duration::from_secs(30);
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
/// A prompt that comes later may be found no more: the large ones of the mix soon take its place in the
/// index.
const FOUND_DEADLINE: Duration = Duration::from_millis(500);

/// The time until each proxy finds new prompts that were sent through each other one in the servers' caches;
/// [`GIVE_UP`] if it does not, or if a proxy misses another one or an agent stays behind.
pub(super) async fn until_agreed(proxies: &Proxies) -> Duration {
    let begin = Instant::now();
    let agreed = within(GIVE_UP, async || {
        for from in proxies.stacks() {
            for to in proxies.stacks().iter().filter(|to| to.url("") != from.url("")) {
                finds_prompt_of(from, to).await?;
            }
        }
        anyhow::Ok(begin.elapsed())
    });
    let result = match agreed.await {
        Ok(took) => within(GIVE_UP, async || all_follow(proxies).await).await.map(|()| took),
        Err(reason) => Err(reason),
    };
    result.unwrap_or_else(|reason| {
        eprintln!("the proxies do not agree: {reason}");
        GIVE_UP
    })
}

async fn finds_prompt_of(from: &Stack, to: &Stack) -> Result<()> {
    let prompt = fresh_prompt();
    send(from, &prompt, None).await?.error_for_status()?;
    let found = within(FOUND_DEADLINE, async || {
        let status = send(to, &prompt, Some("if-available")).await?.status();
        ensure!(status == StatusCode::OK, "a prompt that another proxy sent is not found: {status}");
        Ok(())
    });
    found.await.map_err(anyhow::Error::msg)
}

async fn send(to: &Stack, prompt: &str, prefer: Option<&str>) -> Result<Response> {
    let request = client::http1().post(to.url("/v1/chat/completions")).json(&client::chat(prompt));
    let request = URGENT.headers().fold(request, |request, (name, value)| request.header(name, value));
    let request = prefer.into_iter().fold(request, |request, value| request.header("prefer", value));
    Ok(request.timeout(ANSWER_DEADLINE).send().await?)
}

/// Every proxy has changes of all others, and neither proxies nor agents are behind.
async fn all_follow(proxies: &Proxies) -> Result<()> {
    let others = proxies.stacks().len() as u64 - 1;
    for stack in proxies.stacks() {
        let found = PickerStatistics::of(stack.envoy()).await?.count(r#"sharing_proxies{pool="default"}"#);
        ensure!(found == others, "a proxy has changes of {found} others");
    }
    for PoolStatus { sharing, .. } in proxies.statuses().await? {
        let sharing = sharing.context("an agent shares nothing")?;
        let store = sharing.store.context("an agent has no store")?;
        let proxies = sharing.proxies.iter().map(|proxy| proxy.behind_ms);
        let behind = proxies.chain([store.read_behind_ms, store.write_behind_ms]).max().unwrap_or_default();
        ensure!(store.connected && behind <= MOST_BEHIND_MS, "behind: {sharing:?}");
    }
    Ok(())
}

/// Waits until no request waits or is in flight, by what each agent shows.
pub(in crate::stress) async fn until_idle(proxies: &Proxies) -> Result<()> {
    let idle = within(IDLE_DEADLINE, async || {
        for status in proxies.statuses().await? {
            let loads = status.endpoints.iter().filter_map(|endpoint| endpoint.sent.as_ref());
            let loads: u64 = loads.map(|sent| sent.requests).sum();
            ensure!(loads == 0, "{loads} requests in flight count as load");
            if let Some(queue) = status.queue {
                let waiting: u64 = queue.bands.iter().map(|band| band.requests).sum();
                let in_flight = queue.in_flight;
                ensure!(waiting == 0 && in_flight == 0, "{waiting} requests wait, {in_flight} are in flight");
            }
        }
        for stack in proxies.stacks() {
            let active = stack.envoy().stat("http.inference.downstream_rq_active").await?;
            ensure!(active == 0, "Envoy has {active} requests");
        }
        Ok(())
    });
    idle.await.map_err(anyhow::Error::msg).context("requests are left when all have ended")
}
