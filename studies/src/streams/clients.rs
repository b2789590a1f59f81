//! Clients, each of which reads one stream to its end.

use anyhow::{Context, Result, bail};
use endpoint_picker_harness::client;
use reqwest::{Client, StatusCode};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// Streams of each client connection, which is HTTP/2, so that clients need few files.
pub(super) const STREAMS_OF_CONNECTION: usize = 100;
/// Streams that wait for the head of their response at once.
const OPENING: usize = 200;
/// Bytes of a prompt; each differs from the others.
const PROMPT_BYTES: usize = 1_000;
/// The last bytes of a whole response.
const END: &[u8] = b"data: [DONE]\n\n";
/// Between two looks at the number of open streams.
const SAMPLE: Duration = Duration::from_millis(500);

/// The ends of all streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcomes {
    /// Responses that came whole.
    pub(crate) whole: usize,
    /// The others by the reason, such as `status 500`.
    pub(crate) failures: BTreeMap<String, usize>,
}

/// Sends this many requests as fast as they are accepted and reads each response to its end, or for twice as
/// long as one should last. While they are open, calls `sample` with their number.
pub(super) async fn hold(
    proxy: SocketAddr,
    streams: usize,
    lasting: Duration,
    mut sample: impl FnMut(usize) -> Result<()>,
) -> Result<Outcomes> {
    let open = Arc::<AtomicUsize>::default();
    let all = read_all(proxy, streams, lasting * 2, Arc::clone(&open));
    tokio::pin!(all);
    let mut ticks = interval(SAMPLE);
    loop {
        tokio::select! {
            outcomes = &mut all => return outcomes,
            _ = ticks.tick() => sample(open.load(Ordering::Relaxed))?,
        }
    }
}

async fn read_all(
    proxy: SocketAddr,
    streams: usize,
    deadline: Duration,
    open: Arc<AtomicUsize>,
) -> Result<Outcomes> {
    let opening = Arc::new(Semaphore::new(OPENING));
    let mut readers = JoinSet::new();
    for first in (0..streams).step_by(STREAMS_OF_CONNECTION) {
        let connection = Client::builder().no_proxy().http2_prior_knowledge().build()?;
        for number in first..streams.min(first + STREAMS_OF_CONNECTION) {
            let permit = Arc::clone(&opening).acquire_owned().await?;
            let (connection, open) = (connection.clone(), Arc::clone(&open));
            readers.spawn(async move {
                let has_begun = || drop(permit);
                let read = timeout(deadline, read(&connection, proxy, number, &open, has_begun));
                read.await.unwrap_or_else(|_| bail!("not at its end in time"))
            });
        }
    }
    let mut outcomes = Outcomes::default();
    while let Some(result) = readers.join_next().await {
        match result? {
            Ok(()) => outcomes.whole += 1,
            Err(reason) => *outcomes.failures.entry(format!("{reason:#}")).or_default() += 1,
        }
    }
    Ok(outcomes)
}

/// Reads one stream. It counts as open from the head of its response on.
async fn read(
    connection: &Client,
    proxy: SocketAddr,
    number: usize,
    open: &AtomicUsize,
    has_begun: impl FnOnce(),
) -> Result<()> {
    let sentence = format!("Stream {number} is held open. ");
    let mut body = client::chat(&sentence.repeat(PROMPT_BYTES / sentence.len()));
    body["stream"] = json!(true);
    let request = connection.post(format!("http://{proxy}/v1/chat/completions")).json(&body);
    let mut response = request.send().await.context("no response")?;
    has_begun();
    if response.status() != StatusCode::OK {
        bail!("status {}", response.status().as_u16());
    }
    open.fetch_add(1, Ordering::Relaxed);
    let mut end = Vec::with_capacity(END.len());
    let rest = async {
        while let Some(chunk) = response.chunk().await.context("broke off")? {
            end.extend_from_slice(&chunk);
            end.drain(..end.len().saturating_sub(END.len()));
        }
        Ok(())
    };
    let rest: Result<()> = rest.await;
    open.fetch_sub(1, Ordering::Relaxed);
    rest?;
    if end == END { Ok(()) } else { bail!("ended early") }
}
