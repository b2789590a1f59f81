//! The agent's live page, in a real browser.

use crate::fixture::{CHAT, assert_one_within, fresh_chat};
use anyhow::{Result, anyhow, ensure};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::program::{Browser, Scheme};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, Lora, ModelServer};
use endpoint_picker_wire::report::Report;
use endpoint_picker_wire::{Message, REPORT_FORMAT};
use reqwest::StatusCode;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The texts of the table's cells, without the charts' own, for the endpoints in the order in which they are shown.
const ROWS: &str = "[...document.querySelectorAll('#endpoints tbody tr')].map(row => \
                    [...row.cells].filter(cell => cell.className !== 'spark').map(cell => cell.innerText))";

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const DOWN: &str = "\u{e015}";

/// One row of the table.
#[derive(Debug)]
struct Row(Vec<String>);

impl Row {
    fn is_of(&self, server: &ModelServer) -> bool {
        self.0[1].contains(&server.endpoint())
    }

    /// State, queue, running requests, KV cache, requests in flight, adapters.
    fn values(&self) -> [&str; 6] {
        [0, 2, 3, 4, 5, 8].map(|index| self.0[index].as_str())
    }
}

async fn rows(browser: &Browser) -> Result<Vec<Row>> {
    Ok(browser.evaluate::<Vec<Vec<String>>>(ROWS).await?.into_iter().map(Row).collect())
}

async fn row(browser: &Browser, server: &ModelServer) -> Result<Row> {
    let rows = rows(browser).await?;
    let seen = format!("{} is not among {rows:?}", server.endpoint());
    rows.into_iter().find(|row| row.is_of(server)).ok_or_else(|| anyhow!(seen))
}

async fn shows(browser: &Browser, server: &ModelServer, values: [&str; 6]) {
    eventually(&format!("{} shows {values:?}", server.endpoint()), async || {
        let row = row(browser, server).await?;
        ensure!(row.values() == values, "{row:?}");
        anyhow::Ok(())
    })
    .await;
}

