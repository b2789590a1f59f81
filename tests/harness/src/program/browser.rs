//! A headless Chromium, driven through chromedriver.

use super::process::Process;
use crate::client;
use crate::eventually::within;
use anyhow::{Context, Result, anyhow};
use fantoccini::{Client, ClientBuilder};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::runtime::Handle;

const STARTED: Duration = Duration::from_secs(60);
const CLOSED: Duration = Duration::from_secs(20);

/// A running browser with one window; it ends when dropped, which has to happen on a runtime of several
/// threads.
#[derive(Debug)]
pub struct Browser {
    /// The window.
    pub page: Client,
    driver_url: String,
    _driver: Process,
}

impl Drop for Browser {
    /// The driver ends its browser with the session, and with nothing else.
    fn drop(&mut self) {
        let close = tokio::time::timeout(CLOSED, self.page.clone().close());
        let closed = tokio::task::block_in_place(|| Handle::current().block_on(close));
        if !matches!(closed, Ok(Ok(()))) {
            eprintln!("Chromium may still run: {closed:?}");
        }
    }
}

/// The preferred colour scheme, by Chromium's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Light text on a dark background.
    Dark = 0,
    /// Dark text on a light background.
    Light = 1,
}

impl Browser {
    /// Starts it; logs go to `folder`.
    pub async fn start(scheme: Scheme, folder: &Path) -> Result<Self> {
        let mut command = Command::new("chromedriver");
        command.args(["--port=0", "--allowed-ips=127.0.0.1"]);
        let mut driver = Process::start("chromedriver", command, &folder.join("chromedriver.log")).context(
            "no chromedriver: run `make test-tools`, or install it with Chromium of the same version",
        )?;
        let port = within(STARTED, async || {
            driver.check_running()?;
            let output = driver.output()?;
            let port = output.lines().find_map(|line| line.split_once("successfully on port "));
            let port = port.ok_or_else(|| anyhow!("chromedriver has not printed its port: {output}"))?;
            anyhow::Ok(port.1.trim_end_matches('.').parse::<u16>()?)
        });
        let port = port.await.map_err(anyhow::Error::msg)?;
        let driver_url = format!("http://127.0.0.1:{port}");
        let options = json!({"args": [
            "--headless=new",
            "--window-size=1400,1000",
            // It shows nothing but the agent's own page, and Chromium refuses to run as root with its
            // sandbox.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            format!("--blink-settings=preferredColorScheme={}", scheme as u8),
        ]});
        let capabilities = [("goog:chromeOptions".to_owned(), options)].into_iter().collect();
        let page = ClientBuilder::new(hyper_util::client::legacy::connect::HttpConnector::new())
            .capabilities(capabilities)
            .connect(&driver_url)
            .await
            .context("Chromium did not start: run `make test-tools`")?;
        Ok(Self { page, driver_url, _driver: driver })
    }

    /// Opens the page of the agent at this address.
    pub async fn open(&self, agent: SocketAddr) -> Result<()> {
        Ok(self.page.goto(&format!("http://{agent}/")).await?)
    }

    /// Runs a script in every page that is opened from now on, before the page's own scripts.
    pub async fn run_before_scripts(&self, script: &str) -> Result<()> {
        let parameters = json!({"source": script});
        self.command("Page.addScriptToEvaluateOnNewDocument", parameters).await.map(drop)
    }

    /// The value of a JavaScript expression.
    pub async fn evaluate<T: serde::de::DeserializeOwned>(&self, expression: &str) -> Result<T> {
        let value = self.page.execute(&format!("return {expression};"), vec![]).await?;
        serde_json::from_value(value.clone()).with_context(|| format!("{expression} gave {value}"))
    }

    /// Begins to measure the time that the page's main thread spends on the processor.
    pub async fn measure_threads(&self) -> Result<()> {
        self.command("Performance.enable", json!({"timeDomain": "threadTicks"})).await.map(drop)
    }

    /// The time that the page's main thread has spent on the processor, after [`Self::measure_threads`]. The
    /// other metrics of tasks count the time that they wait for a processor too.
    pub async fn main_thread_time(&self) -> Result<Duration> {
        let value = self.command("Performance.getMetrics", json!({})).await?;
        let metrics = value["metrics"].as_array().context("no metrics")?;
        let time = metrics.iter().find(|metric| metric["name"] == "ThreadTime");
        let seconds = time.and_then(|time| time["value"].as_f64()).context("no ThreadTime")?;
        Ok(Duration::try_from_secs_f64(seconds)?)
    }

    /// The result of a command of the `DevTools` protocol.
    async fn command(&self, name: &str, parameters: Value) -> Result<Value> {
        let session = self.page.session_id().await?.context("no session")?;
        let url = format!("{}/session/{session}/goog/cdp/execute", self.driver_url);
        let body = json!({"cmd": name, "params": parameters});
        let response = client::http1().post(url).json(&body).send().await?.error_for_status()?;
        Ok(response.json::<Value>().await?["value"].take())
    }

    /// Types these characters into the focused element.
    pub async fn press(&self, keys: &str) -> Result<()> {
        Ok(self.page.active_element().await?.send_keys(keys).await?)
    }
}
