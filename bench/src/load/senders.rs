//! Who sends: three tenants in each of three bands.

use super::schedule::moments;
use super::workload::Requests;
use std::time::Duration;

/// The bands, the highest first, by the value of the objective's header; requests without it have priority 0.
pub(crate) const BANDS: [&str; 3] = ["high", "normal", "low"];
/// The tenants, by the value of the header with the fairness id.
pub(crate) const TENANTS: [&str; 3] = ["a", "b", "c"];

const OBJECTIVE: &str = "x-llm-d-inference-objective";
const FAIRNESS_ID: &str = "x-llm-d-inference-fairness-id";

/// A tenant in a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    /// Index into [`BANDS`].
    pub(crate) band: usize,
    /// Index into [`TENANTS`].
    pub(crate) tenant: usize,
}

/// One request of a sender.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// From the first moment.
    pub(crate) at: Duration,
    pub(crate) sender: Sender,
    pub(crate) body: String,
}

impl Sender {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let tenants = |band| (0..TENANTS.len()).map(move |tenant| Self { band, tenant });
        (0..BANDS.len()).flat_map(tenants)
    }

    /// The headers that name band and tenant.
    pub(crate) fn headers(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let band = BANDS.get(self.band).map(|band| (OBJECTIVE, *band));
        band.into_iter().chain(TENANTS.get(self.tenant).map(|tenant| (FAIRNESS_ID, *tenant)))
    }
}

/// Requests of all senders, each sender's a Poisson process of its rate in requests per second.
pub(crate) fn schedule(
    requests: &mut Requests,
    rate: impl Fn(Sender) -> f64,
    lasting: Duration,
    seed: u64,
) -> Vec<Sent> {
    let own = |(seed, sender)| {
        moments(rate(sender), lasting, seed).into_iter().map(move |at| (at, sender)).collect::<Vec<_>>()
    };
    let mut arrivals: Vec<(Duration, Sender)> = (seed..).zip(Sender::all()).flat_map(own).collect();
    arrivals.sort_unstable_by_key(|(at, _)| *at);
    let sent = |(at, sender)| Sent { at, sender, body: requests.next().body().to_string() };
    arrivals.into_iter().map(sent).collect()
}