async fn is_true(browser: &Browser, expression: &str) {
    eventually(expression, async || {
        ensure!(browser.evaluate::<bool>(expression).await?, "it is false");
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_shows_what_servers_and_proxies_report_and_follows_a_change() {
    let stack = Stack::builder().start().await;
    let [first, second, third] = stack.servers() else { panic!("three servers") };
    first.update_metrics(|metrics| {
        (metrics.waiting, metrics.running, metrics.kv_cache_usage) = (3, 7, 0.42);
        let running = vec!["sql".to_owned(), "support".to_owned()];
        metrics.lora = Some(Lora { max: 4, running, waiting: vec![] });
    });
    second.update_metrics(|metrics| metrics.waiting = 12);
    let logs = TempDir::new().unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.open(stack.agent_address()).await.unwrap();
    shows(&browser, first, ["ready", "3", "7", "42 %", "0", "sql, support"]).await;
    shows(&browser, second, ["saturated", "12", "0", "0 %", "0", "–"]).await;
    is_true(&browser, "document.querySelectorAll('#charts canvas').length === 4").await;
    is_true(&browser, "document.querySelector('#endpoints .spark canvas') !== null").await;

    let mut took = Vec::new();
    for running in 20..25_u64 {
        let begin = Instant::now();
        third.update_metrics(|metrics| metrics.running = running);
        shows(&browser, third, ["ready", "0", &running.to_string(), "0 %", "0", "–"]).await;
        took.push(begin.elapsed());
    }
    assert_one_within(Duration::from_secs(2), &took);

    for server in stack.servers() {
        server.behave(Behaviour::Hang);
    }
    let url = stack.url(CHAT);
    let request = tokio::spawn(async move { client::http1().post(url).json(&fresh_chat()).send().await });
    eventually("one request in flight", async || {
        let rows = rows(&browser).await?;
        let in_flight: Vec<_> = rows.iter().map(|row| row.values()[4]).collect();
        ensure!(in_flight.iter().filter(|text| **text == "1").count() == 1, "{in_flight:?}");
        anyhow::Ok(())
    })
    .await;
    request.abort();

    third.refuse().await.unwrap();
    is_true(&browser, "document.querySelectorAll('tr[data-state=not_ready].changed').length === 1").await;
    let page = browser.page.source().await.unwrap();
    assert!(page.contains("endpoint-picker</td>"), "the proxy by its node id");
}

/// The value of a fact above the charts.
async fn fact(browser: &Browser, name: &str) -> Result<String> {
    let fact = format!(
        "[...document.querySelectorAll('#summary div')].find(it => it.children[0].innerText === '{name}')\
         ?.children[1].innerText ?? ''"
    );
    browser.evaluate(&fact).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_leave_out_the_values_of_an_endpoint_that_is_not_ready() {
    let servers: Vec<ModelServer> = (0..2).map(|_| ModelServer::start().unwrap()).collect();
    for (server, waiting) in servers.iter().zip([3, 40]) {
        server.update_metrics(|metrics| (metrics.waiting, metrics.running) = (waiting, waiting));
    }
    let logs = TempDir::new().unwrap();
    let flags = servers.iter().flat_map(|server| ["--endpoint".to_owned(), server.endpoint()]);
    let listen = "127.0.0.1:0".parse().unwrap();
    let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();
    let shows = async |sum: &str| {
        eventually(&format!("a sum of {sum}"), async || {
            let facts = [fact(&browser, "Waiting").await?, fact(&browser, "Running").await?];
            ensure!(facts == [sum, sum], "{facts:?}");
            anyhow::Ok(())
        })
        .await;
    };
    shows("43").await;
    servers[1].refuse().await.unwrap();
    shows("3").await;
    assert_eq!(
        row(&browser, &servers[1]).await.unwrap().values()[..2],
        ["not ready", "40"],
        "its last values stay"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_fits_a_window_of_1300_pixels() {
    let stack = Stack::builder().start().await;
    for server in stack.servers() {
        server.update_metrics(|metrics| {
            (metrics.waiting, metrics.running, metrics.kv_cache_usage) = (12_345, 12_345, 1.0);
            let running = vec!["sql".to_owned(), "support".to_owned()];
            metrics.lora = Some(Lora { max: 4, running, waiting: vec![] });
        });
    }
    let logs = TempDir::new().unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.page.set_window_size(1300, 1000).await.unwrap();
    browser.open(stack.agent_address()).await.unwrap();
    is_true(&browser, "innerWidth <= 1300").await;
    is_true(&browser, "document.querySelectorAll('#endpoints .spark canvas').length === 9").await;
    is_true(&browser, "document.documentElement.scrollWidth <= innerWidth").await;
    // The frame around the table would scroll.
    is_true(&browser, "(frame => frame.scrollWidth <= frame.clientWidth)(document.querySelector('.frame'))")
        .await;
    let cut = "[...document.querySelectorAll('#endpoints th, #endpoints td:not(.spark)')]\
               .filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.innerText)";
    assert_eq!(
        browser.evaluate::<Vec<String>>(cut).await.unwrap(),
        Vec::<String>::new(),
        "cells that are cut off"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_endpoints_are_sorted_filtered_and_looked_at_with_the_keyboard() {
    let servers: Vec<ModelServer> = (0..200).map(|_| ModelServer::start().unwrap()).collect();
    servers[123].update_metrics(|metrics| metrics.waiting = 77);
    let logs = TempDir::new().unwrap();
    let endpoints = servers.iter().flat_map(|server| ["--endpoint".to_owned(), server.endpoint()]);
    let flags = endpoints.chain(["--interval".to_owned(), "1s".to_owned()]);
    let listen = "127.0.0.1:0".parse().unwrap();
    let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Dark, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();
    is_true(&browser, "document.querySelectorAll('#endpoints tbody tr').length === 200").await;
    is_true(&browser, "document.querySelectorAll('#endpoints canvas').length < 300").await;

    // Sorted by the third column, the queue, with its greatest number first.
    browser.press("3").await.unwrap();
    eventually("the fullest queue comes first", async || {
        let rows = rows(&browser).await?;
        ensure!(rows[0].is_of(&servers[123]), "{:?}", rows[0]);
        anyhow::Ok(())
    })
    .await;
    browser.press("/").await.unwrap();
    browser.press("saturated").await.unwrap();
    is_true(&browser, "document.querySelectorAll('#endpoints tbody tr').length === 1").await;
    browser.press(DOWN).await.unwrap();
    browser.press(ENTER).await.unwrap();
    let heading =
        format!("document.querySelector('#details h2')?.innerText === 'default/{}'", servers[123].endpoint());
    is_true(&browser, &heading).await;
    is_true(&browser, "document.querySelectorAll('#details canvas').length === 4").await;
    browser.press(ESCAPE).await.unwrap();
    is_true(&browser, "document.getElementById('details').hidden").await;
    browser.press(ESCAPE).await.unwrap();
    is_true(&browser, "document.querySelectorAll('#endpoints tbody tr').length === 200").await;

    // Dark because the browser prefers it, and nothing came from elsewhere.
    let ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(part => part < 64)";
    is_true(&browser, ground).await;
    let sources = "performance.getEntriesByType('resource').map(it => new URL(it.name).origin)";
    let sources = browser.evaluate::<Vec<String>>(sources).await.unwrap();
    assert!(sources.len() > 8, "{sources:?}");
    assert!(sources.iter().all(|source| *source == format!("http://{}", agent.address())), "{sources:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_tells_how_often_a_shadow_agrees_and_nothing_without_one() {
    let server = ModelServer::start().unwrap();
    let logs = TempDir::new().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let flags = ["--endpoint".to_owned(), server.endpoint()];
    let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();
    let tell = async |proxy: &str, shadow: Option<(u64, u64)>| {
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
    let shows = async |what: &str, told: &str, reports: &[(&str, Option<(u64, u64)>)]| {
        eventually(what, async || {
            for (proxy, shadow) in reports {
                tell(proxy, *shadow).await;
            }
            let shown = browser.evaluate::<String>("document.getElementById('proxies').innerText").await?;
            let all_report = reports.iter().all(|(proxy, _)| shown.contains(proxy));
            ensure!(all_report, "{shown}");
            let facts = "[...document.querySelectorAll('#summary div')].map(it => it.innerText)";
            let facts = browser.evaluate::<Vec<String>>(facts).await?;
            let shadow: Vec<_> = facts.iter().filter(|fact| fact.contains("Shadow")).collect();
            let words: Vec<_> = shadow.iter().flat_map(|fact| fact.split_whitespace()).collect();
            ensure!(words.join(" ") == told, "{facts:?}");
            anyhow::Ok(())
        })
        .await;
    };
    shows("nobody tries one", "", &[("one", None), ("old", None)]).await;
    shows("it was tried on nothing yet", "Shadow agrees – of 0", &[("one", Some((0, 0))), ("old", None)])
        .await;
    let both = [("one", Some((9_000, 345))), ("two", Some((3_000, 0))), ("old", None)];
    shows("those that try it are added up", "Shadow agrees 97.2 % of 12,345", &both).await;
    shows(
        "a single objection shows",
        "Shadow agrees 99.9 % of 9,999",
        &[("one", Some((9_998, 1))), ("two", Some((0, 0)))],
    )
    .await;
    shows("it is gone", "", &[("one", None), ("two", None)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_gone_and_hostile_names_are_told_as_text() {
    let server = ModelServer::start().unwrap();
    let logs = TempDir::new().unwrap();
    let file = logs.path().join("endpoints.yaml");
    let endpoint = format!(
        "endpoints:\n- name: \"<img src=x onerror=document.title='broken'>\"\n  address: {}\n  port: \"{}\"\n",
        server.address().ip(),
        server.address().port()
    );
    std::fs::write(&file, endpoint).unwrap();
    let flags = ["--endpoints-file".as_ref(), file.as_os_str()];
    let listen = "127.0.0.1:0".parse().unwrap();
    let mut agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();
    is_true(&browser, "document.querySelector('td.name b')?.innerText.includes('<img src=x')").await;
    assert_eq!(browser.page.title().await.unwrap(), "default – endpoint picker");

    agent.kill();
    is_true(&browser, "document.getElementById('connection').innerText.startsWith('connection lost at')")
        .await;
}
