//! The clients: each has one conversation after another, and sends the next turn some time after the whole
//! response to the last one.

use crate::schedule::SESSION;
use crate::words::words;
use anyhow::{Context, Result, ensure};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_model_server::MODEL;
use futures_util::future::try_join_all;
use reqwest::{Client, StatusCode};
use serde_json::json;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const CLIENTS: u64 = 30;
/// First prompts, one of which begins each conversation, and the words of each. A word is a token.
const PREFIXES: usize = 6;
const PREFIX_WORDS: usize = 400;
const TURNS: RangeInclusive<usize> = 2..=8;
const TURN_WORDS: RangeInclusive<usize> = 60..=400;
const RESPONSE_TOKENS: RangeInclusive<usize> = 16..=64;
/// Mean time between a response and the next turn; it is distributed exponentially.
const MEAN_PAUSE: Duration = Duration::from_millis(800);
/// A response that takes longer has failed.
const DEADLINE: Duration = Duration::from_mins(1);

/// Clients of one proxy.
#[derive(Debug)]
pub(super) struct Clients {
    http: Client,
    url: String,
    prefixes: Vec<String>,
    seed: u64,
    end: Instant,
}

impl Clients {
    /// Equal seeds give equal conversations. No request is sent after this time from now.
    pub(super) fn new(proxy: SocketAddr, seed: u64, lasting: Duration) -> Result<Self> {
        let http = Client::builder().no_proxy().http1_only().build()?;
        let url = format!("http://{proxy}/v1/completions");
        let mut rng = SplitMix64::new(seed);
        let prefixes = (0..PREFIXES).map(|_| words(&mut rng, PREFIX_WORDS)).collect();
        Ok(Self { http, url, prefixes, seed, end: Instant::now() + lasting })
    }

    /// Sends all requests. Returns how many were served: all of them.
    pub(super) async fn run(&self) -> Result<usize> {
        let served = try_join_all((0..CLIENTS).map(|number| self.converse(number))).await?;
        Ok(served.iter().sum())
    }

    async fn converse(&self, client: u64) -> Result<usize> {
        let mut rng = SplitMix64::new(self.seed * CLIENTS + client);
        let mut served = 0;
        sleep(MEAN_PAUSE.mul_f64(rng.unit())).await;
        for conversation in 0.. {
            let session = format!("{client}-{conversation}");
            let mut text = self.prefixes[rng.below(PREFIXES)].clone();
            for _ in 0..within(&mut rng, TURNS) {
                if Instant::now() >= self.end {
                    return Ok(served);
                }
                let question = within(&mut rng, TURN_WORDS);
                text = format!("{text} {}", words(&mut rng, question));
                let tokens = within(&mut rng, RESPONSE_TOKENS);
                timeout(DEADLINE, self.ask(&session, &text, tokens)).await??;
                served += 1;
                text = format!("{text} {}", words(&mut rng, tokens));
                sleep(MEAN_PAUSE.mul_f64(-(1.0 - rng.unit()).ln())).await;
            }
        }
        Ok(served)
    }

    /// Sends one request, and reads the whole response.
    async fn ask(&self, session: &str, prompt: &str, tokens: usize) -> Result<()> {
        let body = json!({
            "model": MODEL, "prompt": prompt, "max_tokens": tokens, "ignore_eos": true,
            "stream": true, "stream_options": {"include_usage": true},
        });
        let request = self.http.post(&self.url).header(SESSION, session).json(&body);
        let response = request.send().await.context("no response")?;
        let (status, text) = (response.status(), response.text().await.context("a cut response")?);
        ensure!(status == StatusCode::OK && text.ends_with("data: [DONE]\n\n"), "{status} {text}");
        Ok(())
    }
}

/// Uniform over the range.
fn within(rng: &mut SplitMix64, range: RangeInclusive<usize>) -> usize {
    let (least, most) = range.into_inner();
    least + rng.below(most - least + 1)
}
