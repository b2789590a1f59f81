//! A workload at set times, which do not depend on the responses.

use anyhow::Result;
use bytes::Bytes;
use endpoint_picker_bench::load::{Arrivals, RequestSpec, ResponseKind, send_all};
use endpoint_picker_simulation::workload::{Requests, arrival_times};
use metrics_agent_replay::simulation::figures::percentile;
use reqwest::Client;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// A response that takes longer has failed. A loaded server may take seconds.
const DEADLINE: Duration = Duration::from_mins(1);

/// The header with a request's session.
pub(crate) const SESSION: &str = "x-session-id";

/// Requests and their times.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    requests: Vec<DueRequest>,
}

#[derive(Clone, Debug)]
struct DueRequest {
    /// Time from the start.
    at: Duration,
    body: Bytes,
    session: Option<String>,
}

/// The results of a schedule's requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Time from when a request was due to the first byte of its response's body, shortest first.
    pub(crate) first_byte: Vec<Duration>,
    pub(crate) failures: Vec<String>,
    /// Time from the start to the end of the last response.
    pub(crate) took: Duration,
}

/// A schedule that is being sent.
struct DueRequests<'a> {
    begin: Instant,
    rest: std::slice::Iter<'a, DueRequest>,
    client: Client,
    url: String,
}

impl Schedule {
    /// Requests that come independently of each other (a Poisson process).
    pub(crate) fn poisson(requests: &mut Requests, per_second: f64, lasting: Duration, seed: u64) -> Self {
        let due = |at| {
            let chat = requests.draw();
            DueRequest {
                at,
                body: chat.body().to_string().into(),
                session: chat.session().map(str::to_owned),
            }
        };
        let requests = arrival_times(per_second, lasting, seed).into_iter().map(due).collect();
        Self { requests }
    }

    /// Sends all of it to a proxy, and waits for all responses.
    pub(crate) async fn send(&self, proxy: SocketAddr) -> Result<Outcome> {
        let client = Client::builder().no_proxy().http1_only().build()?;
        let url = format!("http://{proxy}/v1/chat/completions");
        let begin = Instant::now();
        let outcome = Arc::<Mutex<Outcome>>::default();
        let results = Arc::clone(&outcome);
        let record = move |due: Instant, result| {
            let mut outcome = results.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(first_byte) => outcome.first_byte.push(first_byte - due),
                Err(reason) => outcome.failures.push(format!("{reason}")),
            }
        };
        let rest = self.requests.iter();
        send_all(DueRequests { begin, rest, client, url }, record).await;
        let mut outcome = core::mem::take(&mut *outcome.lock().unwrap_or_else(PoisonError::into_inner));
        outcome.took = begin.elapsed();
        outcome.first_byte.sort_unstable();
        Ok(outcome)
    }
}

impl Arrivals for DueRequests<'_> {
    type Tag = Instant;

    async fn next(&mut self) -> Option<(Instant, RequestSpec)> {
        let DueRequest { at, body, session } = self.rest.next()?;
        let due = self.begin + *at;
        sleep_until(due.into()).await;
        let mut builder =
            self.client.post(&self.url).header("content-type", "application/json").body(body.clone());
        if let Some(session) = session {
            builder = builder.header(SESSION, session);
        }
        Some((
            due,
            RequestSpec { builder, elsewhere: None, response: ResponseKind::Stream, deadline: DEADLINE },
        ))
    }
}

impl Outcome {
    /// Milliseconds within which this share of the first bytes came.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        percentile(&self.first_byte, share).as_secs_f64() * 1e3
    }

    /// Mean milliseconds to the first byte.
    pub(crate) fn mean(&self) -> f64 {
        let sum: Duration = self.first_byte.iter().sum();
        sum.as_secs_f64() * 1e3 / self.first_byte.len() as f64
    }

    /// Requests served each second.
    pub(crate) fn per_second(&self) -> f64 {
        self.first_byte.len() as f64 / self.took.as_secs_f64()
    }
}

/// Prints the first few reasons of requests of a run that were not served.
pub(crate) fn print_failures(run: &str, failures: &[String]) {
    for failure in failures.iter().take(3) {
        eprintln!("{run}: not served: {failure}");
    }
}
