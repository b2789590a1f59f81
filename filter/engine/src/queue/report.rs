//! The queue in the report to the agent.

use endpoint_picker::flow_control::{BandStatus, Outcome, StageSaturation, Waits};
use endpoint_picker_wire::report;

use super::Queue;

impl Queue {
    /// What waits, and how waits have ended; `None` while flow control is off.
    pub fn report(&self) -> Option<report::FlowControl> {
        let machine = self.machine.as_ref()?;
        let StageSaturation { prefill, decode, effective } = self.capacity.saturation();
        let config = machine.config();
        Some(report::FlowControl {
            prefill_saturation: prefill,
            decode_saturation: decode,
            saturation: effective,
            max_requests: config.max_requests.unwrap_or(0),
            max_bytes: config.max_bytes.unwrap_or(0),
            in_flight: machine.in_flight() as u64,
            evicted: self.evicted,
            bands: machine.bands().map(|band| of_band(&band)).collect(),
        })
    }
}

fn of_band(band: &BandStatus) -> report::Band {
    let BandStatus { priority, requests, bytes, max_requests, max_bytes, ref ends } = *band;
    let outcomes = Outcome::ALL.iter().zip(ends).filter(|(_, waits)| waits.requests() > 0);
    let outcomes = outcomes.map(|(&outcome, waits)| of_outcome(outcome, waits)).collect();
    report::Band { priority, requests, bytes, max_requests, max_bytes, outcomes }
}

fn of_outcome(outcome: Outcome, waits: &Waits) -> report::BandOutcome {
    let counts = waits.counts();
    let used = counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    report::BandOutcome {
        outcome: outcome.as_str().to_owned(),
        waits: counts.iter().take(used).copied().collect(),
        wait_seconds: waits.total().as_secs_f64(),
    }
}
