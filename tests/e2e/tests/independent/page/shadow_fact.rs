//! The agreement of a shadow, above the charts.

use anyhow::ensure;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::{Agent, Browser, Scheme};
use endpoint_picker_model_server::ModelServer;
use endpoint_picker_wire::report::Report;
use endpoint_picker_wire::{Message, REPORT_FORMAT};
use reqwest::StatusCode;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_how_often_a_shadow_agrees_and_nothing_without_one() {
    let server = ModelServer::start().unwrap();
    let logs = TempDir::new().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let flags = ["--endpoint".to_owned(), server.endpoint()];
    let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();
    let send_report = async |proxy: &str, shadow: Option<(u64, u64)>| {
        let report = Report {
            format: REPORT_FORMAT,
            proxy: proxy.to_owned(),
            shadow_agreed: shadow.map(|(agreed, _)| agreed),
            shadow_disagreed: shadow.map(|(_, disagreed)| disagreed),
            ..Report::default()
        };
        let url = format!("http://{}/v1/pools/default/report", agent.address());
        let report = client::http1().post(url).body(report.encode_to_vec());
        let answer = report.header("content-type", "application/x-protobuf").send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NO_CONTENT);
    };
    // A proxy is forgotten when it has not reported for a while.
    let shows = async |what: &str, expected: &str, reports: &[(&str, Option<(u64, u64)>)]| {
        eventually(what, async || {
            for (proxy, shadow) in reports {
                send_report(proxy, *shadow).await;
            }
            let shown = browser.evaluate::<String>("document.getElementById('proxies').innerText").await?;
            let all_report = reports.iter().all(|(proxy, _)| shown.contains(proxy));
            ensure!(all_report, "{shown}");
            let facts = "[...document.querySelectorAll('#summary div')].map(it => it.innerText)";
            let facts = browser.evaluate::<Vec<String>>(facts).await?;
            let shadow: Vec<_> = facts.iter().filter(|fact| fact.contains("Shadow")).collect();
            let words: Vec<_> = shadow.iter().flat_map(|fact| fact.split_whitespace()).collect();
            ensure!(words.join(" ") == expected, "{facts:?}");
            anyhow::Ok(())
        })
        .await;
    };
    shows("no proxy has a shadow", "", &[("one", None), ("old", None)]).await;
    shows("a shadow without decisions", "Shadow agrees – of 0", &[("one", Some((0, 0))), ("old", None)])
        .await;
    let both = [("one", Some((9_000, 345))), ("two", Some((3_000, 0))), ("old", None)];
    shows("the shadows of several proxies are added up", "Shadow agrees 97.2 % of 12,345", &both).await;
    shows(
        "a single disagreement shows",
        "Shadow agrees 99.9 % of 9,999",
        &[("one", Some((9_998, 1))), ("two", Some((0, 0)))],
    )
    .await;
    shows("without a shadow again", "", &[("one", None), ("two", None)]).await;
}
