//! Addresses of each host name, and when it is looked up next: without a clock and without a network.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use tokio::time::Instant;

use super::HostName;

/// Minimum and maximum time until a name is looked up again, whatever its TTL. Docker's name server gives
/// containers a TTL of 600 s, and another address when they are replaced.
const MIN_TTL: Duration = Duration::from_secs(1);
const MAX_TTL: Duration = Duration::from_secs(30);

/// Time until a name is looked up again after a failure; it doubles with each further failure, up to the
/// maximum.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);

/// Denials within this time after which a name counts as denied. One may come from a name server that is
/// being started or replaced.
const DENIALS: usize = 3;
const DENIAL_PERIOD: Duration = Duration::from_secs(10);

/// Maximum number of addresses of a name. The lowest addresses are used.
const MAX_ADDRESSES: usize = 256;

/// The addresses of a name, and how long they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) addresses: BTreeSet<IpAddr>,
    pub(crate) ttl: Duration,
}

/// Why a lookup gave no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookupFailure {
    /// The reason.
    pub(crate) problem: String,
    /// Whether a name server has responded that the name does not exist or has no address.
    pub(crate) is_denial: bool,
}

/// All names.
#[derive(Debug, Default)]
pub(crate) struct NameTable(BTreeMap<HostName, NameState>);

/// One name.
#[derive(Debug)]
pub(crate) struct NameState {
    /// The addresses of the last successful lookup.
    addresses: BTreeSet<IpAddr>,
    /// The problem of the last lookup.
    problem: Option<String>,
    /// Failures since the last success.
    failures: u32,
    /// The times of the last denials since the last success, at most [`DENIALS`].
    denials: VecDeque<Instant>,
    /// Whether there were [`DENIALS`] denials in a [`DENIAL_PERIOD`] since the last success.
    is_denied: bool,
    was_looked_up: bool,
    /// The time of the next lookup; `None`: one runs.
    due: Option<Instant>,
}

impl NameState {
    pub(crate) fn addresses(&self) -> &BTreeSet<IpAddr> {
        &self.addresses
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Whether name servers deny the name: its last addresses may belong to other hosts.
    pub(crate) fn is_denied(&self) -> bool {
        self.is_denied
    }

    /// A name with these addresses.
    #[cfg(test)]
    pub(crate) fn with(addresses: BTreeSet<IpAddr>, is_denied: bool) -> Self {
        Self { addresses, is_denied, ..Self::new(Instant::now()) }
    }

    fn new(due: Instant) -> Self {
        Self {
            addresses: BTreeSet::new(),
            problem: None,
            failures: 0,
            denials: VecDeque::new(),
            is_denied: false,
            was_looked_up: false,
            due: Some(due),
        }
    }

    /// Takes note of a failure, and returns the time until the next lookup. Failures of another kind before
    /// do not keep denials so far apart that they never count.
    fn fail(&mut self, is_denial: bool, now: Instant) -> Duration {
        let failures = self.failures;
        self.failures = self.failures.saturating_add(1);
        let mut doublings = failures;
        if is_denial && !self.is_denied {
            self.denials.push_back(now);
            self.denials.retain(|at| now.duration_since(*at) <= DENIAL_PERIOD);
            self.is_denied = self.denials.len() >= DENIALS;
            doublings = u32::try_from(self.denials.len()).unwrap_or(failures).saturating_sub(1);
        }
        FIRST_RETRY.saturating_mul(1 << doublings.min(10)).min(MAX_RETRY)
    }
}

impl NameTable {
    /// Keeps these names and no others. New names are due at once.
    pub(crate) fn keep<'a>(&mut self, names: impl Iterator<Item = &'a HostName>, now: Instant) {
        let mut before = core::mem::take(&mut self.0);
        for name in names {
            let state = before.remove(name);
            self.0.entry(name.clone()).or_insert_with(|| state.unwrap_or_else(|| NameState::new(now)));
        }
    }

    pub(crate) fn get(&self, name: &HostName) -> Option<&NameState> {
        self.0.get(name)
    }

