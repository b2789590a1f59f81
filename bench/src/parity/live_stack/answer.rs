//! Answers, as both pickers give them.

use super::LiveStack;
use crate::parity::case::{Answer, Refusal, SESSION};
use crate::parity::listeners;
use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use endpoint_picker_model_server::SERVED_BY;
use reqwest::Response;
use serde_json::Value;
use std::collections::BTreeMap;

impl LiveStack {
    pub(super) async fn answer(&self, response: Response) -> Result<Answer> {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if let Some(served_by) = header(SERVED_BY) {
            let by = self.server(served_by).with_context(|| format!("served by {served_by}"))?;
            let attempts = header(listeners::ATTEMPTS).context("a number of attempts")?;
            ensure!(attempts == "1", "Envoy tried {attempts} servers, so the last is not the picked one");
            let scores = self.scores(header(listeners::SCORES))?;
            let session = header(SESSION).map(|token| session(token).with_context(|| token.to_owned()));
            let named = session.transpose()?.map(|server| (SESSION.to_owned(), server));
            return Ok(Answer::Served { by, scores, named: named.into_iter().collect() });
        }
        let reason = header("x-llm-d-request-dropped-reason").map(str::to_owned);
        let status = response.status().as_u16();
        let message = message(&response.text().await?);
        Ok(Answer::Refused(Refusal { status, reason, message }))
    }

    fn scores(&self, header: Option<&str>) -> Result<BTreeMap<usize, f64>> {
        let Some(text) = header.filter(|text| *text != "-") else { return Ok(BTreeMap::new()) };
        let scores: BTreeMap<String, f64> =
            serde_json::from_str(text).with_context(|| format!("scores {text:?}"))?;
        let score = |(endpoint, score): (String, f64)| {
            Ok((self.server(&endpoint).with_context(|| format!("a score of {endpoint}"))?, score))
        };
        scores.into_iter().map(score).collect()
    }

    pub(super) fn server(&self, endpoint: &str) -> Option<usize> {
        self.servers.iter().position(|server| server.endpoint() == endpoint)
    }
}

/// The server that a session's token names.
fn session(token: &str) -> Option<usize> {
    let name = String::from_utf8(BASE64_STANDARD.decode(token).ok()?).ok()?;
    name.strip_prefix("default/server-")?.parse().ok()
}

/// The message of an error: ours is in a JSON object, the EPP's follows a fixed text and the code's name.
fn message(body: &str) -> String {
    if let Ok(Value::Object(answer)) = serde_json::from_str(body) {
        return answer["error"]["message"].as_str().unwrap_or(body).to_owned();
    }
    let after_prefix = body.strip_prefix("inference error: ").and_then(|text| text.split_once(" - "));
    after_prefix.map_or(body, |(_, message)| message).to_owned()
}
