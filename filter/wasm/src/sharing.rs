//! Sharing changes with other proxies, by one VM for all.

use core::time::Duration;

use endpoint_picker_engine::agent::{AgentAnswer, CallError, CallId};
use endpoint_picker_engine::metrics::SharingCounts;
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_engine::sharing::{ExchangeOutcome, PeerLedger, SharingClient};
use endpoint_picker_workers::{Replica, SharedSender};

use crate::host::{self, Envoy};

/// A VM's part in sharing: it exchanges changes while it polls the agent.
pub(crate) struct Sharing {
    pool: String,
    proxy: String,
    seed: u64,
    /// While this VM sends for all.
    turn: Option<Turn>,
}

struct Turn {
    sender: SharedSender,
    client: SharingClient,
}

impl Sharing {
    /// `seed` is of this VM alone.
    pub(crate) fn new(pool: &str, proxy: String, seed: u64) -> Self {
        Self { pool: pool.to_owned(), proxy, seed, turn: None }
    }

    /// Sends the exchange that is due.
    pub(crate) fn tick(
        &mut self,
        replica: &mut Replica<Envoy>,
        cluster: &str,
        now: Duration,
    ) -> Result<(), ProxyError> {
        let turn = match &mut self.turn {
            Some(turn) => turn,
            none => {
                let sender = SharedSender::take_over(&Envoy, &self.pool, self.seed)?;
                let (identity, positions) = (sender.identity(), sender.positions().clone());
                let client = SharingClient::new(&self.pool, self.proxy.clone(), identity, positions);
                none.insert(Turn { sender, client })
            }
        };
        let Turn { sender, client } = turn;
        if let Some(exchange) = client.next_exchange(replica, now) {
            match host::call_agent(cluster, &exchange) {
                Ok(call) => client.sent(call),
                Err(error) => log_outcome(&client.finish(Err(error), replica, now)),
            }
        }
        sender.store(&Envoy, client.positions())
    }

    /// Ends this VM's turn, if it has one: another one sends.
    pub(crate) fn stop(&mut self, replica: &mut Replica<Envoy>) {
        if self.turn.take().is_some() {
            replica.collect(false);
        }
    }

    /// The counts since the last call, and the number of other proxies whose changes arrive.
    pub(crate) fn take_counts(&mut self, now: Duration) -> (SharingCounts, usize) {
        self.turn
            .as_mut()
            .map_or_else(Default::default, |turn| (turn.client.take_counts(), turn.client.peers(now)))
    }

    /// Whether the answer under this number is for this part.
    pub(crate) fn awaits(&self, call: CallId) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.client.awaits(call))
    }

    /// Takes the answer of the agent to the exchange in flight.
    pub(crate) fn finish(
        &mut self,
        replica: &mut Replica<Envoy>,
        answer: Result<AgentAnswer, CallError>,
        now: Duration,
    ) {
        if let Some(turn) = &mut self.turn {
            log_outcome(&turn.client.finish(answer, replica, now));
        }
    }
}

fn log_outcome(outcome: &ExchangeOutcome) {
    match outcome {
        ExchangeOutcome::Exchanged { passed_over: Some(reason) } => log::warn!("{reason}; it is passed over"),
        ExchangeOutcome::Failed { error, is_new: true } => {
            log::warn!(
                "changes are not shared with other proxies: {error}; exchanges continue, and further failures are only counted, in sharing_failures"
            );
        }
        ExchangeOutcome::Exchanged { passed_over: None }
        | ExchangeOutcome::Off
        | ExchangeOutcome::Failed { is_new: false, .. } => {}
    }
}
