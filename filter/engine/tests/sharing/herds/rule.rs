//! Rules for the loads of other proxies.

use core::time::Duration;
use std::collections::VecDeque;

use endpoint_picker::pool::load::FractionalLoad;
use endpoint_picker_engine::ledger::Ledger;

/// For how long the others have not read of an own pick, at most.
const UNSEEN: Duration = Duration::from_millis(40);

/// How the loads of other proxies count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// They are not known.
    Apart,
    /// As they were read.
    AtOnce,
    /// As they were read; an own pick that others have not read of counts for each proxy, because they have picked alike.
    OwnUnseen,
    /// As an average over about this time.
    Average(Duration),
    /// As the engine has them.
    Deferred,
}

/// What a proxy remembers for a rule.
pub(super) struct Memory {
    rule: Rule,
    others: usize,
    /// The picks that others have not read of.
    unseen: VecDeque<(Duration, usize)>,
    average: Vec<f64>,
    averaged: Duration,
}

impl Memory {
    pub(super) fn new(rule: Rule, proxies: usize, servers: usize) -> Self {
        let average = vec![0.0; servers];
        Self { rule, others: proxies - 1, unseen: VecDeque::new(), average, averaged: Duration::ZERO }
    }

    pub(super) fn picked(&mut self, server: usize, now: Duration) {
        self.unseen.push_back((now, server));
    }

    /// The loads of others were read, or may have been.
    pub(super) fn read(&mut self, ledger: &Ledger, now: Duration) {
        let Rule::Average(time) = self.rule else { return };
        let passed = now.saturating_sub(core::mem::replace(&mut self.averaged, now));
        let newer = 1.0 - (-passed.div_duration_f64(time)).exp();
        for (average, others) in self.average.iter_mut().zip(others(ledger)) {
            *average += newer * (others - *average);
        }
    }

    /// What does not count.
    pub(super) fn deferred(&mut self, ledger: &Ledger, now: Duration) -> Vec<FractionalLoad> {
        let requests = |requests| FractionalLoad { requests, tokens: 0.0 };
        match self.rule {
            Rule::Apart | Rule::AtOnce => Vec::new(),
            Rule::OwnUnseen => {
                self.unseen.retain(|(at, _)| now.saturating_sub(*at) < UNSEEN);
                let mut deferred = vec![requests(0.0); self.average.len()];
                for &(_, server) in &self.unseen {
                    deferred[server].requests -= self.others as f64;
                }
                deferred
            }
            Rule::Average(_) => {
                let deferred = others(ledger).zip(&self.average).map(|(others, average)| others - average);
                deferred.map(requests).collect()
            }
            Rule::Deferred => ledger.input(&[], now).deferred.to_vec(),
        }
    }
}

/// The requests of other proxies at each server.
fn others(ledger: &Ledger) -> impl Iterator<Item = f64> {
    let loads = ledger.loads().iter().zip(ledger.own_loads());
    loads.map(|(all, own)| (all.requests - own.requests) as f64)
}
