//! The lease whose holder is the one worker that polls the agent.
//!
//! The value of `…/lease` has two words: the holder's number, and when it renewed the lease, in nanoseconds
//! since the epoch.

use core::time::Duration;

use endpoint_picker::period::Period;

use crate::shared_data::{SharedData, Versioned, create, key};
use crate::words::{bytes, nanoseconds, words};

/// How long a lease lasts. A holder that vanishes is replaced after this and [`CHECK_PERIOD`] at most.
const LENGTH: Duration = Duration::from_secs(1);

/// How often a worker checks the lease: its holder to renew it, the others to take it over.
const CHECK_PERIOD: Duration = Duration::from_millis(250);

/// One worker's part in the lease.
#[derive(Debug)]
pub struct Lease {
    key: String,
    worker: u64,
    /// Pause before the next check.
    pause: Period,
    /// Time for which this worker holds the lease.
    held: Period,
}

impl Lease {
    /// A lease that this worker does not hold.
    pub fn new<S: SharedData>(data: &S, pool: &str, worker: u64) -> Result<Self, S::Error> {
        let key = key(pool, "lease");
        create(data, &key, &[])?;
        Ok(Self { key, worker, pause: Period::default(), held: Period::default() })
    }

    /// Whether this worker holds the lease at this time.
    pub fn is_held(&self, now: Duration) -> bool {
        self.held.contains(now)
    }

    /// Renews the lease, or takes it over when its holder has not renewed it in time. A check that is not due
    /// costs nothing.
    ///
    /// `now` has to be read shortly before the call: with an old one, a lease that was renewed since looks
    /// like one from before the clock was set back.
    pub fn keep<S: SharedData>(&mut self, data: &S, now: Duration) -> Result<(), S::Error> {
        if self.pause.contains(now) {
            return Ok(());
        }
        self.pause = Period::new(now, CHECK_PERIOD);
        let Versioned { bytes: value, version } = data.get(&self.key)?;
        // A failed swap needs no handling: another worker swaps only when this lease has ended.
        if holder(&value, now).is_some_and(|holder| holder != self.worker) {
            self.held = Period::default();
        } else if data.compare_and_swap(&self.key, &bytes([self.worker, nanoseconds(now)]), version)? {
            self.held = Period::new(now, LENGTH);
        }
        Ok(())
    }
}

/// The worker that holds the lease at this time.
fn holder(value: &[u8], now: Duration) -> Option<u64> {
    let mut words = words(value);
    let (holder, renewed) = (words.next()?, words.next()?);
    Period::new(Duration::from_nanos(renewed), LENGTH).contains(now).then_some(holder)
}
