//! One thread at a time: workers wait for the scheduler before every call of shared data.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender};

use crate::memory::{Gate, Refused};

/// A permission of the scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Go {
    /// The action to begin, for an idle worker.
    pub(crate) order: Order,
    /// The number of calls of shared data until the worker waits again.
    pub(crate) calls: u32,
    /// The fault of its next call.
    pub(crate) fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Go on with the action.
    GoOn,
    /// Something that a worker does with a request, or a tick; `pads` fills the log.
    Act { pads: bool },
    /// Keep up with the others.
    Tick,
    /// End all own requests.
    EndRequests,
    /// Report the ledger and the own requests.
    Report,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The worker ends in the middle of its action.
    Trap,
    /// The call is refused.
    Refusal,
}

/// Why a worker's thread unwinds.
pub(crate) enum End {
    Trapped,
    /// The scheduler is gone.
    Stopped,
}

/// A worker's side of the scheduler. `T` is the report of an idle worker.
pub(crate) struct Turn<T> {
    go: Receiver<Go>,
    waits: Sender<Wait<T>>,
    calls: Cell<u32>,
    fault: Cell<Option<Fault>>,
}

/// Why a worker waits.
pub(crate) enum Wait<T> {
    /// It is about to call shared data.
    AtCall,
    /// It has nothing to do; with its report, if that was the order.
    Idle(Option<Box<T>>),
    /// Its thread has ended.
    Ended,
}

impl<T> Turn<T> {
    pub(crate) fn new(go: Receiver<Go>, waits: Sender<Wait<T>>) -> Self {
        Self { go, waits, calls: Cell::new(0), fault: Cell::new(None) }
    }

    /// Waits with nothing to do, for an order.
    pub(crate) fn idle(&self, report: Option<Box<T>>) -> Order {
        self.wait(Wait::Idle(report))
    }

    fn wait(&self, reason: Wait<T>) -> Order {
        let go = self.waits.send(reason).ok().and_then(|()| self.go.recv().ok());
        let Some(Go { order, calls, fault }) = go else { resume_unwind(Box::new(End::Stopped)) };
        self.calls.set(calls);
        self.fault.set(fault);
        order
    }
}

impl<T> Gate for &Turn<T> {
    fn before(&self, _: &str, _: &str) -> Result<(), Refused> {
        if self.calls.get() == 0 {
            self.wait(Wait::AtCall);
        }
        self.calls.set(self.calls.get().saturating_sub(1));
        match self.fault.take() {
            None => Ok(()),
            Some(Fault::Refusal) => Err(Refused),
            Some(Fault::Trap) => resume_unwind(Box::new(End::Trapped)),
        }
    }
}
