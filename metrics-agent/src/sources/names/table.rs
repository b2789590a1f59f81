//! Addresses of each host name, and when it is looked up next: without a clock and without a network.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use tokio::time::Instant;

use super::HostName;

/// Minimum and maximum time until a name is looked up again, whatever its TTL. Docker's name server gives containers a TTL of 600 s, and
/// another address when they are replaced.
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(30);

/// Time until a name is looked up again after a failure; it doubles with each further failure, up to the
/// maximum.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Maximum number of addresses of a name. The lowest addresses are used.
const MAX_ADDRESSES: usize = 256;

/// The addresses of a name, and how long they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) addresses: BTreeSet<IpAddr>,
    pub(super) ttl: Duration,
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct NameTable(BTreeMap<HostName, NameState>);

/// One name.
#[derive(Debug)]
pub(super) struct NameState {
    /// The addresses of the last successful lookup.
    addresses: BTreeSet<IpAddr>,
    /// The problem of the last lookup.
    problem: Option<String>,
    /// Failures since the last success.
    failures: u32,
    was_looked_up: bool,
    /// The time of the next lookup; `None`: one runs.
    due: Option<Instant>,
}

impl NameState {
    pub(super) fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl NameTable {
    /// Keeps these names and no others. New names are due at once.
    pub(super) fn keep<'a>(&mut self, names: impl Iterator<Item = &'a HostName>, now: Instant) {
        let mut before = core::mem::take(&mut self.0);
        for name in names {
            let new = || NameState {
                addresses: BTreeSet::new(),
                problem: None,
                failures: 0,
                was_looked_up: false,
                due: Some(now),
            };
            let state = before.remove(name);
            self.0.entry(name.clone()).or_insert_with(|| state.unwrap_or_else(new));
        }
    }

    pub(super) fn get(&self, name: &HostName) -> Option<&NameState> {
        self.0.get(name)
    }

    /// Whether every name was looked up once.
    pub(super) fn is_complete(&self) -> bool {
        self.0.values().all(|state| state.was_looked_up)
    }

