//! A cycle of the oracle: what may be dispatched, and what is evicted.

use core::time::Duration;
use std::collections::BTreeMap;

use super::{BandRules, GRACE, Item, Limit, Oracle, Order, Share, decayed};

impl Oracle {
    /// The requests of which one is dispatched.
    pub(super) fn cycle(&mut self) -> Vec<u64> {
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
            let end = self
                .band(item.priority)
                .ttl
                .map(|ttl| item.enqueued + ttl)
                .into_iter()
                .chain(item.deadline)
                .min();
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
        let service = |item: &Item| {
            let program = &self.programs[&item.flow];
            if self.rules.decays_in_use { decayed(program, self.now) } else { program.service }
        };
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
