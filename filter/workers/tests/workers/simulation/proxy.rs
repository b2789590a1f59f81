//! The scheduler of a simulated proxy.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::load::Load;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::ledger::Change;
use endpoint_picker_workers::entry::{self, Content};

use super::turn::{End, Fault, Go, Order, Turn, Wait};
use super::worker::{self, Clock, Report, World};
use crate::fixture::{START, pool};
use crate::memory::Memory;

/// Workers at any time.
const WORKERS: usize = 8;

/// Turns that the scheduler gives before it lets the proxy rest.
const TURNS: u32 = 2_500;

/// More calls than are ever made in one turn.
const UNLIMITED: u32 = u32::MAX;

/// The faults of a run.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "any of them can go wrong with any other")]
pub(crate) struct Faults {
    /// Workers end in the middle of an action, and others take their places.
    pub(crate) traps: bool,
    /// The wall clock is set forward or back.
    pub(crate) clock_steps: bool,
    /// Shared data refuses calls.
    pub(crate) refusals: bool,
    /// Workers do nothing for a while.
    pub(crate) stalls: bool,
    /// Snapshots list the endpoints in another order.
    pub(crate) reorders: bool,
    /// Requests are so large that a stalled worker misses entries that the log no longer keeps.
    pub(crate) overruns: bool,
}

pub(crate) struct Proxy {
    faults: Faults,
    rng: SplitMix64,
    world: Arc<World>,
    places: Vec<Place>,
    turns: u32,
    /// The worker that has most turns, and the turn at which that ends.
    busy: (usize, u32),
}

/// A place for a worker.
struct Place {
    go: Sender<Go>,
    waits: Receiver<Wait<Report>>,
    thread: Option<JoinHandle<()>>,
    is_idle: bool,
    /// No turn before.
    stalled_until: u32,
}

impl Place {
    fn new(world: &Arc<World>, seed: u64) -> Self {
        let (go, orders) = channel();
        let (reasons, waits) = channel();
        let world = Arc::clone(world);
        let thread = std::thread::spawn(move || {
            let turn = Turn::new(orders, reasons.clone());
            // A worker that panics otherwise has failed the test; its thread is joined.
            let ended = catch_unwind(AssertUnwindSafe(|| worker::run(&world, &turn, seed)));
            let is_end = ended.as_ref().err().is_none_or(|end| end.is::<End>());
            let _ = reasons.send(Wait::Ended);
            if !is_end && let Err(panic) = ended {
                std::panic::resume_unwind(panic);
            }
        });
        let mut place = Self { go, waits, thread: Some(thread), is_idle: false, stalled_until: 0 };
        assert!(place.wait().is_none(), "at its first call");
        place
    }

    /// Waits until the worker waits. Returns its report, if there is one.
    fn wait(&mut self) -> Option<Report> {
        match self.waits.recv() {
            Ok(Wait::AtCall) => self.is_idle = false,
            Ok(Wait::Idle(report)) => {
                self.is_idle = true;
                return report.map(|report| *report);
            }
            Ok(Wait::Ended) | Err(_) => {
                self.is_idle = false;
                let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
                ended.expect("a worker failed");
            }
        }
        None
    }

    fn has_ended(&self) -> bool {
        self.thread.is_none()
    }

    fn go(&mut self, go: Go) -> Option<Report> {
        let _ = self.go.send(go);
        self.wait()
    }
}

impl Proxy {
    pub(crate) fn start(seed: u64, faults: Faults) -> Self {
        let clock = Clock { real: Duration::ZERO, wall: START, set_at: None };
        let world = Arc::new(World {
            memory: Memory::default(),
            pools: [pool(&[1, 2, 3, 4]), pool(&[4, 2, 1, 3])],
            reorders: faults.reorders,
            pipeline: Pipeline::default(),
            clock: Mutex::new(clock),
            checks_lease: !faults.stalls,
            routed: Mutex::default(),
        });
        let mut proxy =
            Self { faults, rng: SplitMix64::new(seed), world, places: vec![], turns: 0, busy: (0, 0) };
        // A proxy starts its first worker before all others.
        proxy.add_worker();
        proxy.finish(0);
        (1..WORKERS).for_each(|_| proxy.add_worker());
        proxy
    }

    fn add_worker(&mut self) {
        let place = Place::new(&self.world, self.rng.next_u64());
        self.places.push(place);
    }

