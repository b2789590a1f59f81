//! How far behind proxies are with the changes of others, below the proxies.

use anyhow::ensure;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::{Agent, Browser, Scheme};
use endpoint_picker_model_server::ModelServer;
use endpoint_picker_wire::changes::Sync;
use endpoint_picker_wire::{CHANGES_FORMAT, Message};
use reqwest::StatusCode;
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_which_proxy_is_behind_and_nothing_without_proxies_that_share() {
    let server = ModelServer::start().unwrap();
    let logs = TempDir::new().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let flags = ["--endpoint".to_owned(), server.endpoint(), "--share".to_owned(), "agent".to_owned()];
    let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Light, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();
    let rows = async || {
        let rows = "[...document.querySelectorAll('#sharing tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))";
        browser.evaluate::<Vec<Vec<String>>>(rows).await
    };
    eventually("the endpoints are shown", async || {
        let shown = browser.evaluate::<String>("document.getElementById('endpoints').innerText").await?;
        ensure!(shown.contains(&server.endpoint()), "{shown}");
        anyhow::Ok(())
    })
    .await;
    assert!(browser.evaluate::<bool>("document.getElementById('sharing').hidden").await.unwrap());
    let sync = async |sender: u64, proxy: &str, changes: Option<&'static [u8]>| {
        let sync = Sync {
            format: CHANGES_FORMAT,
            sender,
            proxy: proxy.to_owned(),
            changes: changes.map(Into::into),
            ..Sync::default()
        };
        let url = format!("http://{}/v1/pools/default/changes", agent.address());
        let post = client::http1().post(url).header("content-type", "application/x-protobuf");
        assert_eq!(post.body(sync.encode_to_vec()).send().await.unwrap().status(), StatusCode::OK);
    };
    sync(2, "two", None).await;
    eventually("one proxy is behind", async || {
        sync(1, "<one>", Some(b"a message")).await;
        let rows = rows().await?;
        let [one, two] = rows.as_slice() else { anyhow::bail!("{rows:?}") };
        ensure!([&one[0], &one[1], &one[2]] == ["<one>", "0 ms", "0"], "{one:?}");
        ensure!(two[0] == "two" && two[1] != "0 ms" && two[2] != "0", "{two:?}");
        anyhow::Ok(())
    })
    .await;
}
