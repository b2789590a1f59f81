//! The queue in the report to the agent.

use core::time::Duration;

use endpoint_picker::flow_control::{
    BandStatus, DetectorSaturation, Machine, OTHER_TENANTS, Outcome, StageSaturation, TenantStatus, Waits,
};
use endpoint_picker_wire::report;

use super::Queue;
use crate::ledger::Ledger;

impl Queue {
    /// The waiting requests, and the outcomes of waits; `None` while flow control is off.
    pub fn report(&self, ledger: &Ledger, now: Duration) -> Option<report::FlowControl> {
        let machine = self.machine.as_ref()?;
        let StageSaturation { prefill, decode, effective } = self.capacity.saturation();
        let config = machine.config();
        let by_detector = self.capacity.by_detector(ledger, self.pending.len() as u64, now);
        Some(report::FlowControl {
            prefill_saturation: prefill,
            decode_saturation: decode,
            saturation: effective,
            max_requests: config.max_requests.unwrap_or(0),
            max_bytes: config.max_bytes.unwrap_or(0),
            in_flight: machine.in_flight() as u64,
            evicted: self.evicted,
            bands: machine.bands().map(|band| of_band(&band, machine)).collect(),
            detectors: by_detector.into_iter().map(of_detector).collect(),
        })
    }
}

fn of_detector(saturation: DetectorSaturation<'_>) -> report::DetectorSaturation {
    let DetectorSaturation { detector, prefill, decode } = saturation;
    report::DetectorSaturation { detector: detector.to_owned(), prefill, decode }
}

fn of_band(band: &BandStatus, machine: &Machine) -> report::Band {
    let BandStatus { priority, requests, bytes, max_requests, max_bytes, ref ends } = *band;
    let outcomes = of_outcomes(ends);
    let mut tenants: Vec<_> = machine.tenants(priority).map(of_tenant).collect();
    if !outcomes.is_empty() && tenants.iter().all(|tenant| tenant.fairness_id != OTHER_TENANTS) {
        tenants.push(report::BandTenant {
            fairness_id: OTHER_TENANTS.to_owned(),
            ..report::BandTenant::default()
        });
    }
    report::Band { priority, requests, bytes, max_requests, max_bytes, outcomes, tenants }
}

fn of_tenant(tenant: TenantStatus<'_>) -> report::BandTenant {
    let TenantStatus { fairness_id, requests, bytes, ends } = tenant;
    report::BandTenant { fairness_id: fairness_id.to_owned(), requests, bytes, outcomes: of_outcomes(ends) }
}

/// Without outcomes that never occurred.
fn of_outcomes(ends: &[Waits; Outcome::ALL.len()]) -> Vec<report::BandOutcome> {
    let outcomes = Outcome::ALL.iter().zip(ends).filter(|(_, waits)| waits.requests() > 0);
    outcomes.map(|(&outcome, waits)| of_outcome(outcome, waits)).collect()
}

fn of_outcome(outcome: Outcome, waits: &Waits) -> report::BandOutcome {
    report::BandOutcome {
        outcome: outcome.as_str().to_owned(),
        waits: waits.used_counts().to_vec(),
        wait_seconds: waits.total().as_secs_f64(),
        longest_wait_seconds: Some(waits.longest().as_secs_f64()),
    }
}
