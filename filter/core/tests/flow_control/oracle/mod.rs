//! A slow and obvious second queue: one list, searched from beginning to end for each question.

mod cycle;
mod rules;

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::flow_control::{Event, Outcome};

pub(crate) use rules::{BandRules, GRACE, HALF_LIFE, Limit, Order, PROGRAM_TTL, Rules, Share};

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) ticket: u64,
    pub(crate) flow: String,
    pub(crate) priority: i32,
    pub(crate) bytes: u64,
    pub(crate) received: Duration,
    pub(crate) slo: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) enqueued: Duration,
}

#[derive(Clone, Debug, Default)]
struct Program {
    service: f64,
    from: Duration,
    uses: u32,
    idle_since: Duration,
}

pub(crate) struct Oracle {
    rules: Rules,
    /// In the order of arrival.
    waiting: Vec<Item>,
    rejected: Vec<(u64, Outcome)>,
    /// In the order of dispatch: ticket, priority, flow, whether it is evicted.
    in_flight: Vec<(u64, i32, String, bool)>,
    evicted: Vec<u64>,
    /// Ticket, credit, and the time of the eviction.
    outstanding: Vec<(u64, f64, Duration)>,
    cooling: Vec<(f64, Duration)>,
    programs: BTreeMap<String, Program>,
    /// The flow of each band that was served last.
    last: BTreeMap<i32, String>,
    saturation: f64,
    has_endpoints: bool,
    since: Duration,
    cycles: u64,
    tick: Option<u128>,
    counter: u32,
    pub(crate) now: Duration,
}

