//! What becomes of a request after it was routed: where its load is, who failed it, and when it is over.

use core::net::SocketAddr;

use super::PoolState;
use crate::host;
use crate::pick::{Answer, Charged, Pick};

impl PoolState {
    /// The answer has begun: prompts are computed, and stages before the answering one are over. What is left of the request
    /// is in flight where the answer comes from.
    pub(crate) fn begin_answer(&mut self, pick: &mut Pick, answer: &Answer) -> host::Result<()> {
        let served = answer.from.and_then(|address| self.known.pool.index_at(address));
        let served = served.map(|index| self.known.pool.endpoints()[index].key());
        for reservation in &mut pick.reservations {
            self.view.end(reservation.endpoint, core::mem::take(&mut reservation.prefill));
            if let Some(served) = served
                && pick.destinations.first() == Some(&reservation.endpoint)
                && served != reservation.endpoint
            {
                self.view.transfer(reservation.endpoint, served, reservation.response);
                reservation.endpoint = served;
            }
        }
        self.learn(&pick.destinations, served, answer.is_failure)?;
        self.view.sync_pending(&self.known.pool);
        Ok(())
    }

    /// Remembers who failed the request, and who did not. Without an answer from any endpoint there is nothing to learn.
    fn learn(&mut self, destinations: &[u64], served: Option<u64>, is_failure: bool) -> host::Result<()> {
        let Some(served) = served else { return Ok(()) };
        let tried_before = destinations.iter().take_while(|&&destination| destination != served);
        let failed: Vec<u64> = tried_before.copied().chain(is_failure.then_some(served)).collect();
        let has_recovered = !is_failure && self.view.known().avoidance.is_failing(served);
        if failed.is_empty() && !has_recovered {
            return Ok(());
        }
        let now = host::now()?;
        if has_recovered {
            self.view.answered(served, now);
        }
        for endpoint in failed {
            self.view.failed(endpoint, now);
        }
        Ok(())
    }

    /// Headers for an answer from there.
    pub(crate) fn answer_headers(&self, from: Option<SocketAddr>) -> Vec<(String, String)> {
        if !self.marks_answers {
            return vec![];
        }
        let endpoint = from.and_then(|address| self.known.pool.index_at(address));
        endpoint.map_or_else(Vec::new, |index| {
            self.pipeline.response_headers(&self.known.pool.endpoints()[index]).collect()
        })
    }

    /// The request is over. The next decision of any worker counts it no more.
    pub(crate) fn end(&mut self, pick: &mut Pick) {
        for Charged { endpoint, prefill, mut response } in pick.reservations.drain(..) {
            response += prefill;
            self.view.end(endpoint, response);
        }
        self.view.sync_pending(&self.known.pool);
    }
}
