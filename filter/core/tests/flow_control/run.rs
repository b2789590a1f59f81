//! A queue next to the oracle.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use endpoint_picker::flow_control::{Event, Machine, Ticket, Tokens};
use endpoint_picker::plugin::Arrival;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use proptest::{prop_assert, prop_assert_eq};

use crate::inputs::{Step, configured};
use crate::oracle::{Item, Oracle, Rules};

/// The queue, the oracle next to it, and what every request has experienced.
pub(crate) struct Run {
    pub(crate) machine: Machine,
    oracle: Oracle,
    rules: Rules,
    now: Duration,
    pub(crate) offered: u64,
    /// The ends of waits, by ticket.
    pub(crate) ends: BTreeMap<u64, &'static str>,
    in_flight: BTreeSet<u64>,
}

impl Run {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            machine: Machine::new(configured(&rules)),
            oracle: Oracle::new(rules.clone()),
            rules,
            now: Duration::ZERO,
            offered: 0,
            ends: BTreeMap::new(),
            in_flight: BTreeSet::new(),
        }
    }

    pub(crate) fn step(&mut self, step: Step) -> TestCaseResult {
        match step {
            Step::Offer { flow, priority, bytes, received_ago, slo, deadline } => {
                let item = Item {
                    ticket: self.offered,
                    flow: format!("flow-{flow}"),
                    priority,
                    bytes,
                    received: self.now.saturating_sub(Duration::from_millis(received_ago)),
                    slo: slo.map(Duration::from_millis),
                    deadline: deadline.map(|after| self.now + Duration::from_millis(after)),
                    enqueued: self.now,
                };
                self.offered += 1;
                let arrival = Arrival {
                    fairness_id: &item.flow,
                    priority,
                    bytes,
                    received: item.received,
                    ttft_slo: item.slo,
                    deadline: item.deadline,
                    demand: None,
                };
                self.machine.offer(Ticket(item.ticket), &arrival, self.now);
                self.oracle.offer(item);
            }
            Step::Cancel(number) if self.offered > 0 => {
                let ticket = number as u64 % self.offered;
                self.machine.cancel(Ticket(ticket), self.now);
                self.oracle.cancel(ticket);
                self.ends.entry(ticket).or_insert("cancelled");
            }
            Step::Finish(number, tokens) if !self.in_flight.is_empty() => {
                let ticket = *self.in_flight.iter().nth(number % self.in_flight.len()).unwrap();
                self.in_flight.remove(&ticket);
                let of = |(input, output)| Tokens { input, output };
                self.machine.finish(Ticket(ticket), tokens.map(of), self.now);
                self.oracle.finish(ticket, tokens);
            }
            Step::Cancel(_) | Step::Finish(..) => {}
            Step::Capacity(saturation, has_endpoints) => {
                self.machine.capacity(saturation, has_endpoints, self.now);
                self.oracle.capacity(saturation, has_endpoints);
            }
            Step::Pass(microseconds) => {
                self.now += Duration::from_micros(microseconds);
                self.oracle.now = self.now;
            }
            Step::Poll(times) => {
                for _ in 0..times {
                    self.poll()?;
                }
            }
        }
        self.check_levels()
    }

    fn poll(&mut self) -> Result<bool, TestCaseError> {
        let event = self.machine.poll(self.now);
        self.oracle.expect(event).map_err(TestCaseError::fail)?;
        let (ticket, end) = match event {
            None => return Ok(false),
            Some(Event::Evict { ticket }) => {
                prop_assert!(self.in_flight.contains(&ticket.0), "{ticket:?} is evicted but not in flight");
                return Ok(true);
            }
            Some(Event::Dispatch { ticket, .. }) => (ticket, "dispatched"),
            Some(Event::Reject { ticket, .. }) => (ticket, "rejected"),
            Some(Event::Expire { ticket, .. }) => (ticket, "expired"),
        };
        let earlier = self.ends.insert(ticket.0, end);
        prop_assert_eq!(earlier, None, "{:?} ends twice", ticket);
        if end == "dispatched" {
            self.in_flight.insert(ticket.0);
        }
        Ok(true)
    }

    /// The queue holds what the oracle holds, and never more than it may.
    fn check_levels(&self) -> TestCaseResult {
        let bands: Vec<_> = self.machine.bands().collect();
        let levels: Vec<_> = bands.iter().map(|band| (band.priority, band.requests, band.bytes)).collect();
        prop_assert_eq!(&levels, &self.oracle.levels());
        prop_assert_eq!(self.machine.in_flight(), self.oracle.in_flight());
        for band in &bands {
            prop_assert!(band.requests <= band.max_requests && band.bytes <= band.max_bytes, "{band:?}");
            let tenants = self.machine.tenants(band.priority);
            let of_tenants =
                tenants.fold((0, 0, [(0, Duration::ZERO); 6]), |(requests, bytes, mut ends), it| {
                    ends.iter_mut().zip(it.ends).for_each(|(sum, waits)| {
                        *sum = (sum.0 + waits.requests(), sum.1 + waits.total());
                    });
                    (requests + it.requests, bytes + it.bytes, ends)
                });
            let ends = band.ends.map(|waits| (waits.requests(), waits.total()));
            prop_assert_eq!(of_tenants, (band.requests, band.bytes, ends));
        }
        let requests: u64 = bands.iter().map(|band| band.requests).sum();
        let bytes: u64 = bands.iter().map(|band| band.bytes).sum();
        prop_assert!(self.rules.max_requests.is_none_or(|max| requests <= max));
        prop_assert!(self.rules.max_bytes.is_none_or(|max| bytes <= max));
        prop_assert_eq!(self.machine.wake_at().is_some(), requests > 0);
        Ok(())
    }

    /// Opens the pool until nothing waits, and ends all that is in flight.
    pub(crate) fn drain(&mut self) -> TestCaseResult {
        self.step(Step::Capacity(0.0, true))?;
        loop {
            while self.poll()? {}
            let Some(wake_at) = self.machine.wake_at() else { break };
            prop_assert!(wake_at > self.now, "{wake_at:?} is not after {:?}", self.now);
            self.now = wake_at;
            self.oracle.now = wake_at;
        }
        while !self.in_flight.is_empty() {
            self.step(Step::Finish(0, None))?;
        }
        self.check_levels()
    }
}
