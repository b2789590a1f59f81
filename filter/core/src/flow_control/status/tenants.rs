//! Waiting requests and ends of waits, by tenant.

use core::num::NonZeroU16;
use core::time::Duration;
use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};
use slab::Slab;

use super::Waits;
use crate::flow_control::nanos::Nanos;
use crate::flow_control::outcome::Outcome;

/// Maximum number of tenants of all bands with figures of their own.
pub const MAX_TENANTS: usize = 100;

/// The name of all other tenants of a band together, as in the EPP's metrics. A tenant with this name is one
/// of them.
pub const OTHER_TENANTS: &str = "other";

/// How long a tenant has had no request before another one may take its place. Longer than the windows over
/// which metrics are usually read: a series that ends has not changed in such a window.
const IDLE: Duration = Duration::from_secs(600);

/// The figures of tenants: requests of one fairness id in one band.
///
/// The first [`MAX_TENANTS`] have figures of their own, all others of a band have one
/// [together](OTHER_TENANTS). When there is no place left, a new tenant replaces the longest-idle one, if
/// that has been idle for [ten minutes](IDLE). A tenant with waiting requests keeps its place, so the
/// requests and bytes of a band's tenants always add up to the band's.
///
/// No count of a series decreases: a replaced tenant's series ends, and if the tenant comes back, another one
/// begins at 0, which Prometheus takes for the restart of a counter. The counts of the replaced tenant are
/// added to no other series: `rate` and `increase` would count them a second time, as requests of that
/// moment. So the ended waits of a band's tenants add up to the band's until the first tenant is replaced,
/// and the sum of their rates always equals the band's rate.
///
/// Each call takes O(1): all places are searched only when one may have become free, and they are few.
#[derive(Debug, Default)]
pub(in crate::flow_control) struct Tenants {
    tenants: Slab<Tenant>,
    by_name: HashMap<TenantName<Arc<str>>, TenantSlot>,
    /// Tenants without [`OTHER_TENANTS`].
    named: usize,
    /// No place can be taken before this time.
    full_until: Nanos,
}

/// Where a tenant has its figures, counted from 1. As it is small and never zero, the list of waiting
/// requests takes no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow_control) struct TenantSlot(NonZeroU16);

#[derive(Debug)]
struct Tenant {
    name: TenantName<Arc<str>>,
    requests: u64,
    bytes: u64,
    /// In the order of [`Outcome::ALL`].
    ends: [Waits; Outcome::ALL.len()],
    /// The time of its last request, or of the end of its last wait.
    last: Nanos,
}

/// The name of a tenant; `S` is a kind of text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TenantName<S> {
    priority: i32,
    id: S,
}

impl Equivalent<TenantName<Arc<str>>> for TenantName<&str> {
    fn equivalent(&self, other: &TenantName<Arc<str>>) -> bool {
        self.priority == other.priority && *self.id == *other.id
    }
}

impl Tenants {
    /// The place of the tenant with this id in the band of this priority. A request of it arrives now.
    pub(in crate::flow_control) fn join(&mut self, priority: i32, id: &str, now: Nanos) -> TenantSlot {
        let place = self.find(priority, id).unwrap_or_else(|| {
            let id = if id != OTHER_TENANTS && self.has_room(now) { id } else { OTHER_TENANTS };
            self.find(priority, id).unwrap_or_else(|| self.add(priority, id))
        });
        if let Some(tenant) = self.tenants.get_mut(place.key()) {
            tenant.last = now;
        }
        place
    }

    /// The id of a tenant.
    pub(in crate::flow_control) fn id(&self, place: TenantSlot) -> Option<&Arc<str>> {
        self.tenants.get(place.key()).map(|tenant| &tenant.name.id)
    }

    /// A request begins to wait.
    pub(in crate::flow_control) fn begin(&mut self, place: TenantSlot, bytes: u64) {
        if let Some(tenant) = self.tenants.get_mut(place.key()) {
            tenant.requests += 1;
            tenant.bytes = tenant.bytes.saturating_add(bytes);
        }
    }

