//! State of servers and proxies on the page, and its changes.

use super::table::{is_true, row, rows, shows};
use anyhow::{Result, ensure};
use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::{Agent, Browser, Scheme};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, Lora, ModelServer};
use tempfile::TempDir;

/// The latest value of the first line of a chart.
async fn latest(browser: &Browser, chart: &str) -> Result<String> {
    let value = format!(
        "[...document.querySelectorAll('#charts h3')].find(it => it.innerText.startsWith('{chart}'))\
         ?.querySelector('b').innerText ?? ''"
    );
    browser.evaluate(&value).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_the_readings_of_servers_and_the_reports_of_proxies_and_follows_a_change() {
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

    for running in 20..25_u64 {
        third.update_metrics(|metrics| metrics.running = running);
        shows(&browser, third, ["ready", "0", &running.to_string(), "0 %", "0", "–"]).await;
    }

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
    let shows = async |mean: &str, sum: &str| {
        eventually(&format!("a sum of {sum}"), async || {
            let values = [latest(&browser, "Waiting").await?, latest(&browser, "Requests").await?];
            ensure!(values == [mean, sum], "{values:?}");
            anyhow::Ok(())
        })
        .await;
    };
    shows("21.5", "43").await;
    servers[1].refuse().await.unwrap();
    shows("3", "3").await;
    let gone = row(&browser, &servers[1]).await.unwrap();
    assert_eq!(gone.values()[..2], ["not ready", "40"], "its last values stay");
    assert!(gone.reason().starts_with("connection refused, "), "{gone:?}");
    let tile = "[...document.querySelectorAll('#summary [data-level=bad]')].map(it => it.innerText).join()";
    let tile = browser.evaluate::<String>(tile).await.unwrap();
    assert!(tile.contains("no filter reports"), "{tile:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_agent_and_hostile_names_are_shown_as_text() {
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

    // In a narrow window; its numbers are old from now on.
    browser.page.set_window_size(420, 900).await.unwrap();
    let has_color = |of: &str| {
        let color = |selector: &str| format!("getComputedStyle(document.querySelector('{selector}')).color");
        format!("{} === {}", color("#summary dd:not(.note)"), color(of))
    };
    is_true(&browser, &has_color("body")).await;
    agent.kill();
    is_true(&browser, "document.getElementById('connection').innerText.startsWith('connection lost at')")
        .await;
    is_true(&browser, "innerWidth <= 420 && document.documentElement.scrollWidth <= innerWidth").await;
    is_true(&browser, &has_color("#summary dt")).await;
}
