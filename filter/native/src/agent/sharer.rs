//! Exchanges changes with other proxies.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{AgentAnswer, AgentRequest, CallError, CallId};
use endpoint_picker_engine::sharing::{ExchangeOutcome, SharingClient};
use parking_lot::Mutex;

use crate::shared::SharedStore;

/// One of those that may exchange a pool's changes; one at a time does.
#[derive(Debug)]
pub(crate) struct Sharer {
    store: SharedStore,
    client: Arc<Mutex<SharingClient>>,
    /// Whether this one has an exchange in flight.
    has_call: bool,
}

impl Sharer {
    pub(crate) fn new(store: SharedStore, client: Arc<Mutex<SharingClient>>) -> Self {
        Self { store, client, has_call: false }
    }

    /// The exchange to send now, if there is one.
    pub(super) fn next_exchange(&mut self, now: Duration) -> Option<AgentRequest> {
        self.client.lock().next_exchange(&mut self.store, now)
    }

    /// The exchange was sent; its answer comes under this number.
    pub(super) fn sent(&mut self, call: CallId) {
        self.has_call = true;
        self.client.lock().sent(call);
    }

    /// Whether the answer under this number is to the exchange.
    pub(super) fn awaits(&self, call: CallId) -> bool {
        self.has_call && self.client.lock().awaits(call)
    }

    /// The time until the next exchange is due.
    pub(super) fn pause(&self, now: Duration) -> Duration {
        self.client.lock().pause(now)
    }

    /// Takes the answer to an exchange. Returns whether it succeeded.
    pub(super) fn finish(&mut self, answer: Result<AgentAnswer, CallError>, now: Duration) -> bool {
        self.has_call = false;
        match self.client.lock().finish(answer, &mut self.store, now) {
            ExchangeOutcome::Exchanged { passed_over } => {
                if let Some(reason) = passed_over {
                    log::warn!("{reason}; it is passed over");
                }
                true
            }
            ExchangeOutcome::Off => true,
            ExchangeOutcome::Failed { error, is_new } => {
                if is_new {
                    log::warn!(
                        "changes are not shared with other proxies: {error}; exchanges continue, and further failures are only counted, in sharing_failures"
                    );
                }
                false
            }
        }
    }
}

impl Drop for Sharer {
    /// The next one need not wait for an answer to this one.
    fn drop(&mut self) {
        if self.has_call {
            self.client.lock().abandon();
        }
    }
}
