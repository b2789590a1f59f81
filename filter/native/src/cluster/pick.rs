//! A request's destinations, which the balancer of its cluster takes one by one.
//!
//! Filter and balancer run on the same worker. They meet at a number in filter state, so no pointer can
//! outlive the request.

use core::cell::RefCell;
use core::net::SocketAddr;
use std::collections::HashMap;
use std::sync::Arc;

thread_local! {
    static PICKS: RefCell<Picks> = RefCell::default();
}

#[derive(Default)]
struct Picks {
    last_key: u64,
    by_key: HashMap<u64, ListProgress>,
}

/// How far a request has come in its list.
struct ListProgress {
    /// `ip:port`s, separated by commas.
    list: String,
    /// Bytes of the list that attempts have taken.
    taken: usize,
    may_leave: bool,
    /// The name of the pick's pool.
    pool: Arc<str>,
    /// The server of the last attempt.
    last: Option<SocketAddr>,
    /// The names of other pools that attempts behind the list may go to.
    retry_in: Vec<Arc<str>>,
    /// The servers of all attempts, if there are such pools.
    tried: Vec<SocketAddr>,
    /// An attempt behind the list has been made, so the next ones leave the pick's pool.
    has_left: bool,
}

/// The pools for an attempt behind the list of a pick that may leave its pool.
pub(super) struct Retry {
    /// The names of pools, in their order.
    pub(super) pools: Vec<Arc<str>>,
    /// The servers that have failed.
    pub(super) tried: Vec<SocketAddr>,
}

/// The key in filter state for the pick of this pool.
pub(crate) fn filter_state_key(pool: &str) -> String {
    format!("endpoint-picker.pick.{pool}")
}

/// A request's pick, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pick(u64);

impl Pick {
    /// A pick of the pool with this name, with these destinations: `ip:port`s, separated by commas.
    pub(crate) fn new(list: &str, pool: &Arc<str>) -> Self {
        PICKS.with_borrow_mut(|Picks { last_key, by_key }| {
            *last_key += 1;
            let progress = ListProgress {
                list: list.to_owned(),
                taken: 0,
                may_leave: true,
                pool: Arc::clone(pool),
                last: None,
                retry_in: Vec::new(),
                tried: Vec::new(),
                has_left: false,
            };
            by_key.insert(*last_key, progress);
            Self(*last_key)
        })
    }

    /// The value for filter state.
    pub(crate) fn to_bytes(&self) -> [u8; 8] {
        self.0.to_ne_bytes()
    }

    /// No attempt goes to any other endpoint.
    pub(crate) fn stay(&self) {
        PickReference(self.0).with(|progress| progress.may_leave = false);
    }

    /// Attempts behind the list may go to these pools.
    pub(crate) fn retry_in(&self, pools: &[Arc<str>]) {
        PickReference(self.0).with(|progress| progress.retry_in = pools.to_vec());
    }

    /// The server of the last attempt; `None` before the first one.
    pub(crate) fn last(&self) -> Option<SocketAddr> {
        PickReference(self.0).with(|progress| progress.last).flatten()
    }
}

impl Drop for Pick {
    fn drop(&mut self) {
        // At a worker's end its picks may be gone before its requests.
        let _ = PICKS.try_with(|picks| picks.borrow_mut().by_key.remove(&self.0));
    }
}

/// A balancer's reference to a pick, which may be gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct PickReference(u64);

impl PickReference {
    /// Reads the value from filter state.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(u64::from_ne_bytes).map(Self)
    }

    fn with<T>(self, run: impl FnOnce(&mut ListProgress) -> T) -> Option<T> {
        PICKS.with_borrow_mut(|picks| picks.by_key.get_mut(&self.0).map(run))
    }

    /// Takes the next destination: its address, and whether it is the first.
    pub(super) fn take(self) -> Option<(SocketAddr, bool)> {
        self.with(|progress| {
            let rest = progress.list.get(progress.taken..)?;
            let item = rest.split(',').next()?;
            let is_first = progress.taken == 0;
            progress.taken += item.len() + 1;
            Some((item.parse().ok()?, is_first))
        })
        .flatten()
    }

    /// Whether an attempt behind the list may go to any endpoint.
    pub(super) fn may_leave(self) -> bool {
        self.with(|progress| progress.may_leave).unwrap_or(true)
    }

    /// The name of the pick's pool.
    pub(super) fn pool(self) -> Option<Arc<str>> {
        self.with(|progress| Arc::clone(&progress.pool))
    }

    /// Where an attempt behind the list may go; `None` if it must not leave its pool. Only the first of them
    /// stays in the pick's own pool.
    pub(super) fn retry(self) -> Option<Retry> {
        let retry = |progress: &mut ListProgress| {
            let has_left = core::mem::replace(&mut progress.has_left, true);
            let own = (!has_left).then_some(&progress.pool);
            Retry {
                pools: own.into_iter().chain(&progress.retry_in).cloned().collect(),
                tried: progress.tried.clone(),
            }
        };
        self.with(|progress| (!progress.retry_in.is_empty()).then(|| retry(progress))).flatten()
    }

    /// An attempt goes to this address.
    pub(super) fn note(self, address: SocketAddr) {
        self.with(|progress| {
            progress.last = Some(address);
            if !progress.retry_in.is_empty() {
                progress.tried.push(address);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_taken_in_order_and_end() {
        let pick = Pick::new("10.0.0.1:80,[::1]:80", &"a".into());
        let reference = PickReference::from_bytes(&pick.to_bytes()).unwrap();
        let first = SocketAddr::from(([10, 0, 0, 1], 80));
        assert_eq!(reference.take(), Some((first, true)));
        assert_eq!(pick.last(), None);
        reference.note(first);
        assert_eq!(pick.last(), Some(first));
        assert_eq!(reference.take(), Some(("[::1]:80".parse().unwrap(), false)));
        assert_eq!(reference.take(), None);
        assert!(reference.may_leave());
        pick.stay();
        assert!(!reference.may_leave());
    }

    #[test]
    fn one_attempt_behind_the_list_stays_in_the_pool_and_the_next_ones_leave_it() {
        let pick = Pick::new("10.0.0.1:80", &"a".into());
        let reference = PickReference::from_bytes(&pick.to_bytes()).unwrap();
        assert!(reference.retry().is_none());
        pick.retry_in(&["b".into(), "c".into()]);
        reference.note(reference.take().unwrap().0);
        let Retry { pools, tried } = reference.retry().unwrap();
        assert_eq!(pools, ["a".into(), "b".into(), "c".into()]);
        assert_eq!(tried, ["10.0.0.1:80".parse().unwrap()]);
        assert_eq!(reference.retry().unwrap().pools, ["b".into(), "c".into()]);
    }

    #[test]
    fn a_reference_finds_nothing_when_the_request_has_ended() {
        let pick = Pick::new("10.0.0.1:80", &"a".into());
        let reference = PickReference::from_bytes(&pick.to_bytes()).unwrap();
        drop(pick);
        assert_eq!(reference.take(), None);
        assert!(PickReference::from_bytes(b"1234567").is_none());
    }
}