    /// The time of the next lookup.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.0.values().filter_map(|state| state.due).min()
    }

    /// Begins up to `max` lookups: returns the names that are due, with their last addresses.
    pub(super) fn begin(&mut self, now: Instant, max: usize) -> Vec<(HostName, BTreeSet<IpAddr>)> {
        let is_due = |state: &NameState| state.due.is_some_and(|due| due <= now);
        let due = self.0.iter_mut().filter(|(_, state)| is_due(state)).take(max);
        due.map(|(name, state)| {
            state.due = None;
            (name.clone(), state.addresses.clone())
        })
        .collect()
    }

    /// Records the result of a lookup. A name that does not resolve keeps its addresses. Returns whether anything changed.
    pub(super) fn record(&mut self, name: &HostName, result: Result<Answer, String>, now: Instant) -> bool {
        // The name may have been removed in the meantime.
        let Some(state) = self.0.get_mut(name) else { return false };
        let (addresses, problem, wait) = match result {
            Ok(Answer { mut addresses, ttl }) => {
                state.failures = 0;
                let count = addresses.len();
                let problem = (count > MAX_ADDRESSES)
                    .then(|| format!("has {count} addresses; at most {MAX_ADDRESSES} are used, the lowest"));
                if let Some(first_unused) = addresses.iter().nth(MAX_ADDRESSES).copied() {
                    drop(addresses.split_off(&first_unused));
                }
                (Some(addresses), problem, ttl.clamp(MIN_TTL, MAX_TTL))
            }
            Err(problem) => {
                let wait = FIRST_RETRY.saturating_mul(1 << state.failures.min(10)).min(MAX_RETRY);
                state.failures = state.failures.saturating_add(1);
                (None, Some(problem), wait)
            }
        };
        state.due = Some(now + wait);
        let is_first = !core::mem::replace(&mut state.was_looked_up, true);
        let is_new_problem = state.problem != problem;
        state.problem = problem;
        let are_new = addresses.as_ref().is_some_and(|addresses| *addresses != state.addresses);
        state.addresses = addresses.unwrap_or_else(|| core::mem::take(&mut state.addresses));
        is_first || is_new_problem || are_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn addresses(hosts: core::ops::Range<u32>) -> BTreeSet<IpAddr> {
        hosts.map(|host| IpAddr::from((0x0a00_0000 + host).to_be_bytes())).collect()
    }

    fn answer(hosts: core::ops::Range<u32>, seconds: u64) -> Answer {
        Answer { addresses: addresses(hosts), ttl: Duration::from_secs(seconds) }
    }

    /// A table with one name whose first lookup runs.
    fn table(now: Instant) -> (NameTable, HostName) {
        let (mut table, name) = (NameTable::default(), name("vllm"));
        table.keep([&name].into_iter(), now);
        assert!(!table.is_complete());
        assert_eq!(table.begin(now, 9), [(name.clone(), BTreeSet::new())]);
        assert_eq!((table.begin(now, 9), table.next_due()), (vec![], None), "one lookup at a time");
        (table, name)
    }

    #[test]
    fn a_name_is_looked_up_again_after_its_ttl_within_bounds() {
        for (ttl, wait) in [(7, 7), (0, 1), (600, 30)] {
            let now = Instant::now();
            let (mut table, name) = table(now);
            assert!(table.record(&name, Ok(answer(1..3, ttl)), now) && table.is_complete());
            assert_eq!(table.next_due(), Some(now + Duration::from_secs(wait)), "{ttl}");
            let later = now + Duration::from_secs(wait);
            assert!(table.begin(later - Duration::from_millis(1), 9).is_empty());
            assert_eq!(table.begin(later, 9), [(name.clone(), addresses(1..3))]);
            assert!(!table.record(&name, Ok(answer(1..3, ttl)), later), "nothing has changed");
        }
    }

    #[test]
    fn a_name_that_fails_keeps_its_addresses_and_is_tried_again_less_and_less_often() {
        let now = Instant::now();
        let (mut table, name) = table(now);
        table.record(&name, Ok(answer(1..3, 5)), now);
        let mut waits = Vec::new();
        for attempt in 0..7 {
            let changed = table.record(&name, Err("no such name".to_owned()), now);
            assert_eq!(changed, attempt == 0, "the problem is new only once");
            waits.push(table.next_due().unwrap().duration_since(now).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        let state = table.get(&name).unwrap();
        assert_eq!((state.addresses(), state.problem()), (&addresses(1..3), Some("no such name")));
        assert!(table.record(&name, Ok(answer(2..4, 5)), now));
        let state = table.get(&name).unwrap();
        assert_eq!((state.addresses(), state.problem()), (&addresses(2..4), None));
        table.record(&name, Err("no such name".to_owned()), now);
        assert_eq!(table.next_due(), Some(now + FIRST_RETRY), "the count began again");
    }

    #[test]
    fn too_many_addresses_are_cut_and_said() {
        let now = Instant::now();
        let (mut table, name) = table(now);
        table.record(&name, Ok(answer(0..300, 5)), now);
        let state = table.get(&name).unwrap();
        assert_eq!(state.addresses(), &addresses(0..256));
        assert_eq!(state.problem(), Some("has 300 addresses; at most 256 are used, the lowest"));
    }

    #[test]
    fn lookups_at_the_same_time_are_bounded_and_a_removed_name_is_forgotten() {
        let now = Instant::now();
        let mut table = NameTable::default();
        let names: Vec<_> = (0..5).map(|n| name(&format!("vllm-{n}"))).collect();
        table.keep(names.iter(), now);
        assert_eq!((table.begin(now, 3).len(), table.begin(now, 3).len()), (3, 2));
        table.record(&names[0], Ok(answer(1..2, 5)), now);
        table.keep(names[..2].iter(), now);
        assert_eq!(table.get(&names[0]).unwrap().addresses().len(), 1);
        assert!(!table.record(&names[4], Ok(answer(1..2, 5)), now) && table.get(&names[4]).is_none());
        assert!(!table.is_complete());
    }
}
