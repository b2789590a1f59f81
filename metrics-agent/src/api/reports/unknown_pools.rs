//! Pools that proxies ask for and the agent does not have: filters with a wrong name.

use core::time::Duration;
use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::api::pools::status::UnknownPool;
use crate::runtime::clock::Clock;

/// Names that are kept at once. Any client can ask for any name.
const MAX_NAMES: usize = 16;

/// Maximum length of a name that is kept, in bytes: `namespace/name` in Kubernetes.
const MAX_NAME_BYTES: usize = 317;

/// How long a name is kept after its last request.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The names that were asked for lately.
#[derive(Debug)]
pub struct UnknownPools {
    clock: Clock,
    names: Mutex<BTreeMap<String, Requests>>,
}

#[derive(Clone, Copy, Debug)]
struct Requests {
    count: u64,
    last: Duration,
}

impl UnknownPools {
    /// No names.
    pub fn new(clock: Clock) -> Self {
        Self { clock, names: Mutex::default() }
    }

    /// Counts a request for a pool of this name. While [`MAX_NAMES`] others are kept, another name is not.
    pub(in crate::api) fn count(&self, pool: &str) {
        let now = self.clock.now();
        let mut names = self.names.lock();
        names.retain(|_, requests| requests.is_recent(now));
        if !names.contains_key(pool) && (names.len() >= MAX_NAMES || pool.len() > MAX_NAME_BYTES) {
            return;
        }
        let requests = names.entry(pool.to_owned()).or_insert(Requests { count: 0, last: now });
        requests.count = requests.count.saturating_add(1);
        requests.last = now;
    }

    /// The names that were asked for in the last minute, in their order.
    pub(in crate::api) fn recent(&self) -> Vec<UnknownPool> {
        let now = self.clock.now();
        let names = self.names.lock();
        let recent = names.iter().filter(|(_, requests)| requests.is_recent(now));
        recent
            .map(|(pool, requests)| UnknownPool {
                pool: pool.clone(),
                requests: requests.count,
                age_ms: u64::try_from(requests.age(now).as_millis()).unwrap_or(u64::MAX),
            })
            .collect()
    }
}

impl Requests {
    fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last)
    }

    fn is_recent(&self, now: Duration) -> bool {
        self.age(now) < KEPT_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_are_kept_for_a_minute_and_bounded() {
        let unknown = UnknownPools::new(Clock::start());
        unknown.count("defualt");
        unknown.count("defualt");
        unknown.count(&"x".repeat(MAX_NAME_BYTES + 1));
        tokio::time::advance(Duration::from_secs(2)).await;
        let expected = UnknownPool { pool: "defualt".to_owned(), requests: 2, age_ms: 2000 };
        assert_eq!(unknown.recent(), [expected]);
        for number in 0..1000 {
            unknown.count(&number.to_string());
        }
        assert_eq!(unknown.recent().len(), MAX_NAMES);
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(unknown.recent(), []);
        unknown.count("another");
        assert_eq!(unknown.recent().len(), 1);
    }
}
