//! How waits ended.

use endpoint_picker::flow_control::Outcome;
use endpoint_picker_wire::report::BandOutcome;

use super::waits::Waits;
use crate::api::reports::ReportError;

/// Waits by the EPP's name of their end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes(Vec<(&'static str, Waits)>);

impl Outcomes {
    /// Reads what a proxy sent. Unknown outcomes are left out: the proxy may be newer.
    pub(super) fn read(sent: &[BandOutcome]) -> Result<Self, ReportError> {
        let mut outcomes = Vec::new();
        for outcome in Outcome::ALL.map(Outcome::as_str) {
            if let Some(ended) = sent.iter().find(|ended| ended.outcome == outcome) {
                let waits = Waits::read(&ended.waits, ended.wait_seconds)?;
                let waits = match ended.longest_wait_seconds {
                    Some(longest) => waits.up_to(longest)?,
                    None => waits,
                };
                outcomes.push((outcome, waits));
            }
        }
        Ok(Self(outcomes))
    }

    /// The waits with each end.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Waits)> {
        self.0.iter().map(|(outcome, waits)| (*outcome, waits))
    }

    /// The waits of requests that went on.
    pub(super) fn dispatched(&self) -> Option<&Waits> {
        self.with(Outcome::Dispatched.as_str())
    }

    /// Adds the waits of another one that have ended after those of `earlier`.
    pub(super) fn add_since(&mut self, other: &Self, earlier: Option<&Self>) {
        for (outcome, waits) in &other.0 {
            let before = earlier.and_then(|earlier| earlier.with(outcome));
            let since = before.map_or_else(|| waits.clone(), |before| waits.without(before));
            match self.0.iter_mut().find(|(own, _)| own == outcome) {
                Some((_, sum)) => sum.add(&since),
                None => self.0.push((outcome, since)),
            }
        }
    }

    fn with(&self, outcome: &str) -> Option<&Waits> {
        self.0.iter().find(|(own, _)| *own == outcome).map(|(_, waits)| waits)
    }
}
