//! The order in which waiting requests go on, where the rules fix it: one server that takes one request at a time.

use super::FlowControlPlan;
use super::gate::{Gate, GatedServers};
use crate::bench_epp::rules::Rules;
use crate::load::senders::{BANDS, Sender, TENANTS};
use crate::report::Progress;
use crate::report::markdown::{met, table};
use anyhow::{Context, Result, ensure};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_kube::Cluster;
use endpoint_picker_model_server::ServiceTimes;
use reqwest::{Client, RequestBuilder};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Requests of each tenant in each band.
const EACH: usize = 4;
/// Between two arrivals, so that their order is that of sending.
const GAP: Duration = Duration::from_millis(10);
const DEADLINE: Duration = Duration::from_secs(30);
/// The header with a request's name.
const NAME: &str = "x-name";
/// The request that occupies the server while the others arrive.
const FIRST: &str = "first";

/// A step gives each request one token.
const TIMES: ServiceTimes = ServiceTimes {
    max_running: 16,
    step: Duration::from_millis(10),
    step_per_sequence: Duration::ZERO,
    prefill_per_token: Duration::ZERO,
    max_batched_tokens: 2048,
    kv_blocks: 2048,
    max_loras: 0,
    lora_load: Duration::ZERO,
    stream_interval: 1,
};

/// The order of both queues; returns a table.
pub(super) async fn measure(
    plan: FlowControlPlan,
    epp: &Path,
    cluster: &Cluster,
    progress: &Progress,
) -> Result<String> {
    let arrivals = arrivals(plan.seed);
    let expected = expected(&arrivals);
    let mut rows = Vec::new();
    for gate in Gate::BOTH {
        let gated = gate.start(Rules::Queue("order"), 1, TIMES, epp, cluster).await?;
        let order = order(&gated, &arrivals).await.with_context(|| format!("{gate}"))?;
        let others: Vec<String> = order
            .iter()
            .zip(&expected)
            .filter(|(name, expected)| name != expected)
            .map(|(name, expected)| format!("{name} for {expected}"))
            .collect();
        let equal = format!("{} of {}", expected.len() - others.len(), expected.len());
        progress.print(&format!("{gate}: {equal} in the expected place; {}", others.join(", ")));
        let is_equal = if gate == Gate::Native { met(others.is_empty()) } else { "" };
        let others = others.into_iter().take(4).collect::<Vec<_>>().join(", ");
        rows.push([gate.to_string(), equal, is_equal.to_owned(), others]);
    }
    let mut text = format!(
        "{} requests of three bands and three tenants wait for one place; seed {}. Their order is fixed: the highest band first, \
         its tenants in turns, each tenant's requests as they came.\n\n",
        expected.len(),
        plan.seed
    );
    table(&mut text, &["", "in the expected place", "all", "the first others"], rows)?;
    Ok(text)
}

/// Every request's name and sender, in the order of arrival.
fn arrivals(seed: u64) -> Vec<(String, Sender)> {
    let mut rng = SplitMix64::new(seed);
    let mut senders: Vec<Sender> = Sender::all().flat_map(|sender| [sender; EACH]).collect();
    for place in (1..senders.len()).rev() {
        senders.swap(place, rng.below(place + 1));
    }
    let mut counts = [[0; TENANTS.len()]; BANDS.len()];
    let name = |sender: Sender| {
        let count = &mut counts[sender.band][sender.tenant];
        *count += 1;
        (format!("{}-{}{count}", BANDS[sender.band], TENANTS[sender.tenant]), sender)
    };
    senders.into_iter().map(name).collect()
}

/// The names in the order that the rules fix.
fn expected(arrivals: &[(String, Sender)]) -> Vec<String> {
    let mut order = Vec::new();
    for band in 0..BANDS.len() {
        for turn in 0..EACH {
            for tenant in 0..TENANTS.len() {
                let own = arrivals.iter().filter(|(_, sender)| *sender == Sender { band, tenant });
                order.extend(own.map(|(name, _)| name.clone()).nth(turn));
            }
        }
    }
    order
}

/// The names in the order in which they reached the server.
async fn order(gated: &GatedServers, arrivals: &[(String, Sender)]) -> Result<Vec<String>> {
    let [server] = &gated.servers[..] else { anyhow::bail!("one server") };
    let client = client::http1();
    let url = format!("http://{}/v1/chat/completions", gated.running.listener());
    let reached = |count: usize| {
        within(DEADLINE, async move || {
            let requests = server.requests().len();
            ensure!(requests >= count, "{requests} of {count} requests have reached the server");
            anyhow::Ok(())
        })
    };
    let mut answers = JoinSet::new();
    let gaps = GAP * u32::try_from(arrivals.len() + 40)?;
    let tokens = gaps.as_millis() / TIMES.step.as_millis();
    answers.spawn(request(&client, &url, FIRST, tokens).send());
    reached(1).await.map_err(anyhow::Error::msg)?;
    for (name, sender) in arrivals {
        let request = sender
            .headers()
            .fold(request(&client, &url, name, 1), |request, (name, value)| request.header(name, value));
        answers.spawn(request.send());
        sleep(GAP).await;
    }
    let early = server.requests().len();
    ensure!(early == 1, "{} requests went on before all had arrived", early - 1);
    while let Some(answer) = answers.join_next().await {
        answer??.error_for_status()?.bytes().await?;
    }
    let names =
        server.requests().into_iter().map(|request| request.header(NAME).unwrap_or_default().to_owned());
    Ok(names.filter(|name| name != FIRST).collect())
}

fn request(client: &Client, url: &str, name: &str, tokens: u128) -> RequestBuilder {
    let mut body = client::chat(name);
    body["max_tokens"] = json!(tokens);
    client.post(url).header(NAME, name).timeout(DEADLINE).json(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_come_one_after_another_and_tenants_in_turns() {
        let arrivals = arrivals(3);
        let order = expected(&arrivals);
        assert_eq!(order[..4], ["high-a1", "high-b1", "high-c1", "high-a2"]);
        assert_eq!(order[12..14], ["normal-a1", "normal-b1"]);
        assert_eq!(order.last().map(String::as_str), Some("low-c4"));
        let mut names: Vec<_> = arrivals.into_iter().map(|(name, _)| name).collect();
        assert_ne!(names, order);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), order.len());
    }
}