    /// Whether every name was looked up once.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.values().all(|state| state.was_looked_up)
    }

    /// The time of the next lookup.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.0.values().filter_map(|state| state.due).min()
    }

    /// Begins up to `max` lookups: returns the names that are due, with their last addresses.
    pub(crate) fn begin(&mut self, now: Instant, max: usize) -> Vec<(HostName, BTreeSet<IpAddr>)> {
        let is_due = |state: &NameState| state.due.is_some_and(|due| due <= now);
        let due = self.0.iter_mut().filter(|(_, state)| is_due(state)).take(max);
        due.map(|(name, state)| {
            state.due = None;
            (name.clone(), state.addresses.clone())
        })
        .collect()
    }

    /// Records the result of a lookup. A name that does not resolve keeps its addresses. Returns whether
    /// anything changed.
    pub(crate) fn record(
        &mut self,
        name: &HostName,
        result: Result<Answer, LookupFailure>,
        now: Instant,
    ) -> bool {
        // The name may have been removed in the meantime.
        let Some(state) = self.0.get_mut(name) else { return false };
        let was_denied = state.is_denied;
        let (addresses, problem, wait) = match result {
            Ok(Answer { mut addresses, ttl }) => {
                state.failures = 0;
                state.denials.clear();
                state.is_denied = false;
                let count = addresses.len();
                let problem = (count > MAX_ADDRESSES)
                    .then(|| format!("has {count} addresses; at most {MAX_ADDRESSES} are used, the lowest"));
                if let Some(first_unused) = addresses.iter().nth(MAX_ADDRESSES).copied() {
                    drop(addresses.split_off(&first_unused));
                }
                (Some(addresses), problem, ttl.clamp(MIN_TTL, MAX_TTL))
            }
            Err(LookupFailure { problem, is_denial }) => {
                let wait = state.fail(is_denial, now);
                (None, Some(problem), wait)
            }
        };
        state.due = Some(now + wait);
        let is_first = !core::mem::replace(&mut state.was_looked_up, true);
        let is_new_problem = state.problem != problem;
        state.problem = problem;
        let are_new = addresses.as_ref().is_some_and(|addresses| *addresses != state.addresses);
        state.addresses = addresses.unwrap_or_else(|| core::mem::take(&mut state.addresses));
        is_first || is_new_problem || are_new || was_denied != state.is_denied
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

    fn failed() -> LookupFailure {
        LookupFailure { problem: "SERVFAIL".to_owned(), is_denial: false }
    }

    fn denied() -> LookupFailure {
        LookupFailure { problem: "no such name".to_owned(), is_denial: true }
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
            let changed = table.record(&name, Err(failed()), now);
            assert_eq!(changed, attempt == 0, "the problem is new only once");
            waits.push(table.next_due().unwrap().duration_since(now).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        let state = table.get(&name).unwrap();
        assert_eq!((state.addresses(), state.problem()), (&addresses(1..3), Some("SERVFAIL")));
        assert!(table.record(&name, Ok(answer(2..4, 5)), now));
        let state = table.get(&name).unwrap();
        assert_eq!((state.addresses(), state.problem()), (&addresses(2..4), None));
        table.record(&name, Err(failed()), now);
        assert_eq!(table.next_due(), Some(now + FIRST_RETRY), "the count began again");
    }

    /// The times of the lookups of a name with these results from now on, in seconds, and whether it counts
    /// as denied after each.
    fn denied_after(results: &[Result<Answer, LookupFailure>]) -> Vec<(u64, bool)> {
        let start = Instant::now();
        let (mut table, name) = table(start);
        table.record(&name, Ok(answer(1..3, 1)), start);
        let mut denied = Vec::new();
        for result in results {
            let due = table.next_due().unwrap();
            let before = table.get(&name).unwrap().is_denied();
            let changed = table.record(&name, result.clone(), due);
            let state = table.get(&name).unwrap();
            assert!(changed || state.is_denied() == before, "a change is published");
            let holds = if result.is_ok() { addresses(2..4) } else { addresses(1..3) };
            assert_eq!(state.addresses(), &holds, "the last addresses stay");
            denied.push((due.duration_since(start).as_secs(), state.is_denied()));
        }
        denied
    }

    #[test]
    fn three_denials_in_ten_seconds_count_and_servfail_and_silence_do_not() {
        let deny = || Err(denied());
        let fail = || Err(failed());
        let expected = [(1, false), (2, false), (4, true), (8, true), (16, true)];
        assert_eq!(denied_after(&[deny(), deny(), deny(), deny(), fail()]), expected, "until it resolves");
        let failures = vec![fail(); 10];
        assert!(denied_after(&failures).iter().all(|(_, denied)| !denied));
        // After many failures, denials still come close together.
        let mixed = [failures, vec![deny(); 3]].concat();
        assert_eq!(denied_after(&mixed).iter().filter(|(_, denied)| *denied).count(), 1);
        let resolved = [deny(), deny(), Ok(answer(2..4, 1))];
        assert!(denied_after(&resolved).iter().all(|(_, denied)| !denied), "two are not enough");
        let again = [deny(), deny(), deny(), Ok(answer(2..4, 1))];
        assert_eq!(denied_after(&again).last().map(|(_, denied)| *denied), Some(false));
        // Two of three denials that are more than ten seconds apart.
        let apart = [deny(), deny(), fail(), fail(), fail(), fail(), deny()];
        assert!(denied_after(&apart).iter().all(|(_, denied)| !denied), "{:?}", denied_after(&apart));
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
