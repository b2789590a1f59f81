//! Clients that send requests while something changes; each request must be served.

use crate::fixture::{CHAT, fresh_chat};
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use reqwest::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const CLIENTS: usize = 2;
const INTERVAL: Duration = Duration::from_millis(10);
/// Requests that each client sends at least, however soon the load ends: on a busy machine a change can be
/// over after a few.
const AT_LEAST: usize = 10;

/// Running clients.
#[derive(Debug)]
pub struct SteadyLoad {
    clients: JoinSet<Vec<Result<(), String>>>,
    is_over: Arc<AtomicBool>,
}

impl SteadyLoad {
    /// Starts it.
    pub fn start(stack: &Stack) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(send_until(is_over.clone(), stack.url(CHAT)));
        }
        Self { clients, is_over }
    }

    /// Ends it and checks that every request was served.
    pub async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let results = self.clients.join_all().await.concat();
        let failures: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        assert!(failures.is_empty(), "{} of {} requests failed: {failures:?}", failures.len(), results.len());
    }
}

async fn send_until(is_over: Arc<AtomicBool>, url: String) -> Vec<Result<(), String>> {
    let client = client::http1();
    let mut results = Vec::new();
    let mut ticks = tokio::time::interval(INTERVAL);
    while !is_over.load(Ordering::Relaxed) || results.len() < AT_LEAST {
        ticks.tick().await;
        let answer = async {
            let response = client.post(&url).json(&fresh_chat()).send().await?;
            Ok::<_, reqwest::Error>((response.status(), response.text().await?))
        };
        results.push(match answer.await {
            Ok((StatusCode::OK, _)) => Ok(()),
            Ok((status, body)) => Err(format!("{status}: {body}")),
            Err(reason) => Err(format!("{reason:?}")),
        });
    }
    results
}
