//! Sends requests of several senders at their times.

use crate::bench_epp::flow_control::gate::GatedServers;
use crate::load::senders::{Sender, Sent};
use crate::load::{AnswerKind, Arrivals, RequestSpec, send_all};
use anyhow::Result;
use reqwest::Client;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

/// Answers that take longer have failed.
const DEADLINE: Duration = Duration::from_secs(90);

/// What became of all requests.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// Who sent it, when it was due from the first moment on, and the time to the first byte of its answer.
    pub(super) served: Vec<(Sender, Duration, Duration)>,
    pub(super) failures: Vec<String>,
    /// From the first moment to the end of the last answer; of several rounds, the sum.
    pub(super) took: Duration,
}

struct Due<'a> {
    begin: Instant,
    rest: std::slice::Iter<'a, Sent>,
    client: Client,
    url: String,
}

impl Arrivals for Due<'_> {
    type Tag = (Sender, Duration);

    async fn next(&mut self) -> Option<(Self::Tag, RequestSpec)> {
        let Sent { at, sender, body } = self.rest.next()?;
        sleep_until((self.begin + *at).into()).await;
        let request = self.client.post(&self.url).header("content-type", "application/json");
        let builder = sender.headers().fold(request, |request, (name, value)| request.header(name, value));
        let spec = RequestSpec {
            builder: builder.body(body.clone()),
            elsewhere: None,
            answer: AnswerKind::Stream,
            deadline: DEADLINE,
        };
        Some(((*sender, *at), spec))
    }
}

/// Sends all of them and waits for all answers.
pub(super) async fn send(gated: &GatedServers, sent: &[Sent]) -> Result<Answers> {
    let client = Client::builder().no_proxy().http1_only().build()?;
    let url = format!("http://{}/v1/chat/completions", gated.running.listener());
    let begin = Instant::now();
    let answers = Arc::<Mutex<Answers>>::default();
    let results = Arc::clone(&answers);
    let record = move |(sender, at): (Sender, Duration), result| {
        let mut answers = results.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(first_byte) => answers.served.push((sender, at, first_byte - (begin + at))),
            Err(reason) => answers.failures.push(format!("{reason}")),
        }
    };
    send_all(Due { begin, rest: sent.iter(), client, url }, record).await;
    for server in &gated.servers {
        server.take_requests();
    }
    let mut answers = core::mem::take(&mut *answers.lock().unwrap_or_else(PoisonError::into_inner));
    answers.took = begin.elapsed();
    Ok(answers)
}

impl Answers {
    /// Adds those of another round.
    pub(super) fn extend(&mut self, other: &Self) {
        self.served.extend_from_slice(&other.served);
        self.failures.extend_from_slice(&other.failures);
        self.took += other.took;
    }

    /// Milliseconds to the first byte within which this share of a band's requests were answered.
    pub(super) fn percentile(&self, band: usize, share: f64) -> f64 {
        let own = self.served.iter().filter(|(sender, _, _)| sender.band == band);
        let mut times: Vec<f64> = own.map(|(_, _, time)| time.as_secs_f64() * 1e3).collect();
        times.sort_unstable_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let index = (share * times.len() as f64).ceil() as usize;
        times.get(index.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }

    /// A band's answers that began in this part of the time, for each tenant.
    pub(super) fn by_tenant(&self, band: usize, from: Duration, until: Duration) -> [usize; 3] {
        [0, 1, 2].map(|tenant| {
            let own = self.served.iter().filter(|(sender, _, _)| *sender == Sender { band, tenant });
            own.filter(|(_, at, time)| (from..until).contains(&(*at + *time))).count()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_for_their_band_and_the_moment_at_which_they_began() {
        let at = Duration::from_secs;
        let sender = |band, tenant| Sender { band, tenant };
        let served = vec![
            (sender(2, 0), at(1), at(1)),
            (sender(2, 0), at(1), at(3)),
            (sender(2, 1), at(2), at(1)),
            (sender(1, 1), at(2), at(1)),
        ];
        let answers = Answers { served, ..Answers::default() };
        assert_eq!(answers.by_tenant(2, at(2), at(4)), [1, 1, 0]);
        let percentiles = [0.5, 1.0].map(|share| answers.percentile(2, share).to_string());
        assert_eq!(percentiles, ["1000", "3000"]);
        assert!(answers.percentile(0, 0.5).is_nan());
    }
}
