//! A slow and obvious second queue: one list, searched from beginning to end for each question.

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::flow_control::{Event, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Fcfs,
    Edf,
    SloDeadline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    GlobalStrict,
    RoundRobin,
    ProgramAware,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Static(f64),
    HoldbackByRank(f64),
    HoldbackByValue(f64),
    SoftReflective,
}

/// The half-life and the time to live of what is remembered of a program.
pub(crate) const HALF_LIFE: f64 = 10.0;
pub(crate) const PROGRAM_TTL: Duration = Duration::from_secs(30);

/// How long an evicted request that has ended is not counted again.
pub(crate) const GRACE: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub(crate) struct BandRules {
    pub(crate) priority: i32,
    pub(crate) max_requests: u64,
    pub(crate) max_bytes: u64,
    pub(crate) order: Order,
    pub(crate) share: Share,
}

#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// The highest priority first; 0 is among them.
    pub(crate) bands: Vec<BandRules>,
    pub(crate) max_requests: Option<u64>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) no_endpoint_ttl: Option<Duration>,
    pub(crate) limit: Limit,
    pub(crate) evicts: bool,
}

impl Rules {
    pub(crate) fn has_programs(&self) -> bool {
        self.bands.iter().any(|band| band.share == Share::ProgramAware)
    }
}

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
                let program = self.programs.get_mut(&flow).unwrap();
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
        let ttl = if self.has_endpoints { self.rules.ttl } else { self.rules.no_endpoint_ttl };
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

    /// The requests of which one is dispatched.
    fn cycle(&mut self) -> Vec<u64> {
        let ceilings = self.ceilings();
        for (index, band) in self.rules.bands.clone().iter().enumerate() {
            if self.saturation >= ceilings[index] {
                self.reclaim(index, &ceilings);
                return Vec::new();
            }
            let candidates = self.candidates(band);
            if candidates.is_empty() {
                self.last.remove(&band.priority);
            } else {
                return candidates;
            }
        }
        Vec::new()
    }

    fn ceilings(&mut self) -> Vec<f64> {
        let priorities: Vec<f64> = self.rules.bands.iter().map(|band| f64::from(band.priority)).collect();
        let (n, s) = (priorities.len(), self.saturation);
        let (highest, lowest) = (priorities[0], priorities[n - 1]);
        match self.rules.limit {
            Limit::Static(threshold) => vec![threshold; n],
            Limit::HoldbackByRank(_) | Limit::HoldbackByValue(_) | Limit::SoftReflective if n == 1 => {
                vec![1.0]
            }
            Limit::HoldbackByRank(min) => {
                (0..n).map(|i| 1.0 - i as f64 * (1.0 - min) / (n - 1) as f64).collect()
            }
            Limit::HoldbackByValue(min) => priorities
                .iter()
                .map(|priority| min + (priority - lowest) / (highest - lowest) * (1.0 - min))
                .collect(),
            Limit::SoftReflective => {
                let mut is_open = false;
                if (0.5..1.0).contains(&s) {
                    self.counter += 1;
                    let period = (1..1_000).find(|period| f64::from(*period) + 0.5 > s / (1.0 - s)).unwrap();
                    is_open = self.counter.is_multiple_of(period);
                }
                let ceiling = |i: usize| {
                    let is_below = s < 1.0 - i as f64 * s / (n - 1) as f64;
                    if i == 0 || is_below || is_open { 1.0 } else { 0.0 }
                };
                (0..n).map(ceiling).collect()
            }
        }
    }

    /// The requests of a band of which one goes next; several only where scores are equal.
    fn candidates(&self, band: &BandRules) -> Vec<u64> {
        let mut items = self.of_band(band);
        // A stable sort keeps the order of arrival.
        items.sort_by_key(|item| {
            let end = self.rules.ttl.map(|ttl| item.enqueued + ttl).into_iter().chain(item.deadline).min();
            match band.order {
                Order::Fcfs => (Duration::ZERO, Duration::ZERO),
                Order::Edf => (end.unwrap_or(Duration::MAX), Duration::ZERO),
                Order::SloDeadline => {
                    (item.slo.map_or(Duration::MAX, |slo| item.received + slo), item.received)
                }
            }
        });
        // The first of each flow, by flow.
        let mut heads: BTreeMap<&str, &Item> = BTreeMap::new();
        for item in &items {
            heads.entry(&item.flow).or_insert(item);
        }
        match band.share {
            Share::GlobalStrict => items.first().map(|item| item.ticket).into_iter().collect(),
            Share::RoundRobin => {
                let last = self.last.get(&band.priority).map_or("", String::as_str);
                let next = heads.iter().find(|(flow, _)| **flow > last).or_else(|| heads.iter().next());
                next.map(|(_, item)| item.ticket).into_iter().collect()
            }
            Share::ProgramAware => self.highest_scores(&heads),
        }
    }

    fn highest_scores(&self, heads: &BTreeMap<&str, &Item>) -> Vec<u64> {
        let service = |item: &Item| self.programs[&item.flow].service;
        let wait = |item: &Item| (self.now.saturating_sub(item.enqueued)).as_secs_f64();
        let norm = |of: &dyn Fn(&Item) -> f64, item: &Item| {
            let values = || heads.values().map(|item| of(item));
            let (least, greatest) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            if greatest > least { (of(item) - least) / (greatest - least) } else { 0.5 }
        };
        let score = |item: &Item| 0.8 * (1.0 - norm(&service, item)) + 0.2 * norm(&wait, item);
        let highest = heads.values().map(|item| score(item)).fold(0.0, f64::max);
        heads.values().filter(|item| score(item) >= highest - 1e-6).map(|item| item.ticket).collect()
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
            program.service *= 0.5_f64.powf(now.saturating_sub(program.from).as_secs_f64() / HALF_LIFE);
            program.from = now;
        }
        program.uses += 1;
    }

    fn end(&mut self, flow: &str) {
        let program = self.programs.get_mut(flow).unwrap();
        program.uses -= 1;
        program.idle_since = self.now;
    }

    fn reclaim(&mut self, stopped: usize, ceilings: &[f64]) {
        if !self.rules.evicts {
            return;
        }
        let now = self.now;
        let (overdue, outstanding) = self
            .outstanding
            .drain(..)
            .partition::<Vec<_>, _>(|(.., issued)| now.saturating_sub(*issued) >= Duration::from_secs(10));
        self.outstanding = outstanding;
        self.cooling.extend(overdue.into_iter().map(|(_, credit, _)| (credit, now + GRACE)));
        self.cooling.retain(|(_, until)| now < *until);
        if !self.outstanding.is_empty() || !self.cooling.is_empty() {
            return;
        }
        let in_flight = self.in_flight() as f64;
        let credit = self.saturation / in_flight;
        for (index, band) in self.rules.bands.clone().iter().enumerate().skip(stopped) {
            let ceiling = ceilings[index];
            if ceiling <= 0.0 || self.saturation < ceiling || self.of_band(band).is_empty() {
                continue;
            }
            let requests = if self.saturation - ceiling > credit { 2 } else { 1 };
            for _ in 0..requests {
                let victims = self.in_flight.iter_mut().filter(|(_, priority, _, is_evicted)| {
                    !is_evicted && *priority < 0 && *priority < band.priority
                });
                // The last of several equal ones is the newest.
                let lowest = victims.rev().min_by_key(|(_, priority, ..)| *priority);
                let Some((ticket, _, _, is_evicted)) = lowest else { return };
                *is_evicted = true;
                self.evicted.push(*ticket);
                self.outstanding.push((*ticket, credit, now));
            }
            return;
        }
    }
}