impl Oracle {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            waiting: Vec::new(),
            rejected: Vec::new(),
            in_flight: Vec::new(),
            evicted: Vec::new(),
            outstanding: Vec::new(),
            cooling: Vec::new(),
            programs: BTreeMap::new(),
            last: BTreeMap::new(),
            saturation: 1.0,
            has_endpoints: false,
            since: Duration::ZERO,
            cycles: 0,
            tick: None,
            counter: 0,
            now: Duration::ZERO,
        }
    }

    pub(crate) fn offer(&mut self, item: Item) {
        self.cycles += 1;
        let band = self.band(item.priority).clone();
        let of_band =
            || self.waiting.iter().filter(|other| self.band(other.priority).priority == band.priority);
        let bytes =
            |items: &mut dyn Iterator<Item = &Item>| items.map(|item| item.bytes).sum::<u64>() + item.bytes;
        let fits = self.rules.max_bytes.is_none_or(|max| bytes(&mut self.waiting.iter()) <= max)
            && self.rules.max_requests.is_none_or(|max| (self.waiting.len() as u64) < max)
            && bytes(&mut of_band()) <= band.max_bytes
            && (of_band().count() as u64) < band.max_requests;
        if fits {
            let is_first = !of_band().any(|other| other.flow == item.flow);
            if band.share == Share::ProgramAware && is_first {
                self.begin(&item.flow.clone());
            }
            self.waiting.push(item);
        } else if self.has_endpoints {
            self.rejected.push((item.ticket, Outcome::RejectedCapacity));
        } else {
            self.rejected.push((item.ticket, Outcome::RejectedNoEndpoints));
        }
    }

    pub(crate) fn cancel(&mut self, ticket: u64) {
        self.rejected.retain(|(rejected, _)| *rejected != ticket);
        self.take(ticket);
    }

    pub(crate) fn finish(&mut self, ticket: u64, tokens: Option<(u64, u64)>) {
        let Some(at) = self.in_flight.iter().position(|(other, ..)| *other == ticket) else { return };
        let (_, _, flow, _) = self.in_flight.remove(at);
        if let Some(at) = self.outstanding.iter().position(|(other, ..)| *other == ticket) {
            let (_, credit, _) = self.outstanding.remove(at);
            self.cooling.push((credit, self.now + GRACE));
        }
        if self.rules.has_programs() {
            if let Some((input, output)) = tokens {
                let decays = self.rules.decays_in_use;
                let program = self.programs.get_mut(&flow).unwrap();
                if decays {
                    program.service = decayed(program, self.now);
                }
                program.service += (input + 2 * output) as f64;
                program.from = self.now;
            }
            self.end(&flow);
        }
    }

    pub(crate) fn capacity(&mut self, saturation: f64, has_endpoints: bool) {
        if has_endpoints != self.has_endpoints {
            self.since = self.now;
        }
        (self.saturation, self.has_endpoints) = (saturation, has_endpoints);
    }

    /// Checks that an event is one that may come next, and lets it happen.
    pub(crate) fn expect(&mut self, event: Option<Event>) -> Result<(), String> {
        if !self.rejected.is_empty() {
            let (ticket, outcome) = self.rejected.remove(0);
            let is_it = matches!(event, Some(Event::Reject { ticket: it, outcome: how }) if it.0 == ticket && how == outcome);
            return is_it.then_some(()).ok_or_else(|| format!("{event:?}, not the rejection of {ticket}"));
        }
        let expired: Vec<u64> =
            self.waiting.iter().filter(|item| self.is_over(item)).map(|item| item.ticket).collect();
        if !expired.is_empty() {
            let how = if self.has_endpoints { Outcome::EvictedTtl } else { Outcome::EvictedNoEndpoints };
            return match event {
                Some(Event::Expire { ticket, outcome, waited })
                    if expired.contains(&ticket.0) && outcome == how =>
                {
                    let item = self.take(ticket.0).unwrap();
                    (waited == self.now.saturating_sub(item.enqueued))
                        .then_some(())
                        .ok_or_else(|| format!("waited {waited:?}"))
                }
                _ => Err(format!("{event:?}, not the end of one of {expired:?}")),
            };
        }
        loop {
            if !self.evicted.is_empty() {
                let ticket = self.evicted.remove(0);
                if self.in_flight.iter().all(|(other, ..)| *other != ticket) {
                    continue;
                }
                let is_it = matches!(event, Some(Event::Evict { ticket: it }) if it.0 == ticket);
                return is_it.then_some(()).ok_or_else(|| format!("{event:?}, not the eviction of {ticket}"));
            }
            if !self.cycle_runs() {
                return event.map_or(Ok(()), |event| Err(format!("{event:?}, but nothing may happen")));
            }
            let candidates = self.cycle();
            if candidates.is_empty() {
                continue;
            }
            return match event {
                Some(Event::Dispatch { ticket, waited }) if candidates.contains(&ticket.0) => {
                    self.dispatch(ticket.0, waited)
                }
                _ => Err(format!("{event:?}, not the dispatch of one of {candidates:?}")),
            };
        }
    }

    /// Requests and bytes that wait in each band.
    pub(crate) fn levels(&self) -> Vec<(i32, u64, u64)> {
        let level = |band: &BandRules| {
            let of_band = self.of_band(band);
            (band.priority, of_band.len() as u64, of_band.iter().map(|item| item.bytes).sum())
        };
        self.rules.bands.iter().map(level).collect()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.iter().filter(|(.., is_evicted)| !is_evicted).count()
    }

    fn band(&self, priority: i32) -> &BandRules {
        let find = |priority| self.rules.bands.iter().find(|band| band.priority == priority);
        find(priority).or_else(|| find(0)).unwrap()
    }

    fn of_band(&self, band: &BandRules) -> Vec<&Item> {
        self.waiting.iter().filter(|item| self.band(item.priority).priority == band.priority).collect()
    }

    fn is_over(&self, item: &Item) -> bool {
        let ttl = if self.has_endpoints { self.band(item.priority).ttl } else { self.rules.no_endpoint_ttl };
        ttl.is_some_and(|ttl| self.now >= item.enqueued.max(self.since) + ttl)
            || item.deadline.is_some_and(|deadline| self.now >= deadline)
    }

    fn cycle_runs(&mut self) -> bool {
        if self.cycles > 0 {
            self.cycles -= 1;
            return true;
        }
        let tick = self.now.as_millis();
        self.tick.replace(tick).is_none_or(|last| last < tick)
    }

    fn dispatch(&mut self, ticket: u64, waited: Duration) -> Result<(), String> {
        let item = self.waiting.iter().find(|item| item.ticket == ticket).unwrap().clone();
        let band = self.band(item.priority).clone();
        if self.rules.has_programs() {
            self.begin(&item.flow);
        }
        if band.share == Share::RoundRobin {
            self.last.insert(band.priority, item.flow.clone());
        }
        self.take(ticket);
        self.in_flight.push((ticket, item.priority, item.flow, false));
        (waited == self.now.saturating_sub(item.enqueued))
            .then_some(())
            .ok_or_else(|| format!("waited {waited:?}"))
    }

    fn take(&mut self, ticket: u64) -> Option<Item> {
        let at = self.waiting.iter().position(|item| item.ticket == ticket)?;
        let item = self.waiting.remove(at);
        let band = self.band(item.priority).clone();
        let is_last = self.of_band(&band).iter().all(|other| other.flow != item.flow);
        if band.share == Share::ProgramAware && is_last {
            self.end(&item.flow);
        }
        Some(item)
    }

    fn begin(&mut self, flow: &str) {
        let now = self.now;
        let program = self.programs.entry(flow.to_owned()).or_default();
        if program.uses == 0 {
            if program.idle_since + PROGRAM_TTL < now {
                program.service = 0.0;
            }
            program.service = decayed(program, now);
            program.from = now;
        }
        program.uses += 1;
    }

    fn end(&mut self, flow: &str) {
        let program = self.programs.get_mut(flow).unwrap();
        program.uses -= 1;
        program.idle_since = self.now;
    }
}

/// The rest of a program's service.
fn decayed(program: &Program, now: Duration) -> f64 {
    program.service * 0.5_f64.powf(now.saturating_sub(program.from).as_secs_f64() / HALF_LIFE)
}
