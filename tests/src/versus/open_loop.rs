//! Requests at set times, whatever becomes of the ones before.

use super::workload::Requests;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use endpoint_picker::rng::{Rng, SplitMix64};
use futures_util::StreamExt;
use reqwest::Client;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// When each request is to be sent, and what it is.
#[derive(Clone, Debug)]
pub(super) struct Schedule(Vec<(Duration, Bytes)>);

/// What became of the requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// From the moment a request was to be sent to the first byte of its answer's body, shortest first.
    pub(super) first_byte: Vec<Duration>,
    pub(super) failures: Vec<String>,
    /// From the first moment to the end of the last answer.
    pub(super) took: Duration,
}

impl Schedule {
    /// Requests that come independently of each other (a Poisson process).
    pub(super) fn poisson(requests: &mut Requests, per_second: f64, lasting: Duration, seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        let mut shots = Vec::new();
        let mut at = 0.0;
        loop {
            at -= (1.0 - rng.unit()).ln() / per_second;
            if at >= lasting.as_secs_f64() {
                return Self(shots);
            }
            shots.push((Duration::from_secs_f64(at), requests.next().body().to_string().into()));
        }
    }

    /// Sends all of it and waits for all answers.
    pub(super) async fn send(&self, proxy: SocketAddr) -> Result<Outcome> {
        let client = Client::builder().no_proxy().http1_only().build()?;
        let url = format!("http://{proxy}/v1/chat/completions");
        let begin = Instant::now();
        let mut in_flight = JoinSet::new();
        for (at, body) in &self.0 {
            let at = begin + *at;
            sleep_until(at).await;
            let sent = client.post(&url).header("content-type", "application/json").body(body.clone()).send();
            in_flight.spawn(async move { Ok::<_, anyhow::Error>((answer(sent).await?, at)) });
        }
        let mut outcome = Outcome::default();
        while let Some(answered) = in_flight.join_next().await {
            match answered.context("a request's task")? {
                Ok((first_byte, at)) => outcome.first_byte.push(first_byte - at),
                Err(reason) => outcome.failures.push(format!("{reason:#}")),
            }
        }
        outcome.took = begin.elapsed();
        outcome.first_byte.sort_unstable();
        Ok(outcome)
    }
}

/// When the first byte of the body came, if the whole answer did.
async fn answer(sent: impl Future<Output = reqwest::Result<reqwest::Response>>) -> Result<Instant> {
    let response = sent.await?.error_for_status()?;
    let mut body = response.bytes_stream();
    let mut last = body.next().await.context("an empty answer")??;
    let first_byte = Instant::now();
    while let Some(more) = body.next().await {
        last = more?;
    }
    ensure!(last.ends_with(b"data: [DONE]\n\n"), "the answer broke off");
    Ok(first_byte)
}

impl Outcome {
    /// Milliseconds within which this part of the first bytes came.
    pub(super) fn percentile(&self, part: f64) -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = (part * self.first_byte.len() as f64).ceil() as usize;
        let value = self.first_byte.get(index.saturating_sub(1));
        value.map_or(f64::NAN, |value| value.as_secs_f64() * 1e3)
    }

    /// Mean milliseconds to the first byte.
    pub(super) fn mean(&self) -> f64 {
        let sum: Duration = self.first_byte.iter().sum();
        sum.as_secs_f64() * 1e3 / self.first_byte.len() as f64
    }

    /// Requests answered each second.
    pub(super) fn per_second(&self) -> f64 {
        self.first_byte.len() as f64 / self.took.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versus::workload::Workload;

    #[test]
    fn a_percentile_is_the_least_value_that_so_many_reach() {
        let first_byte = (1..=10).map(Duration::from_millis).collect();
        let outcome = Outcome { first_byte, ..Outcome::default() };
        let found = [0.5, 0.9, 0.99].map(|part| outcome.percentile(part));
        assert_eq!(found.map(|value| value.to_string()), ["5", "9", "10"]);
    }

    #[test]
    fn requests_come_at_their_rate() {
        let mut requests = Workload::Adapters.requests(1);
        let Schedule(shots) = Schedule::poisson(&mut requests, 50.0, Duration::from_secs(40), 2);
        assert!((1_850..2_150).contains(&shots.len()), "{}", shots.len());
        assert!(shots.is_sorted_by_key(|(at, _)| *at));
    }
}
