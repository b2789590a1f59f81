//! Endpoints in groups, and the tile of a pool that does not exist.

use super::table::is_true;
use endpoint_picker_harness::client;
use endpoint_picker_harness::program::{Agent, Browser, Scheme};
use endpoint_picker_model_server::ModelServer;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_grouped_by_a_label_and_a_pool_that_does_not_exist_is_named() {
    let servers: Vec<ModelServer> = (0..3).map(|_| ModelServer::start().unwrap()).collect();
    let logs = TempDir::new().unwrap();
    let file = logs.path().join("endpoints.yaml");
    let endpoints = servers.iter().zip(["east", "west", "east"]).enumerate();
    let endpoints = endpoints.map(|(number, (server, zone))| {
        let (ip, port) = (server.address().ip(), server.address().port());
        format!("- {{name: s{number}, address: {ip}, port: \"{port}\", labels: {{zone: {zone}}}}}\n")
    });
    std::fs::write(&file, format!("endpoints:\n{}", endpoints.collect::<String>())).unwrap();
    let flags = ["--endpoints-file".as_ref(), file.as_os_str()];
    let listen = "127.0.0.1:0".parse().unwrap();
    let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();

    is_true(&browser, "document.querySelectorAll('#endpoints tbody tr[data-endpoint]').length === 3").await;
    is_true(&browser, "[...document.getElementById('group').options].some(it => it.value === 'zone')").await;
    let choose = "(() => { const group = document.getElementById('group'); group.value = 'zone'; \
                  group.dispatchEvent(new Event('change')); return true; })()";
    assert!(browser.evaluate::<bool>(choose).await.unwrap());
    let groups =
        "[...document.querySelectorAll('#endpoints tr.group button')].map(it => it.innerText).sort().join()";
    is_true(&browser, &format!("{groups} === 'zone=east (2),zone=west (1)'")).await;
    let fold = "(() => { document.querySelector(\"#endpoints tr.group[data-group='zone=east'] button\").click(); return true; })()";
    assert!(browser.evaluate::<bool>(fold).await.unwrap());
    is_true(&browser, "document.querySelectorAll('#endpoints tbody tr[data-endpoint]').length === 1").await;

    let poll = format!("http://{}/v1/pools/defualt/snapshot", agent.address());
    assert_eq!(client::http1().get(poll).send().await.unwrap().status(), 404);
    let tiles = "[...document.querySelectorAll('#summary [data-level=bad]')].map(it => it.innerText).join()";
    is_true(&browser, &format!("{tiles}.includes('defualt')")).await;
}
