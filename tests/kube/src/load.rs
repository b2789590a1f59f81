//! Requests without a pause while a test changes the cluster, with the pod that answered each.

use endpoint_picker_harness::client;
use endpoint_picker_model_server::SERVED_BY;
use reqwest::StatusCode;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Requests that each client sends at least, however soon the load ends: on a busy machine a change can be
/// over after a few.
const AT_LEAST: usize = 10;

/// Running clients.
#[derive(Debug)]
pub struct Load {
    clients: JoinSet<Vec<Answer>>,
    is_over: Arc<AtomicBool>,
}

/// One request and what came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// When the request was sent.
    pub sent: Instant,
    /// When its response was there.
    pub received: Instant,
    /// The pod that answered 200, or what came instead.
    pub result: Result<String, String>,
}

/// All requests of a load, in the order in which they were sent.
#[derive(Clone, Debug)]
pub struct Answers(Vec<Answer>);

impl Load {
    /// Starts clients, each of which sends chat requests to `url` with this pause between a response and the
    /// next request.
    pub fn start(url: &str, clients: usize, pause: Duration) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            tasks.spawn(send_until(is_over.clone(), url.to_owned(), pause));
        }
        Self { clients: tasks, is_over }
    }

    /// Ends it.
    pub async fn stop(self) -> Answers {
        self.is_over.store(true, Ordering::Relaxed);
        let mut answers = self.clients.join_all().await.concat();
        answers.sort_by_key(|answer| answer.sent);
        Answers(answers)
    }
}

impl Answers {
    /// All of them.
    pub fn all(&self) -> &[Answer] {
        &self.0
    }

    /// Checks that a pod has answered every request.
    ///
    /// # Panics
    ///
    /// When one was lost.
    pub fn assert_none_lost(&self) {
        let lost: Vec<_> = self.0.iter().filter(|answer| answer.result.is_err()).collect();
        assert!(lost.is_empty(), "{} of {} requests were lost: {lost:?}", lost.len(), self.0.len());
    }

    /// How many requests each pod has answered.
    pub fn by_pod(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for pod in self.0.iter().filter_map(|answer| answer.result.as_ref().ok()) {
            *counts.entry(pod.as_str()).or_default() += 1;
        }
        counts
    }

    /// Requests that were sent in this time, and got their response from this pod.
    pub fn sent_to(&self, pod: &str, from: Instant, until: Instant) -> Vec<&Answer> {
        let is_from = |answer: &&Answer| answer.result.as_deref() == Ok(pod);
        self.0.iter().filter(|answer| (from..until).contains(&answer.sent)).filter(is_from).collect()
    }
}

async fn send_until(is_over: Arc<AtomicBool>, url: String, pause: Duration) -> Vec<Answer> {
    static PROMPTS: AtomicU64 = AtomicU64::new(0);
    let http = client::http1_keep_alive();
    let mut answers = Vec::new();
    while !is_over.load(Ordering::Relaxed) || answers.len() < AT_LEAST {
        // Different beginnings, so that no pod is preferred for its cache.
        let prompt = format!("{:08} {}", PROMPTS.fetch_add(1, Ordering::Relaxed), "tell me more ".repeat(20));
        let mut body = client::chat(&prompt);
        body["max_tokens"] = 1.into();
        let sent = Instant::now();
        let answer = async {
            let response = http.post(&url).json(&body).send().await?;
            let pod =
                response.headers().get(SERVED_BY).and_then(|name| name.to_str().ok()).map(str::to_owned);
            let status = response.status();
            Ok::<_, reqwest::Error>((status, pod, response.text().await?))
        };
        let result = match answer.await {
            Ok((StatusCode::OK, Some(pod), _)) => Ok(pod),
            Ok((status, _, body)) => Err(format!("{status}: {body}")),
            Err(reason) => Err(format!("{reason:?}")),
        };
        answers.push(Answer { sent, received: Instant::now(), result });
        tokio::time::sleep(pause).await;
    }
    answers
}
