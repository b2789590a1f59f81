//! The tenants of a proxy's bands.

use std::collections::BTreeSet;

use endpoint_picker::flow_control::OTHER_TENANTS;
use endpoint_picker::plugin::MAX_FAIRNESS_ID;
use endpoint_picker_wire::report::Band;

use super::Outcomes;
use crate::report::ReportError;

/// The requests of one fairness id in a band.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TenantReport {
    /// The fairness id, or [`OTHER_TENANTS`]. Clients choose it.
    pub fairness_id: String,
    /// Requests that wait.
    pub requests: u64,
    /// Lengths of their bodies.
    pub bytes: u64,
    /// Waits that ended since the proxy has figures of the tenant.
    pub outcomes: Outcomes,
}

/// The tenants of one band of a proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tenants {
    named: Vec<TenantReport>,
    /// All tenants that are not named, together.
    other: TenantReport,
    /// Figures that count as `other`, as the proxy has reported them.
    parts: Vec<TenantReport>,
}

impl Tenants {
    /// Reads what a proxy sent of a band; [`Self::bound`] completes it.
    pub(super) fn read(band: &Band) -> Result<Self, ReportError> {
        let mut tenants = Self::default();
        let mut ids = BTreeSet::new();
        for sent in &band.tenants {
            let fairness_id = sent.fairness_id.clone();
            if fairness_id.len() > MAX_FAIRNESS_ID {
                return Err(ReportError::LongTenant(fairness_id.len()));
            }
            if !ids.insert(&sent.fairness_id) {
                return Err(ReportError::RepeatedTenant(band.priority));
            }
            let outcomes = Outcomes::read(&sent.outcomes)?;
            let list = if fairness_id == OTHER_TENANTS { &mut tenants.parts } else { &mut tenants.named };
            list.push(TenantReport { fairness_id, requests: sent.requests, bytes: sent.bytes, outcomes });
        }
        // A proxy that knows its tenants sends one with the first outcome at the latest.
        if band.tenants.is_empty() {
            let (fairness_id, outcomes) = (OTHER_TENANTS.to_owned(), Outcomes::read(&band.outcomes)?);
            tenants.parts.push(TenantReport { fairness_id, outcomes, ..TenantReport::default() });
        }
        Ok(tenants)
    }

    /// Keeps the names of the tenants that `earlier` names, and of up to `room` further tenants; all others
    /// are counted together. `requests` and `bytes` are the band's.
    ///
    /// The waits of all others are the waits in `earlier` and the waits since: a count must not decrease when
    /// the proxy forgets a tenant.
    pub(super) fn bound(&mut self, requests: u64, bytes: u64, room: &mut usize, earlier: Option<&Self>) {
        for tenant in core::mem::take(&mut self.named) {
            let mut is_named = earlier.is_some_and(|earlier| earlier.names(&tenant));
            if !is_named && *room > 0 {
                *room -= 1;
                is_named = true;
            }
            let list = if is_named { &mut self.named } else { &mut self.parts };
            list.push(tenant);
        }
        let mut outcomes = earlier.map_or_else(Outcomes::default, |earlier| earlier.other.outcomes.clone());
        for part in &self.parts {
            outcomes.add_since(&part.outcomes, earlier.and_then(|earlier| earlier.part(part)));
        }
        let named = self.named.iter();
        let of_others =
            |all, figure: fn(&TenantReport) -> u64| named.clone().map(figure).fold(all, u64::saturating_sub);
        self.other = TenantReport {
            fairness_id: OTHER_TENANTS.to_owned(),
            requests: of_others(requests, |tenant| tenant.requests),
            bytes: of_others(bytes, |tenant| tenant.bytes),
            outcomes,
        };
    }

    /// The number of named tenants.
    pub(super) fn named(&self) -> usize {
        self.named.len()
    }

    /// The number of named tenants that `earlier` names too.
    pub(super) fn named_before(&self, earlier: &Self) -> usize {
        self.named.iter().filter(|tenant| earlier.names(tenant)).count()
    }

    /// The named tenants, and all others together.
    pub fn iter(&self) -> impl Iterator<Item = &TenantReport> {
        self.named.iter().chain([&self.other])
    }

