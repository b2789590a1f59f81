//! What every VM of one Envoy knows alike, because all apply the same log: what plugins remember, what is in flight, and
//! who failed.

use core::time::Duration;

use endpoint_picker::avoidance::Avoidance;
use endpoint_picker::cycle::Load;
use endpoint_picker::in_flight::InFlight;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin_state::{Event, PluginStates};
use endpoint_picker::pool::Pool;
use endpoint_picker::reading::Reading;
use endpoint_picker::restarts::Restarts;
use endpoint_picker_wire::log::{Entry, What};

use crate::roster::News;
use crate::shared_log::SharedLog;

/// How often an append is tried before it is left for the next time.
const TRIES: u32 = 4;

/// One VM's copy of what all know, and what it has to tell.
#[derive(Debug)]
pub(crate) struct OneView {
    /// This VM's number.
    vm: u64,
    log: SharedLog,
    known: Known,
    /// Another VM, which has missed something, has asked for all that this one has in flight.
    owes_loads: bool,
}

/// What the log's entries change.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) states: PluginStates,
    pub(crate) in_flight: InFlight,
    pub(crate) avoidance: Avoidance,
    restarts: Restarts,
    /// Requests, and parts of them, that were routed since this VM began.
    routed: u64,
}

impl OneView {
    pub(crate) fn new(vm: u64, log: SharedLog, states: PluginStates) -> Self {
        Self { vm, log, known: Known { states, ..Known::default() }, owes_loads: false }
    }

    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// Follows a change of topology or policy. What is known about endpoints that stay, and what plugins that stay
    /// remember, is kept.
    pub(crate) fn adopt<'a>(
        &mut self,
        older: &Pool,
        newer: &Pool,
        pipelines: impl IntoIterator<Item = &'a Pipeline>,
        avoid_failing: Duration,
    ) {
        let Known { states, in_flight, avoidance, restarts, .. } = &mut self.known;
        states.adopt(pipelines.into_iter().flat_map(Pipeline::initial_states));
        states.remap(&older.moves_to(newer));
        in_flight.adopt(newer);
        avoidance.adopt(newer, avoid_failing);
        restarts.adopt(newer.endpoints().len(), |endpoint| newer.index_of(endpoint).is_some());
    }

    /// A plugin is to remember something.
    pub(crate) fn remember(&mut self, event: &Event, pool: &Pool) {
        if let Some(entry) = Entry::remembered(self.vm, event, pool) {
            self.log.say(&entry);
        }
    }

    /// A request, or a part of it, is in flight at an endpoint.
    pub(crate) fn start(&mut self, endpoint: u64, load: Load) {
        if load != Load::default() {
            self.say(endpoint, What::Started(load));
        }
    }

    /// That is over.
    pub(crate) fn end(&mut self, endpoint: u64, load: Load) {
        if load != Load::default() {
            self.say(endpoint, What::Ended(load));
        }
    }

    /// What is in flight at one endpoint is so at another one instead.
    pub(crate) fn transfer(&mut self, from: u64, to: u64, load: Load) {
        self.say(from, What::Moved { to, load });
    }

    /// The endpoint failed a request.
    pub(crate) fn failed(&mut self, endpoint: u64, at: Duration) {
        self.say(endpoint, What::Failed { at });
    }

    /// The endpoint answered.
    pub(crate) fn answered(&mut self, endpoint: u64, at: Duration) {
        self.say(endpoint, What::Answered { at });
    }

    /// Reports the restarts that new readings show, unless another VM has done so.
    pub(crate) fn report_restarts(&mut self, readings: &[Reading], pool: &Pool) {
        let mut restarted = Vec::new();
        for (endpoint, reading) in pool.endpoints().iter().zip(readings) {
            let (key, mark) = (endpoint.key(), reading.cached_since);
            if self.known.restarts.read(key, mark, reading.updated.is_some()) {
                restarted.extend(mark.map(|mark| (key, mark)));
            }
        }
        if restarted.is_empty() {
            return;
        }
        self.sync(pool);
        for (endpoint, since) in restarted {
            if self.known.restarts.is_unreported(endpoint, since) {
                self.say(endpoint, What::Restarted { since });
            }
        }
        self.flush(pool);
    }

    fn say(&mut self, endpoint: u64, what: What<'_>) {
        self.log.say(&Entry { vm: self.vm, endpoint, what });
    }

    /// Applies what the other VMs appended, then appends what is pending here.
    pub(crate) fn sync(&mut self, pool: &Pool) {
        let Self { log, known, .. } = self;
        if let Err(error) = log.hear(|entry| known.apply(entry, pool)) {
            log::error!("{error}; what other workers did is not known");
        }
        self.flush(pool);
    }

    /// The same, if anything is pending. Otherwise the next decision reads what the others appended.
    pub(crate) fn sync_pending(&mut self, pool: &Pool) {
        if !self.log.has_said_all() {
            self.sync(pool);
        }
    }

    /// How much is pending, for [`Self::withdraw`].
    pub(crate) fn pending(&self) -> usize {
        self.log.pending()
    }

    /// Leaves out what became pending after there was this much.
    pub(crate) fn withdraw(&mut self, mark: usize) {
        self.log.withdraw(mark);
    }

    /// Appends what is pending. When other VMs are faster several times in a row, it stays pending.
    pub(crate) fn flush(&mut self, pool: &Pool) {
        self.append(pool, |_| true);
    }

    /// The same, unless another VM has routed a request since the last look: then it returns false, and what is pending can be
    /// decided better.
    pub(crate) fn commit(&mut self, pool: &Pool) -> bool {
        let routed = self.known.routed;
        self.append(pool, |known| known.routed == routed)
    }

    /// Appends what is pending, for as long as what other VMs append first allows it. Returns whether it always did.
    fn append(&mut self, pool: &Pool, allows: impl Fn(&Known) -> bool) -> bool {
        let Self { log, known, .. } = self;
        for _ in 0..TRIES {
            match log.try_append(|entry| known.apply(entry, pool)) {
                Ok(true) => break,
                Ok(false) if allows(known) => {}
                Ok(false) => return false,
                Err(error) => {
                    log::error!("{error}; other workers do not know what this one did");
                    break;
                }
            }
        }
        true
    }

    /// Keeps up with the other VMs, also while there are no requests. `news` is what the roster told, if it was looked at.
    /// Returns whether this VM has missed something and must ask the others.
    pub(crate) fn keep_up(&mut self, news: Option<News>, pool: &Pool) -> bool {
        self.sync(pool);
        if let Some(News { members, is_asked }) = news {
            let in_flight = &mut self.known.in_flight;
            let gone: Vec<u64> = in_flight.senders().filter(|vm| !members.contains(vm)).collect();
            for vm in gone {
                in_flight.forget(vm);
            }
            if is_asked {
                self.owes_loads = true;
                self.known.states.resend();
            }
        }
        // What is still unsaid is not counted yet, and must not be said before the count.
        if self.owes_loads && self.log.has_said_all() {
            self.owes_loads = false;
            let loads = self.known.in_flight.of(self.vm);
            let loads: Vec<_> =
                loads.map(|(endpoint, Load { requests, tokens })| [endpoint, requests, tokens]).collect();
            self.say(0, What::Loads(&loads));
            self.flush(pool);
        }
        self.log.take_missed()
    }
}

impl Known {
    /// Takes in one entry of the log.
    fn apply(&mut self, entry: Entry<'_>, pool: &Pool) {
        let Entry { vm, endpoint, what } = entry;
        match what {
            What::Started(load) => {
                self.in_flight.start(vm, endpoint, load);
                self.routed += 1;
            }
            What::Moved { to, load } => self.in_flight.transfer(vm, endpoint, to, load),
            What::Ended(load) => self.in_flight.end(vm, endpoint, load),
            What::Loads(loads) => {
                let load = |&[endpoint, requests, tokens]: &[u64; 3]| (endpoint, Load { requests, tokens });
                self.in_flight.set(vm, loads.iter().map(load));
            }
            What::Failed { at } => self.avoidance.failed(endpoint, at),
            What::Answered { at } => self.avoidance.answered(endpoint, at),
            What::Restarted { since } => {
                if self.restarts.report(endpoint, since)
                    && let Some(index) = pool.index_of(endpoint)
                {
                    self.states.forget(index, pool.endpoints().len());
                }
            }
            What::SentPrompt { .. } | What::SentCold { .. } | What::BoundSession { .. } => {
                if let Some(event) = entry.event(pool) {
                    self.states.apply(&event);
                }
            }
        }
    }
}
