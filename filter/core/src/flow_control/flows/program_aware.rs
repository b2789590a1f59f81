//! Flows by the service that their programs have attained or by their turns, and by the wait of their first
//! requests.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::FlowTable;
use crate::flow_control::nanos::Nanos;
use crate::plugin::{FairnessRange as Range, ProgramAwareFairness};

/// Flows that are compared in each of the two orders. With up to this many waiting, all are.
const COMPARED: usize = 128;

/// The flows of a band in the two orders of which the score consists.
#[derive(Debug)]
pub(in crate::flow_control) struct ProgramAware {
    /// The index of the policy's state.
    programs: usize,
    flows: FlowTable<ProgramFlow>,
    /// Flows by the attained service, or by their programs' turns, the least first.
    by_service: BTreeSet<(AttainedService, u32)>,
    /// Flows by the time since which their first request waits.
    by_head: BTreeSet<(Nanos, u32)>,
}

#[derive(Clone, Copy, Debug)]
struct ProgramFlow {
    service: AttainedService,
    head: Nanos,
}

/// The bits of a number from 0, which have its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AttainedService(u64);

impl AttainedService {
    fn new(service: f64) -> Self {
        Self(service.max(0.0).to_bits())
    }

    fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl ProgramAware {
    pub(super) fn new(programs: usize) -> Self {
        let (by_service, by_head) = (BTreeSet::new(), BTreeSet::new());
        Self { programs, flows: FlowTable::default(), by_service, by_head }
    }

    pub(super) fn join(&mut self, id: &str, programs: &mut [Programs], now: Nanos) -> u32 {
        if let Some(flow) = self.flows.number(id) {
            return flow;
        }
        let id = Arc::from(id);
        let service = programs.get_mut(self.programs).map_or(0.0, |programs| {
            programs.begin(&id, now);
            programs.order(&id)
        });
        let service = AttainedService::new(service);
        let flow = self.flows.add(id, ProgramFlow { service, head: now });
        self.by_service.insert((service, flow));
        self.by_head.insert((now, flow));
        flow
    }

    pub(super) fn id(&self, flow: u32) -> Option<&Arc<str>> {
        self.flows.id(flow)
    }

    pub(super) fn set_head(&mut self, flow: u32, enqueued: Nanos) {
        let Some(known) = self.flows.get_mut(flow) else { return };
        self.by_head.remove(&(known.head, flow));
        known.head = enqueued;
        self.by_head.insert((enqueued, flow));
    }

    pub(super) fn leave(&mut self, flow: u32, programs: &mut [Programs], now: Nanos) {
        let Some((id, known)) = self.flows.remove(flow) else { return };
        self.by_service.remove(&(known.service, flow));
        self.by_head.remove(&(known.head, flow));
        if let Some(programs) = programs.get_mut(self.programs) {
            programs.end(&id, now);
        }
    }

    pub(super) fn serve(&mut self, programs: usize, id: &str, service: f64) {
        let Some(flow) = self.flows.number(id).filter(|_| programs == self.programs) else { return };
        let Some(known) = self.flows.get_mut(flow) else { return };
        self.by_service.remove(&(known.service, flow));
        known.service = AttainedService::new(service);
        self.by_service.insert((known.service, flow));
    }

    /// The flow that goes next by the policy; of equal ones the flow whose first request waits longest.
    pub(super) fn pick(&self, programs: &[Programs], now: Nanos) -> Option<u32> {
        let programs = programs.get(self.programs)?;
        let policy = &programs.policy;
        let wait = |head: Nanos| now.since(head).as_secs_f64();
        // The heads come first, so that of equal scores the longest wait wins.
        let heads = self.by_head.iter().take(COMPARED).map(|(_, flow)| *flow);
        if policy.counts_turns() {
            let latest = self.by_service.iter().rev().take(COMPARED).map(|(_, flow)| *flow);
            let turn = |flow| self.id(flow).map_or(1, |id| programs.turn(id, now));
            return self
                .highest(heads.chain(latest), |flow, known| policy.turn_score(turn(flow), wait(known.head)));
        }
        let (oldest, newest) = (self.by_head.first()?.0, self.by_head.last()?.0);
        let waits = Range { least: wait(newest), greatest: wait(oldest) };
        let (least, greatest) = (self.by_service.first()?.0, self.by_service.last()?.0);
        let relative = |service: AttainedService| programs.relative(service.get(), greatest.get());
        let services = Range { least: relative(least), greatest: relative(greatest) };
        let served = self.by_service.iter().take(COMPARED).map(|(_, flow)| *flow);
        let score =
            |_, known: &ProgramFlow| policy.score(relative(known.service), services, wait(known.head), waits);
        self.highest(heads.chain(served), score)
    }

    /// The flow of the highest score; of equal ones the first.
    fn highest(
        &self,
        flows: impl Iterator<Item = u32>,
        score: impl Fn(u32, &ProgramFlow) -> f64,
    ) -> Option<u32> {
        let mut best = None;
        for flow in flows {
            let Some(known) = self.flows.get(flow) else { continue };
            let score = score(flow, known);
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, flow));
            }
        }
        best.map(|(_, flow)| flow)
    }
}

/// Maximum number of idle programs that are remembered. Clients choose the names.
const MAX_IDLE: usize = 10_000;

/// The state of one policy: the service of all programs.
#[derive(Debug)]
pub(in crate::flow_control) struct Programs {
    pub(in crate::flow_control) name: Arc<str>,
    pub(in crate::flow_control) policy: Arc<ProgramAwareFairness>,
    /// Whether the service of a program decays all the time, and not only while it is idle.
    decays_in_use: bool,
    by_id: HashMap<Arc<str>, Program>,
    /// Programs without a request, by the time of their last one.
    idle: BTreeSet<(Nanos, Arc<str>)>,
}