    fn names(&self, tenant: &TenantReport) -> bool {
        self.named.iter().any(|named| named.fairness_id == tenant.fairness_id)
    }

    fn part(&self, tenant: &TenantReport) -> Option<&Outcomes> {
        self.parts.iter().find(|part| part.fairness_id == tenant.fairness_id).map(|part| &part.outcomes)
    }
}

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::report::{BandOutcome, BandTenant};

    use super::*;
    use crate::queues::waits::Waits;

    /// A tenant with this number of requests that wait, and of requests that were dispatched after up to 0.1
    /// ms.
    fn tenant(id: &str, requests: u64, dispatched: u64) -> BandTenant {
        let outcome = BandOutcome {
            outcome: "Dispatched".to_owned(),
            waits: vec![dispatched],
            ..BandOutcome::default()
        };
        BandTenant { fairness_id: id.to_owned(), requests, bytes: 10 * requests, outcomes: vec![outcome] }
    }

    fn read(tenants: Vec<BandTenant>) -> Result<Tenants, ReportError> {
        Tenants::read(&Band { priority: -3, tenants, ..Band::default() })
    }

    /// The next report of a band in which `requests` wait, when `room` tenants more may be named.
    fn next(earlier: Option<&Tenants>, requests: u64, room: usize, tenants: Vec<BandTenant>) -> Tenants {
        let mut next = read(tenants).unwrap();
        next.bound(requests, 10 * requests, &mut { room }, earlier);
        next
    }

    fn shown(tenants: &Tenants) -> Vec<(&str, u64, u64, u64)> {
        let dispatched = |it: &TenantReport| it.outcomes.dispatched().map_or(0, Waits::requests);
        tenants.iter().map(|it| (it.fairness_id.as_str(), it.requests, it.bytes, dispatched(it))).collect()
    }

    #[test]
    fn tenants_are_named_while_there_is_room() {
        let sent = vec![tenant("a", 2, 5), tenant("other", 1, 7), tenant("b", 3, 9), tenant("c", 0, 1)];
        let all = next(None, 6, 3, sent.clone());
        assert_eq!(shown(&all), [("a", 2, 20, 5), ("b", 3, 30, 9), ("c", 0, 0, 1), ("other", 1, 10, 7)]);
        let some = next(None, 6, 1, sent);
        assert_eq!(shown(&some), [("a", 2, 20, 5), ("other", 4, 40, 17)]);
    }

    #[test]
    fn a_named_tenant_remains_and_no_count_decreases() {
        let first = next(None, 0, 1, vec![tenant("b", 0, 9), tenant("c", 0, 4), tenant("other", 0, 1)]);
        assert_eq!(shown(&first), [("b", 0, 0, 9), ("other", 0, 0, 5)]);
        let sent = vec![tenant("a", 0, 1), tenant("c", 0, 6), tenant("b", 0, 10), tenant("other", 0, 1)];
        let second = next(Some(&first), 0, 0, sent);
        assert_eq!(shown(&second), [("b", 0, 0, 10), ("other", 0, 0, 8)]);
        // The proxy has forgotten b and c, and there is room for a, whose waits were counted until now.
        let third = next(Some(&second), 0, 1, vec![tenant("a", 0, 3), tenant("other", 0, 1)]);
        assert_eq!(shown(&third), [("a", 0, 0, 3), ("other", 0, 0, 8)]);
    }

    #[test]
    fn all_requests_of_an_older_proxy_are_of_others() {
        let outcomes = tenant("", 0, 6).outcomes;
        let mut tenants = Tenants::read(&Band { outcomes, ..Band::default() }).unwrap();
        tenants.bound(4, 40, &mut 9, None);
        assert_eq!(shown(&tenants), [("other", 4, 40, 6)]);
    }

    #[test]
    fn long_and_repeated_names_are_refused() {
        assert!(read(vec![tenant(&"x".repeat(256), 1, 1)]).is_ok());
        assert_eq!(read(vec![tenant(&"x".repeat(257), 1, 1)]), Err(ReportError::LongTenant(257)));
        assert_eq!(read(vec![tenant("a", 1, 1), tenant("a", 0, 0)]), Err(ReportError::RepeatedTenant(-3)));
    }
}
