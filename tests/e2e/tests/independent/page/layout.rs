//! The layout of the table, its filter and its keys.

use super::table::{is_true, rows};
use anyhow::ensure;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::{Agent, Browser, Scheme};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Lora, ModelServer};
use tempfile::TempDir;

const ENTER: &str = "\u{e007}";
const ESCAPE: &str = "\u{e00c}";
const DOWN: &str = "\u{e015}";

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
async fn two_hundred_endpoints_are_sorted_filtered_and_opened_with_the_keyboard() {
    let servers: Vec<ModelServer> = (0..200).map(|_| ModelServer::start().unwrap()).collect();
    servers[123].update_metrics(|metrics| metrics.waiting = 77);
    let logs = TempDir::new().unwrap();
    let endpoints = servers.iter().flat_map(|server| ["--endpoint".to_owned(), server.endpoint()]);
    let flags = endpoints.chain(["--interval".to_owned(), "1s".to_owned()]);
    let listen = "127.0.0.1:0".parse().unwrap();
    let agent = Agent::start(listen, flags, &logs.path().join("agent.log")).await.unwrap();
    let browser = Browser::start(Scheme::Dark, logs.path()).await.unwrap();
    browser.open(agent.address()).await.unwrap();
    is_true(&browser, "document.querySelectorAll('#endpoints tbody tr').length === 50").await;
    is_true(&browser, "document.querySelector('#pager span').innerText === '1 to 50 of 200 endpoints'").await;
    is_true(&browser, "document.querySelectorAll('#endpoints canvas').length < 300").await;

    // Sorted by the third column, waiting requests, with its greatest number first.
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
    is_true(&browser, "document.querySelectorAll('#endpoints tbody tr').length === 50").await;

    // Dark as the browser prefers, and no resource is from another host.
    let background =
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every(part => part < 64)";
    is_true(&browser, background).await;
    let sources = "performance.getEntriesByType('resource').map(it => new URL(it.name).origin)";
    let sources = browser.evaluate::<Vec<String>>(sources).await.unwrap();
    assert!(sources.len() > 8, "{sources:?}");
    assert!(sources.iter().all(|source| *source == format!("http://{}", agent.address())), "{sources:?}");
}
