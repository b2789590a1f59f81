//! The service that programs have attained, for `program-aware-fairness`.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::flow_control::time::Nanos;
use crate::plugin::ProgramAwareFairness;

/// Most idle programs that are remembered. Clients choose the names.
const MAX_IDLE: usize = 10_000;

/// What one policy remembers of all programs.
#[derive(Debug)]
pub(in crate::flow_control) struct Programs {
    pub(in crate::flow_control) name: Arc<str>,
    pub(in crate::flow_control) policy: Arc<ProgramAwareFairness>,
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
}

impl Programs {
    pub(in crate::flow_control) fn new(name: Arc<str>, policy: Arc<ProgramAwareFairness>) -> Self {
        Self { name, policy, by_id: HashMap::new(), idle: BTreeSet::new() }
    }

    /// Follows a change of the configuration.
    pub(in crate::flow_control) fn adopt(&mut self, policy: Arc<ProgramAwareFairness>) {
        self.policy = policy;
    }

    /// A program begins to wait in a band, or has a request in flight.
    pub(in crate::flow_control) fn begin(&mut self, id: &Arc<str>, now: Nanos) {
        self.forget(now);
        let program = self.by_id.entry(Arc::clone(id)).or_default();
        if program.uses == 0 {
            self.idle.remove(&(program.idle_since, Arc::clone(id)));
            program.service = self.policy.decayed(program.service, now.since(program.decays_from));
            program.decays_from = now;
        }
        program.uses += 1;
    }

    /// The service that a program has attained.
    pub(in crate::flow_control) fn service(&self, id: &str) -> f64 {
        self.by_id.get(id).map_or(0.0, |program| program.service)
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
    /// Of the prompt.
    pub input: u64,
    /// Of the completion.
    pub output: u64,
}