#[derive(Debug, Default)]
struct Program {
    service: f64,
    /// From when on the service decays, while the program is idle.
    decays_from: Nanos,
    /// Bands in which it waits, and requests in flight.
    uses: usize,
    idle_since: Nanos,
    /// Requests that were dispatched.
    dispatched: u64,
    in_flight: usize,
    /// The end of the last response.
    ended: Nanos,
}

impl Programs {
    pub(in crate::flow_control) fn new(name: Arc<str>, policy: Arc<ProgramAwareFairness>) -> Self {
        Self { name, policy, decays_in_use: false, by_id: HashMap::new(), idle: BTreeSet::new() }
    }

    /// Follows a change of the configuration.
    pub(in crate::flow_control) fn adopt(&mut self, policy: Arc<ProgramAwareFairness>, decays_in_use: bool) {
        (self.policy, self.decays_in_use) = (policy, decays_in_use);
    }

    /// A program begins to wait in a band, or has a request in flight.
    pub(in crate::flow_control) fn begin(&mut self, id: &Arc<str>, now: Nanos) {
        self.forget(now);
        let program = self.by_id.entry(Arc::clone(id)).or_default();
        if program.uses == 0 {
            self.idle.remove(&(program.idle_since, Arc::clone(id)));
            if !self.decays_in_use {
                // The decay of the whole idle time is computed here, so that idle programs need no timer.
                program.service = self.policy.decayed(program.service, now.since(program.decays_from));
                program.decays_from = now;
            }
        }
        program.uses += 1;
    }

    /// A request of a program is dispatched.
    pub(in crate::flow_control) fn dispatch(&mut self, id: &Arc<str>, now: Nanos) {
        self.begin(id, now);
        if let Some(program) = self.by_id.get_mut(id) {
            program.dispatched += 1;
            program.in_flight += 1;
        }
    }

    /// The response to a dispatched request has ended.
    pub(in crate::flow_control) fn finish(&mut self, id: &Arc<str>, now: Nanos) {
        if let Some(program) = self.by_id.get_mut(id) {
            program.in_flight = program.in_flight.saturating_sub(1);
            program.ended = now;
        }
        self.end(id, now);
    }

    /// The turn of a program's next request, from 1. It is the first one again for a program whose last
    /// response ended long ago.
    fn turn(&self, id: &str, now: Nanos) -> u64 {
        let Some(program) = self.by_id.get(id) else { return 1 };
        let limit = self.policy.inactivity();
        let is_inactive = program.in_flight == 0
            && limit.is_some_and(|limit| program.ended.saturating_add(limit.into()) < now);
        if is_inactive { 1 } else { program.dispatched.saturating_add(1) }
    }

    /// The service that a program has attained, or its turn, as a number by which programs are ordered at any
    /// time. Where service decays all the time, each halves at the same rate: the number is 1 + log2 of the
    /// service + the half-lives until it was attained, 0 without service.
    pub(in crate::flow_control) fn order(&self, id: &str) -> f64 {
        let Some(program) = self.by_id.get(id) else { return 0.0 };
        if self.policy.counts_turns() {
            return program.dispatched as f64;
        }
        match self.half_life() {
            Some(half_life) if program.service > 0.0 => {
                let half_lives = program.decays_from.get().as_secs_f64() / half_life;
                (1.0 + program.service.log2() + half_lives).max(0.0)
            }
            _ => program.service,
        }
    }

    /// Seconds in which the service of each program halves; `None`: it does not decay in use.
    fn half_life(&self) -> Option<f64> {
        Some(self.policy.half_life_seconds()).filter(|seconds| self.decays_in_use && *seconds > 0.0)
    }

    /// The service of a program relative to the greatest of those that are compared, from their ordering
    /// numbers.
    fn relative(&self, service: f64, greatest: f64) -> f64 {
        if self.half_life().is_none() {
            service
        } else if service > 0.0 {
            (service - greatest).exp2()
        } else {
            0.0
        }
    }

    /// The opposite of [`begin`](Self::begin).
    pub(in crate::flow_control) fn end(&mut self, id: &Arc<str>, now: Nanos) {
        let Some(program) = self.by_id.get_mut(id) else { return };
        program.uses = program.uses.saturating_sub(1);
        if program.uses == 0 {
            program.idle_since = now;
            self.idle.insert((now, Arc::clone(id)));
        }
    }

    /// Adds the service of a request that is in flight.
    pub(in crate::flow_control) fn serve(&mut self, id: &Arc<str>, tokens: Tokens, now: Nanos) {
        let Some(program) = self.by_id.get_mut(id) else { return };
        if self.decays_in_use {
            let half_life = self.policy.half_life_seconds();
            let since = now.since(program.decays_from).as_secs_f64();
            if half_life > 0.0 {
                program.service *= (-since / half_life).exp2();
            }
        }
        program.service += ProgramAwareFairness::service(tokens.input, tokens.output);
        program.decays_from = now;
    }

    /// Forgets the programs that have been idle for too long, and those beyond the bound.
    fn forget(&mut self, now: Nanos) {
        let ttl = self.policy.time_to_live().map(Nanos::from);
        while let Some((since, _)) = self.idle.first() {
            let is_old = ttl.is_some_and(|ttl| since.saturating_add(ttl) < now);
            if !is_old && self.idle.len() <= MAX_IDLE {
                return;
            }
            if let Some((_, id)) = self.idle.pop_first() {
                self.by_id.remove(&id);
            }
        }
    }
}

/// The tokens of a request that was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Tokens of the prompt.
    pub input: u64,
    /// Tokens of the completion.
    pub output: u64,
}