    /// A request waits no more.
    pub(in crate::flow_control) fn end(&mut self, place: TenantSlot, bytes: u64, now: Nanos) {
        if let Some(tenant) = self.tenants.get_mut(place.key()) {
            tenant.requests = tenant.requests.saturating_sub(1);
            tenant.bytes = tenant.bytes.saturating_sub(bytes);
            tenant.last = now;
        }
    }

    /// Counts the end of a wait.
    pub(in crate::flow_control) fn count(&mut self, place: TenantSlot, outcome: Outcome, waited: Duration) {
        if let Some(tenant) = self.tenants.get_mut(place.key()) {
            Waits::count(&mut tenant.ends, outcome, waited);
        }
    }

    /// Forgets the tenants of bands that no longer exist. No request waits.
    pub(in crate::flow_control) fn retain_bands(&mut self, is_band: impl Fn(i32) -> bool) {
        let gone = self.by_name.extract_if(|name, _| !is_band(name.priority));
        for (name, place) in gone {
            self.tenants.try_remove(place.key());
            self.named -= usize::from(!name.is_of_others());
        }
        self.full_until = Nanos(0);
    }

    /// The tenants of a band, in no order, and [`OTHER_TENANTS`] if there are any.
    pub(in crate::flow_control) fn of_band(&self, priority: i32) -> impl Iterator<Item = TenantStatus<'_>> {
        let tenants = self.tenants.iter().map(|(_, tenant)| tenant);
        tenants.filter(move |tenant| tenant.name.priority == priority).map(|tenant| TenantStatus {
            fairness_id: &tenant.name.id,
            requests: tenant.requests,
            bytes: tenant.bytes,
            ends: &tenant.ends,
        })
    }

    fn find(&self, priority: i32, id: &str) -> Option<TenantSlot> {
        self.by_name.get(&TenantName { priority, id }).copied()
    }

    /// Makes room for one more tenant, if that is possible.
    fn has_room(&mut self, now: Nanos) -> bool {
        if self.named < MAX_TENANTS {
            return true;
        }
        if now < self.full_until {
            return false;
        }
        let named = self.tenants.iter().filter(|(_, tenant)| !tenant.name.is_of_others());
        // A waiting tenant is idle from now on at the earliest.
        let idle_since = |tenant: &Tenant| if tenant.requests > 0 { now } else { tenant.last };
        let longest = named.map(|(key, tenant)| (idle_since(tenant), key)).min();
        let Some((since, key)) = longest else { return false };
        let free_at = since.saturating_add(IDLE.into());
        if now < free_at {
            self.full_until = free_at;
            return false;
        }
        if let Some(tenant) = self.tenants.try_remove(key) {
            self.by_name.remove(&tenant.name);
            self.named -= 1;
        }
        true
    }

    fn add(&mut self, priority: i32, id: &str) -> TenantSlot {
        let name = TenantName { priority, id: Arc::from(id) };
        self.named += usize::from(!name.is_of_others());
        let (ends, last) = ([Waits::default(); Outcome::ALL.len()], Nanos(0));
        let key = self.tenants.insert(Tenant { name: name.clone(), requests: 0, bytes: 0, ends, last });
        let place = TenantSlot::new(key);
        self.by_name.insert(name, place);
        place
    }
}

impl TenantSlot {
    /// There are fewer than 400: the named ones, and one for each band.
    fn new(key: usize) -> Self {
        Self(u16::try_from(key + 1).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX))
    }

    fn key(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

impl<S: AsRef<str>> TenantName<S> {
    fn is_of_others(&self) -> bool {
        self.id.as_ref() == OTHER_TENANTS
    }
}

/// Waiting requests of a tenant in a band, and how its waits have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantStatus<'a> {
    /// Its fairness id, or [`OTHER_TENANTS`].
    pub fairness_id: &'a str,
    /// Waiting requests.
    pub requests: u64,
    /// The lengths of their bodies.
    pub bytes: u64,
    /// Waits that have ended since the tenant got its place, in the order of [`Outcome::ALL`].
    pub ends: &'a [Waits; Outcome::ALL.len()],
}
