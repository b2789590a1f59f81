//! A picker that knows everything but the future.

use metrics_agent_server_model::Outlook;
use std::time::Duration;

/// Picks by the true contents of the caches, the true queues and the true lengths of all responses, without
/// delay.
///
/// It computes for each server the [time](metrics_agent_server_model::Forecast) until the request's first
/// token, when no other request comes. That alone would be best for this request and not for those after it,
/// so the time is multiplied as in the rule `expected-latency-scorer`: by 1 plus the requests there as a
/// share of the mean, which stall while the prompt is read, and by the requests that come meanwhile. It plans
/// for no later request, so rules can do better.
#[derive(Debug, Default)]
pub struct Omniscient {
    /// Requests a second of the last ones, and the time of the last one.
    rate: f64,
    last: Duration,
}

/// Requests over which the rate is averaged.
const RATE_OVER: f64 = 200.0;
/// The part of the requests of a server's share that come while a prompt is read, and wait for it.
const WAIT_FOR_IT: f64 = 0.3;

impl Omniscient {
    /// The position of the best server, of what the request would meet at each.
    pub fn pick(&mut self, servers: &[Outlook], now: Duration) -> usize {
        let gap = now.saturating_sub(self.last).as_secs_f64();
        self.last = now;
        // The mean of the gaps, not of their reciprocals.
        let mean_gap = if self.rate > 0.0 { 1.0 / self.rate } else { gap };
        self.rate = 1.0 / (mean_gap + (gap - mean_gap) / RATE_OVER).max(1e-6);
        let number = servers.len() as f64;
        let mean = (servers.iter().map(|server| server.requests as f64).sum::<f64>() / number).max(1.0);
        let cost = |server: &Outlook| {
            let come_meanwhile = self.rate / number * server.forecast.own.as_secs_f64();
            server.forecast.first_token.as_secs_f64()
                * (1.0 + server.requests as f64 / mean + WAIT_FOR_IT * come_meanwhile)
        };
        let costs: Vec<f64> = servers.iter().map(cost).collect();
        (0..costs.len()).min_by(|&a, &b| costs[a].total_cmp(&costs[b])).unwrap_or(0)
    }
}
