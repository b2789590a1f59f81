//! A decision beside another picker, which acts.

use core::net::SocketAddr;
use core::time::Duration;

use endpoint_picker::decision::PromptBlocks;
use endpoint_picker::decision::shadow::Agreement;
use endpoint_picker::decision::shadow::OtherPick;
use endpoint_picker::decision::shadow::ShadowDecision;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::Prepared;
use endpoint_picker::pipeline::shadow::Acting;
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::request::Request;

use crate::ledger::{Change, Ledger, changes_of};
use crate::pool_view::PoolView;
use crate::proxy::headers;
use crate::worker_pool::decision::Draws;
use crate::worker_pool::directive::{Assignment, assigned_loads};

/// The addresses that another picker has chosen for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PickAddresses {
    /// The first destination as the picker has written it.
    pub(crate) first: String,
    /// The destinations, in the order in which they are tried, up to the first that is not an `ip:port`.
    pub(crate) destinations: Vec<SocketAddr>,
    /// The endpoint that computes the prompt.
    pub(crate) prefill: Option<SocketAddr>,
    /// The endpoints that encode images, video and audio.
    pub(crate) encode: Vec<SocketAddr>,
}

impl PickAddresses {
    /// The endpoints of this pool at the addresses.
    fn endpoints_in(&self, pool: &Pool) -> OtherPick {
        let index = |address: &SocketAddr| pool.index_at(*address);
        OtherPick {
            destinations: self.destinations.iter().map_while(index).collect(),
            prefill: self.prefill.as_ref().and_then(index),
            encode: self.encode.iter().filter_map(index).collect(),
        }
    }
}

/// The comparison of another picker's choice with the own decision.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) agreement: Agreement,
    /// The own decision and the other picker's choice, if they are to be explained.
    pub(crate) explanation: Option<String>,
    /// The other picker's endpoints, and the request's load there.
    pub(crate) assignment: Assignment,
    /// The blocks of the prompt, and those that the other picker's endpoint had been sent before.
    pub(crate) prompt: PromptBlocks,
}

/// A comparison before it is written down, which needs no ledger any more.
#[derive(Debug)]
pub(crate) struct ComparedDecision {
    shadow: ShadowDecision,
    pick: OtherPick,
    /// When each endpoint was avoided, for an explanation.
    avoided: Vec<Period>,
}

impl PoolView {
    /// Prepares a decision beside another picker.
    pub(crate) fn prepare_beside_pick<'a>(&self, request: &'a Request<'a>, now: Duration) -> Prepared<'a> {
        self.topology().pipeline.prepare(request, &self.without_ledger(&[]), now)
    }

    /// Decides for a request that this view has prepared. Returns the changes of the ledger that follow from the other picker's choice.
    pub(crate) fn decide_beside_pick(
        &self,
        ledger: &Ledger,
        (prepared, pick): (&Prepared<'_>, &PickAddresses),
        explain: bool,
        draws: &mut Draws,
    ) -> (ComparedDecision, Vec<Change>) {
        let pool = ledger.pool();
        let view = self.with_ledger(ledger);
        let pick = pick.endpoints_in(pool);
        let pipeline = &self.topology().pipeline;
        let mut shadow = pipeline.compare(prepared, Acting::Other(&pick), &view, &mut draws.shadow);
        let changes = changes_of(&mut shadow.decision, pool);
        let avoided = if explain { ledger.avoided().to_vec() } else { Vec::new() };
        (ComparedDecision { shadow, pick, avoided }, changes)
    }

    /// Writes a comparison down.
    pub(crate) fn comparison(
        &self,
        decided: ComparedDecision,
        request: &Request<'_>,
        addresses: &PickAddresses,
        explain: bool,
        now: Duration,
    ) -> Comparison {
        let ComparedDecision { shadow: ShadowDecision { decision, agreement }, pick, avoided } = decided;
        let pool = self.pool();
        let explanation = explain.then(|| {
            let acting = format!("; the acting picker picks {}: {}", addresses.first, agreement.as_str());
            let view = self.without_ledger(&avoided);
            let why = self.topology().pipeline.explain(&decision, request, &view, now);
            why.within(headers::LONGEST_VALUE.saturating_sub(acting.len())) + &acting
        });
        let destinations = pick.destinations.iter().filter_map(|&index| pool.endpoints().get(index));
        Comparison {
            agreement,
            explanation,
            prompt: decision.prompt,
            assignment: Assignment {
                destinations: destinations.map(Endpoint::key).collect(),
                loads: assigned_loads(decision.reservations, pool),
                at: now,
            },
        }
    }
}
