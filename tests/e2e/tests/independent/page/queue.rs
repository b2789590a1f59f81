//! The queue of flow control.

use super::{Watched, send_report};
use anyhow::ensure;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_wire::report::{Band, BandOutcome, BandTenant, FlowControl, Report};

fn queue(waiting: u64, dispatched: u64) -> FlowControl {
    let outcome = |outcome: &str, waits: Vec<u64>| BandOutcome {
        outcome: outcome.to_owned(),
        waits,
        ..BandOutcome::default()
    };
    let batch = Band {
        priority: -10,
        requests: waiting,
        max_requests: 200,
        max_bytes: 1_000_000,
        // From 25 to 50 ms.
        outcomes: vec![
            outcome("Dispatched", vec![0, 0, 0, 0, 0, 0, dispatched]),
            outcome("EvictedTTL", vec![3]),
        ],
        ..Band::default()
    };
    let bands = vec![Band { max_requests: 200, ..Band::default() }, batch];
    FlowControl { saturation: 1.25, bands, ..FlowControl::default() }
}

/// A queue with a tenant whose name is markup.
fn queue_of_tenants(waiting: u64, dispatched: u64) -> FlowControl {
    let mut queue = queue(waiting, dispatched);
    let of = |fairness_id: &str, requests, outcomes| BandTenant {
        fairness_id: fairness_id.to_owned(),
        requests,
        outcomes,
        ..BandTenant::default()
    };
    let batch = &mut queue.bands[1];
    batch.tenants = vec![of("team-a", 1, batch.outcomes.clone()), of("<b>x</b>", waiting - 3, vec![])];
    queue
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_the_queue_of_each_band_and_nothing_without_one() {
    let Watched { agent, browser, .. } = &Watched::start().await;
    browser.open(agent.address()).await.unwrap();
    let shows = async |what: &str,
                       flow_control: &dyn Fn() -> Option<FlowControl>,
                       fact: &str,
                       rows: &[&str]| {
        eventually(what, async || {
            let proxy = "envoy".to_owned();
            send_report(agent, Report { proxy, flow_control: flow_control(), ..Report::default() }).await;
            let texts = |selector: &str| format!("[...document.querySelectorAll('{selector}')].map(it => it.innerText.trim().split(/\\s+/).join(' '))");
            let shown = browser.evaluate::<Vec<String>>(&texts("#queue tbody tr")).await?;
            let facts = browser.evaluate::<Vec<String>>(&texts("#summary div")).await?;
            let facts: Vec<_> = facts.into_iter().filter(|fact| fact.starts_with("Queued")).collect();
            ensure!(shown == rows && facts.concat() == fact, "{shown:?} {facts:?}");
            anyhow::Ok(())
        })
        .await;
    };
    shows("no queue", &|| None, "", &[]).await;
    let idle = "0 0 0 % – – – 0 0";
    let full = ["0 0 0 % – – – 0 0", "-10 150 75 % – – – 7 3 × EvictedTTL"];
    assert_eq!(full[0], idle);
    shows("the first report", &|| Some(queue(150, 7)), "Queued 150 saturation 1.25", &full).await;
    let waited = [idle, "-10 1 1 % 38 ms 48 ms 50 ms 1,007 3 × EvictedTTL"];
    shows("recent waits", &|| Some(queue(1, 1_007)), "Queued 1 saturation 1.25", &waited).await;
    // Its proxies did not know their tenants until now.
    let tenants = [
        idle,
        "-10 10 5 % 38 ms 48 ms 50 ms 2,007 3 × EvictedTTL",
        "<b>x</b> 7 – – –",
        "other 2 38 ms 48 ms 50 ms",
        "team-a 1 38 ms 48 ms 50 ms",
    ];
    shows("tenants", &|| Some(queue_of_tenants(10, 2_007)), "Queued 10 saturation 1.25", &tenants).await;
}
