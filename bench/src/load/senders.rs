//! Senders of requests: three tenants in each of three bands.

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

impl Sender {
    /// The headers that name band and tenant.
    pub(crate) fn headers(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let band = BANDS.get(self.band).map(|band| (OBJECTIVE, *band));
        band.into_iter().chain(TENANTS.get(self.tenant).map(|tenant| (FAIRNESS_ID, *tenant)))
    }
}
