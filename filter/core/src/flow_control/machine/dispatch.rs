//! Dispatch cycles: the EPP's order of bands, flows and requests.

use core::time::Duration;

use super::Machine;
use crate::flow_control::nanos::Nanos;
use crate::flow_control::outcome::{Event, Outcome};
use crate::flow_control::waiting::Slot;

impl Machine {
    /// Dispatches the first request of the highest band that has one. A band whose ceiling is reached stops
    /// the cycle, even if nothing waits in it, as in the EPP.
    pub(super) fn cycle(&mut self) -> Option<Event> {
        let saturation = self.pool.saturation;
        let policy = &self.config.usage_limit;
        policy.ceilings(saturation, &self.priorities, &mut self.counter, &mut self.ceilings);
        for (index, (band, &ceiling)) in self.bands.iter_mut().zip(&self.ceilings).enumerate() {
            if saturation >= ceiling {
                self.reclaim(index);
                return None;
            }
            if let Some(slot) = band.next(&self.programs, self.now) {
                return self.dispatch(slot);
            }
        }
        None
    }

    fn dispatch(&mut self, slot: Slot) -> Option<Event> {
        let priority = self.waiting.get(slot)?.priority;
        // The id is read before `end` removes the request, which forgets it.
        let program = if self.programs.is_empty() { None } else { self.flow_id(slot).cloned() };
        // The service begins before the wait ends, so that the program is not idle in between.
        if let Some(id) = &program {
            for (place, programs) in self.programs.iter_mut().enumerate() {
                programs.dispatch(id, self.now);
                if programs.policy.counts_turns() {
                    let turn = programs.order(id);
                    self.bands.iter_mut().for_each(|band| band.serve(place, id, turn));
                }
            }
        }
        let (ticket, waited) = self.end(slot, Outcome::Dispatched)?;
        self.in_flight.begin(ticket, priority, program);
        Some(Event::Dispatch { ticket, waited })
    }

    /// Evicts requests in flight for the first band from `stopped` on in which requests wait that are blocked
    /// by the saturation and have a higher priority than the victim.
    fn reclaim(&mut self, stopped: usize) {
        let Some(reclamation) = &mut self.reclamation else { return };
        if !reclamation.is_open(self.now) {
            return;
        }
        let Some(victim) = self.in_flight.victim_priority() else { return };
        let saturation = self.pool.saturation;
        // No eviction opens a band whose ceiling is 0.
        let blocked = self
            .bands
            .iter()
            .zip(&self.ceilings)
            .skip(stopped)
            .find(|(band, ceiling)| band.is_ready() && **ceiling > 0.0 && saturation >= **ceiling);
        let Some((band, &ceiling)) = blocked.filter(|(band, _)| band.priority > victim) else { return };
        let in_flight = self.in_flight.len();
        let requests = reclamation.size(saturation, ceiling, in_flight, self.in_flight.evictable());
        for _ in 0..requests {
            let Some(ticket) = self.in_flight.evict(band.priority) else { return };
            reclamation.issue(ticket, saturation, in_flight, self.now);
            self.evicted.push_back(ticket);
        }
    }
}

/// The time between cycles without an arrival.
const TICK: Duration = Duration::from_millis(1);

/// One cycle for each arrival, and one for each millisecond in which the caller asks; each dispatches one
/// request at most. So a reading that shows room does not empty the queue before the next reading.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Arrivals whose cycle has not run.
    arrivals: u64,
    /// The number of the millisecond whose cycle has run.
    tick: u64,
}

impl Pace {
    pub(super) fn add_arrival(&mut self) {
        self.arrivals = self.arrivals.saturating_add(1);
    }

    /// Whether a cycle runs now; counts it.
    pub(super) fn starts_cycle(&mut self, now: Nanos) -> bool {
        if self.arrivals > 0 {
            self.arrivals -= 1;
            return true;
        }
        // Counted from 1, so that a cycle runs even if the first time is 0.
        let tick = now.0 / Nanos::from(TICK).0 + 1;
        core::mem::replace(&mut self.tick, tick) < tick
    }

    /// The time of the next cycle without an arrival.
    pub(super) fn next_cycle(&self) -> Duration {
        // Counted from 1, the number of a millisecond is also the time at which the next begins.
        Nanos(self.tick.saturating_mul(Nanos::from(TICK).0)).get()
    }
}