    fn replace(&mut self, place: usize) {
        self.places[place] = Place::new(&self.world, self.rng.next_u64());
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.rng.below(bound as usize)).unwrap()
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.rng.below(times) == 0
    }

    /// Lets the workers act, with faults.
    pub(crate) fn run(&mut self) {
        for turn in 0..TURNS {
            self.turns = turn;
            let time = Duration::from_micros(self.below(8_000).into());
            self.pass(time);
            if self.faults.clock_steps && self.one_in(150) {
                self.set_clock();
            }
            let place = self.next_place();
            if self.places[place].stalled_until > turn {
                continue;
            }
            if self.faults.stalls && self.one_in(250) {
                // Two to six seconds.
                self.places[place].stalled_until = turn + 500 + self.below(1_000);
            }
            self.give_turn(place);
        }
    }

    /// The worker whose turn it is. Now and then one of them has most turns for a while, so that its log is
    /// quiet.
    fn next_place(&mut self) -> usize {
        if self.one_in(100) {
            let until = self.turns + self.below(50);
            self.busy = (self.rng.below(WORKERS), until);
        }
        let (busy, until) = self.busy;
        if self.turns < until && !self.one_in(20) { busy } else { self.rng.below(WORKERS) }
    }

    fn give_turn(&mut self, place: usize) {
        let trap = self.faults.traps && self.one_in(80);
        let refusal = self.faults.refusals && self.one_in(10);
        let fault = match (trap, refusal) {
            (true, _) => Some(Fault::Trap),
            (false, true) => Some(Fault::Refusal),
            (false, false) => None,
        };
        let pads = self.faults.overruns;
        let calls = 1 + self.below(3);
        self.places[place].go(Go { order: Order::Act { pads }, calls, fault });
        if self.places[place].has_ended() {
            self.replace(place);
        }
    }

    fn pass(&self, time: Duration) {
        let mut clock = self.world.clock.lock().unwrap();
        clock.real += time;
        clock.wall += time;
    }

    fn set_clock(&mut self) {
        let seconds = [1, 2, 10, 3_600][self.rng.below(4)];
        let step = Duration::from_millis(1 + u64::from(self.below(seconds * 1_000)));
        let is_back = self.one_in(2);
        let mut clock = self.world.clock.lock().unwrap();
        clock.wall = if is_back { clock.wall.saturating_sub(step) } else { clock.wall + step };
        clock.set_at = Some(clock.real);
    }

    /// Has a worker finish its action.
    fn finish(&mut self, place: usize) {
        while !self.places[place].is_idle {
            self.places[place].go(Go { order: Order::GoOn, calls: UNLIMITED, fault: None });
            if self.places[place].has_ended() {
                self.replace(place);
            }
        }
    }

    /// Has all workers follow an order, one after another, without faults.
    fn order(&mut self, order: Order) -> Vec<Report> {
        let go = Go { order, calls: UNLIMITED, fault: None };
        self.places.iter_mut().filter_map(|place| place.go(go)).collect()
    }

    /// Lets time pass without requests and without faults.
    fn tick_for(&mut self, time: Duration) {
        let end = self.world.clock.lock().unwrap().real + time;
        while self.world.clock.lock().unwrap().real < end {
            self.pass(Duration::from_millis(100));
            self.order(Order::Tick);
        }
    }

    /// Requests continue, but nothing happens: all ledgers have to be equal, and true.
    pub(crate) fn rest(&mut self) {
        (0..WORKERS).for_each(|place| self.finish(place));
        // Long enough for a departure and the resync after it.
        self.tick_for(Duration::from_secs(3));
        let reports = self.reports();
        let mut in_flight = vec![Load::default(); 4];
        for own in reports.iter().map(|report| &report.own) {
            in_flight.iter_mut().zip(own).for_each(|(sum, load)| *sum += *load);
        }
        for report in &reports {
            assert_eq!(report.loads, in_flight, "the load of the requests that are in flight");
            if !self.faults.overruns {
                assert_eq!(report.avoided, reports[0].avoided);
                assert_eq!(report.history, reports[0].history);
            }
        }
        self.check_log();
    }

    /// All requests end: nothing is left.
    pub(crate) fn end_all_requests(&mut self) {
        self.order(Order::EndRequests);
        self.tick_for(Duration::from_millis(500));
        for report in self.reports() {
            assert_eq!(report.loads, [Load::default(); 4]);
        }
        self.check_log();
    }

    fn reports(&mut self) -> Vec<Report> {
        let reports = self.order(Order::Report);
        assert_eq!(reports.len(), WORKERS);
        reports
    }

    /// Every request that was routed is in the log once.
    fn check_log(&self) {
        let log = self.world.memory.log();
        let mut times: HashMap<u64, u32> = HashMap::new();
        for entry in entry::read(&log) {
            let entry = entry.expect("only whole entries");
            // A request's mark is alone in its change; the padding repeats it.
            if let Content::Change(Change::State(change)) = entry.content
                && let (0, &[mark]) = (change.plugin, change.words)
            {
                *times.entry(mark).or_default() += 1;
            }
        }
        assert!(times.values().all(|&times| times == 1), "sent twice: {times:?}");
        let routed = self.world.routed.lock().unwrap();
        assert!(routed.len() > 50, "only {} requests", routed.len());
        // The pending entries of a worker that traps are lost.
        let is_in_log = |mark| self.faults.traps || times.contains_key(mark);
        assert!(routed.iter().all(is_in_log), "a request is missing");
    }
}
