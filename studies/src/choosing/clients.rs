//! Clients: each sends the requests of one session, or continues one conversation after another.

use super::figures::{RunFigures, Served};
use super::plan::ChoosingPlan;
use super::servers::OmniscientClient;
use crate::schedule::SESSION;
use anyhow::{Context, Result, ensure};
use endpoint_picker_model_server::MODEL;
use endpoint_picker_simulation::cell::workloads::study::StudyConversations;
use metrics_agent_replay::simulation::request::{SegmentTexts, SimulatedRequest};
use metrics_agent_replay::simulation::sessions::Arrival;
use metrics_agent_server_model::BatchRequest;
use reqwest::{Client, StatusCode};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until, timeout};

/// A response that takes longer has failed.
const DEADLINE: Duration = Duration::from_mins(2);
/// The header with the server that the client names.
const DESTINATION: &str = "x-gateway-destination-endpoint";
/// The header with the milliseconds within which the first token has to come.
const LIMIT: &str = "x-llm-d-slo-ttft-ms";
/// The header with the objective, and the objective of requests that may be refused.
const OBJECTIVE: (&str, &str) = ("x-llm-d-inference-objective", "sheddable");

/// All clients of a run.
#[derive(Debug)]
pub(super) struct Clients<'a> {
    http: Client,
    url: String,
    texts: &'a SegmentTexts,
    /// Where the clients choose the server.
    omniscient: Option<OmniscientClient<'a>>,
    /// The limit of every request for its first token.
    limit: Option<Duration>,
    begin: Instant,
    /// The requests that are sent from then on are measured.
    measured_from: Duration,
    /// No request is sent from then on.
    end: Duration,
    figures: Mutex<RunFigures>,
}

impl<'a> Clients<'a> {
    pub(super) fn new(
        proxy: SocketAddr,
        texts: &'a SegmentTexts,
        omniscient: Option<OmniscientClient<'a>>,
        plan: &ChoosingPlan,
        end: Duration,
    ) -> Result<Self> {
        let http = Client::builder().no_proxy().http1_only().build()?;
        let url = format!("http://{proxy}/v1/completions");
        let (begin, figures) = (Instant::now(), Mutex::default());
        let (limit, measured_from) = (plan.limit, plan.warm_up);
        Ok(Self { http, url, texts, omniscient, limit, begin, measured_from, end, figures })
    }

    /// The instant this long after the beginning.
    fn at(&self, after: Duration) -> tokio::time::Instant {
        (self.begin + after).into()
    }

    /// When the measurement begins.
    pub(super) fn measured_from(&self) -> tokio::time::Instant {
        self.at(self.measured_from)
    }

    /// Sends the requests of a session, each some time after the response before.
    pub(super) async fn session(&self, arrival: &Arrival) {
        sleep_until(self.at(arrival.at)).await;
        for (number, turn) in arrival.session.turns.iter().enumerate() {
            // The first request waited for its time above.
            let pause = if number > 0 { turn.pause } else { Duration::ZERO };
            if self.begin.elapsed() + pause >= self.end {
                return;
            }
            sleep(pause).await;
            if !self.measure(&turn.request).await {
                return;
            }
        }
    }

    /// Sends requests of conversations that it shares with other clients, each some time after the response
    /// before.
    pub(super) async fn continue_conversations(
        &self,
        conversations: &Mutex<StudyConversations>,
        pause: Duration,
    ) {
        while self.begin.elapsed() < self.end {
            let taken = conversations.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (conversation, request) = taken;
            self.measure(&request).await;
            conversations.lock().unwrap_or_else(PoisonError::into_inner).put_back(conversation);
            sleep(pause).await;
        }
    }

    /// Sends a request, and measures it after the warm-up. Whether it was served.
    async fn measure(&self, request: &SimulatedRequest) -> bool {
        let sent = self.begin.elapsed();
        let result = timeout(DEADLINE, self.send(request)).await;
        let result = result.unwrap_or_else(|_| Err(anyhow::anyhow!("not complete after {DEADLINE:?}")));
        let is_served = matches!(result, Ok(Some(_)));
        if sent >= self.measured_from {
            let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(Some(served)) => figures.add(&served),
                Ok(None) => figures.refused += 1,
                Err(reason) => figures.failures.push(format!("{reason:#}")),
            }
        }
        is_served
    }

    /// Sends one request and reads the whole response. `None`: the picker refused it, because its limit would
    /// not be kept.
    async fn send(&self, request: &SimulatedRequest) -> Result<Option<Served>> {
        let mut prompt = Vec::new();
        request.write_prompt(self.texts, &mut prompt);
        let prompt = String::from_utf8(prompt).context("a text of letters")?;
        let tokens = request.work().answer_tokens();
        let mut builder = self.http.post(&self.url);
        if let Some(session) = request.session {
            builder = builder.header(SESSION, format!("session-{session}"));
        }
        if let Some(omniscient) = &self.omniscient {
            let work = BatchRequest::new(request.adapter.as_deref(), prompt.as_bytes(), tokens);
            builder = builder.header(DESTINATION, omniscient.pick(&work)?.to_string());
        }
        if let Some(limit) = self.limit {
            builder = builder.header(LIMIT, limit.as_millis().to_string()).header(OBJECTIVE.0, OBJECTIVE.1);
        }
        let model = request.adapter.as_deref().unwrap_or(MODEL);
        let body = json!({"model": model, "prompt": prompt, "max_tokens": tokens, "stream": true});
        let builder = builder.json(&body);
        let sent = Instant::now();
        let mut response = builder.send().await.context("no response")?;
        if self.limit.is_some() && response.status() == StatusCode::TOO_MANY_REQUESTS {
            return Ok(None);
        }
        ensure!(response.status() == StatusCode::OK, "{} {}", response.status(), response.text().await?);
        let (mut first, mut end) = (None, [0_u8; 14]);
        while let Some(chunk) = response.chunk().await.context("the response broke off")? {
            first.get_or_insert_with(Instant::now);
            let kept = chunk.len().min(end.len());
            end.rotate_left(kept);
            let from = end.len() - kept;
            end[from..].copy_from_slice(&chunk[chunk.len() - kept..]);
        }
        let first = first.filter(|_| end == *b"data: [DONE]\n\n").context("a response without an end")?;
        Ok(Some(Served { first_token: first - sent, rest: first.elapsed(), tokens }))
    }

    /// The figures of all measured requests.
    pub(super) fn into_figures(self) -> RunFigures {
        let mut figures = self.figures.into_inner().unwrap_or_else(PoisonError::into_inner);
        figures.lasting = self.end.saturating_sub(self.measured_from);
        figures.sort();
        figures
    }
}
