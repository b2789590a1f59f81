//! Polls, reports and exchanges of changes as HTTP calls of Envoy, from its main thread.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{AgentAnswer, AgentRequest, CallError, CallId};

use super::sharer::Sharer;
use super::updater::Updater;

/// Keeps a pool up to date by calls of Envoy. Each filter configuration has one, and that of the first configuration acts.
#[derive(Debug)]
pub(crate) struct Callouts {
    cluster: Arc<str>,
    updater: Updater,
    sharer: Sharer,
}

impl Callouts {
    pub(crate) fn new(cluster: &str, updater: Updater, sharer: Sharer) -> Self {
        Self { cluster: cluster.into(), updater, sharer }
    }

    /// Sends the requests that are due. To be called every 20 ms and after every answer. `call` starts a call of Envoy to a cluster and
    /// returns its number.
    pub(crate) fn tick(
        &mut self,
        now: Duration,
        mut call: impl FnMut(&str, &AgentRequest) -> Result<CallId, CallError>,
    ) {
        let Self { cluster, updater, sharer } = self;
        if let Some(poll) = updater.next_poll(now) {
            match call(cluster, &poll) {
                Ok(number) => updater.poll_sent(number),
                Err(error) => {
                    updater.finish_poll(Err(error), now);
                }
            }
        }
        if let Some(report) = updater.next_report(now) {
            match call(cluster, &report) {
                Ok(number) => updater.report_sent(number),
                Err(error) => updater.finish_report(Err(error), now),
            }
        }
        if let Some(exchange) = sharer.next_exchange(now) {
            match call(cluster, &exchange) {
                Ok(number) => sharer.sent(number),
                Err(error) => {
                    sharer.finish(Err(error), now);
                }
            }
        }
    }

    /// Takes the answer to the call of this number.
    pub(crate) fn take_answer(
        &mut self,
        call: CallId,
        answer: Result<AgentAnswer, CallError>,
        now: Duration,
    ) {
        if self.updater.awaits_report(call) {
            self.updater.finish_report(answer, now);
        } else if self.updater.awaits_poll(call) {
            self.updater.finish_poll(answer, now);
        } else if self.sharer.awaits(call) {
            self.sharer.finish(answer, now);
        }
    }
}
