//! Endpoints in groups, and the tile of a pool that does not exist.

use super::table::is_true;
use endpoint_picker_harness::client;
use endpoint_picker_harness::program::{Agent, Browser, Scheme};
use endpoint_picker_model_server::ModelServer;
use std::net::Ipv4Addr;
use tempfile::TempDir;

/// One endpoint more than a page of the table has rows: groups are folded at first.
const ENDPOINTS: usize = 51;

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_grouped_by_a_label_and_a_pool_that_does_not_exist_is_named() {
    // One server under many addresses.
    let server = ModelServer::start_at(Ipv4Addr::UNSPECIFIED).unwrap();
    let port = server.address().port();
    let logs = TempDir::new().unwrap();
    let file = logs.path().join("endpoints.yaml");
    let endpoints = (1..=ENDPOINTS).map(|n| {
        let zone = if n <= 2 { "west" } else { "east" };
        format!("- {{name: s{n}, address: 127.0.3.{n}, port: \"{port}\", labels: {{zone: {zone}}}}}\n")
    });
    std::fs::write(&file, format!("endpoints:\n{}", endpoints.collect::<String>())).unwrap();
    let flags = ["--endpoints-file".as_ref(), file.as_os_str()];
    let listen = "127.0.0.1:0".parse().unwrap();
    let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();

    let shows_endpoints = async |count: usize| {
        let rows = "document.querySelectorAll('#endpoints tbody tr[data-endpoint]').length";
        is_true(&browser, &format!("{rows} === {count}")).await;
    };
    shows_endpoints(50).await;
    is_true(&browser, "[...document.getElementById('group').options].some(it => it.value === 'zone')").await;
    let choose = "(() => { const group = document.getElementById('group'); group.value = 'zone'; \
                  group.dispatchEvent(new Event('change')); return true; })()";
    assert!(browser.evaluate::<bool>(choose).await.unwrap());
    let groups =
        "[...document.querySelectorAll('#endpoints tr.group button')].map(it => it.innerText).sort().join()";
    is_true(&browser, &format!("{groups} === 'zone=east (49),zone=west (2)'")).await;
    shows_endpoints(0).await;
    let click_west = "(() => { document.querySelector(\"#endpoints tr.group[data-group='zone=west'] button\").click(); return true; })()";
    assert!(browser.evaluate::<bool>(click_west).await.unwrap());
    shows_endpoints(2).await;
    let follows = "document.querySelector(\"#endpoints tr[data-group='zone=west'] + tr\")?.dataset.endpoint";
    is_true(&browser, &format!("['default/s1', 's1'].includes({follows})")).await;
    assert!(browser.evaluate::<bool>(click_west).await.unwrap());
    shows_endpoints(0).await;

    let poll = format!("http://{}/v1/pools/defualt/snapshot", agent.address());
    assert_eq!(client::http1().get(poll).send().await.unwrap().status(), 404);
    let tiles = "[...document.querySelectorAll('#summary [data-level=bad]')].map(it => it.innerText).join()";
    is_true(&browser, &format!("{tiles}.includes('defualt')")).await;
}
