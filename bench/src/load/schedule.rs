//! A workload at set times, independent of the answers.

use super::generator::{Arrivals, send_all};
use super::request::{AnswerKind, RequestSpec};
use super::workload::Requests;
use anyhow::Result;
use bytes::Bytes;
use endpoint_picker::rng::{Rng, SplitMix64};
use reqwest::Client;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// Answers that take longer have failed. A loaded server may take seconds.
const DEADLINE: Duration = Duration::from_secs(60);

/// The header with a request's session.
const SESSION: &str = "x-session-id";

/// Requests and their times.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    requests: Vec<DueRequest>,
    answer: AnswerKind,
    /// Determines the proxy of each request.
    seed: u64,
}

#[derive(Clone, Debug)]
struct DueRequest {
    /// From the first moment.
    at: Duration,
    body: Bytes,
    session: Option<String>,
}

/// The results of a schedule's requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// From the moment at which a request was due to the first byte of its answer's body, shortest first.
    pub(crate) first_byte: Vec<Duration>,
    pub(crate) failures: Vec<String>,
    /// From the first moment to the end of the last answer.
    pub(crate) took: Duration,
}

/// A schedule that is being sent.
struct DueRequests<'a> {
    begin: Instant,
    rest: std::slice::Iter<'a, DueRequest>,
    answer: AnswerKind,
    client: Client,
    /// Those of the proxies; each request goes to one of them at random.
    urls: Vec<String>,
    rng: SplitMix64,
}

impl Schedule {
    /// Requests that come independently of each other (a Poisson process).
    pub(crate) fn poisson(requests: &mut Requests, per_second: f64, lasting: Duration, seed: u64) -> Self {
        let request = || {
            let chat = requests.next();
            (chat.body().to_string(), chat.session().map(str::to_owned))
        };
        Self::of_requests(request, AnswerKind::Stream, per_second, lasting, seed)
    }

    /// The same with other bodies, which get this kind of answer.
    pub(crate) fn of_bodies(
        mut body: impl FnMut() -> String,
        answer: AnswerKind,
        per_second: f64,
        lasting: Duration,
        seed: u64,
    ) -> Self {
        Self::of_requests(|| (body(), None), answer, per_second, lasting, seed)
    }

    /// The same with bodies and sessions.
    fn of_requests(
        mut request: impl FnMut() -> (String, Option<String>),
        answer: AnswerKind,
        per_second: f64,
        lasting: Duration,
        seed: u64,
    ) -> Self {
        let due = |at| {
            let (body, session) = request();
            DueRequest { at, body: body.into(), session }
        };
        let requests = moments(per_second, lasting, seed).into_iter().map(due).collect();
        Self { requests, answer, seed }
    }

    /// Sends all of it, each request to one of these proxies at random, and waits for all answers.
    pub(crate) async fn send(&self, proxies: &[SocketAddr]) -> Result<Outcome> {
        let client = Client::builder().no_proxy().http1_only().build()?;
        let urls = proxies.iter().map(|proxy| format!("http://{proxy}/v1/chat/completions")).collect();
        let rng = SplitMix64::new(!self.seed);
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
        let (rest, answer) = (self.requests.iter(), self.answer);
        send_all(DueRequests { begin, rest, answer, client, urls, rng }, record).await;
        let mut outcome = core::mem::take(&mut *outcome.lock().unwrap_or_else(PoisonError::into_inner));
        outcome.took = begin.elapsed();
        outcome.first_byte.sort_unstable();
        Ok(outcome)
    }
}

/// The moments of a Poisson process.
pub(crate) fn moments(per_second: f64, lasting: Duration, seed: u64) -> Vec<Duration> {
    let mut rng = SplitMix64::new(seed);
    let mut moments = Vec::new();
    let mut at = 0.0;
    loop {
        at -= (1.0 - rng.unit()).ln() / per_second;
        if at >= lasting.as_secs_f64() {
            return moments;
        }
        moments.push(Duration::from_secs_f64(at));
    }
}

impl Arrivals for DueRequests<'_> {
    type Tag = Instant;

    async fn next(&mut self) -> Option<(Instant, RequestSpec)> {
        let DueRequest { at, body, session } = self.rest.next()?;
        let due = self.begin + *at;
        sleep_until(due.into()).await;
        let url = self.urls.get(self.rng.below(self.urls.len()))?;
        let mut builder = self.client.post(url).header("content-type", "application/json").body(body.clone());
        if let Some(session) = session {
            builder = builder.header(SESSION, session);
        }
        Some((due, RequestSpec { builder, elsewhere: None, answer: self.answer, deadline: DEADLINE }))
    }
}

impl Outcome {
    /// Milliseconds within which this share of the first bytes came.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = (share * self.first_byte.len() as f64).ceil() as usize;
        let value = self.first_byte.get(index.saturating_sub(1));
        value.map_or(f64::NAN, |value| value.as_secs_f64() * 1e3)
    }

    /// Mean milliseconds to the first byte.
    pub(crate) fn mean(&self) -> f64 {
        let sum: Duration = self.first_byte.iter().sum();
        sum.as_secs_f64() * 1e3 / self.first_byte.len() as f64
    }

    /// Requests answered each second.
    pub(crate) fn per_second(&self) -> f64 {
        self.first_byte.len() as f64 / self.took.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::workload::Workload;

    #[test]
    fn a_percentile_is_the_least_value_that_this_share_reaches() {
        let first_byte = (1..=10).map(Duration::from_millis).collect();
        let outcome = Outcome { first_byte, ..Outcome::default() };
        let found = [0.5, 0.9, 0.99].map(|share| outcome.percentile(share));
        assert_eq!(found.map(|value| value.to_string()), ["5", "9", "10"]);
    }

    #[test]
    fn requests_come_at_their_rate() {
        let mut drawn = Workload::Adapters.requests(1);
        let Schedule { requests, .. } = Schedule::poisson(&mut drawn, 50.0, Duration::from_secs(40), 2);
        assert!((1_850..2_150).contains(&requests.len()), "{}", requests.len());
        assert!(requests.is_sorted_by_key(|request| request.at));
    }
}
