//! Schedulers of requests: events from any thread to the request's worker.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Events after the end of their request, which would crash Envoy if the worker had ended.
static LATE: AtomicUsize = AtomicUsize::new(0);

/// Schedulers that are not deleted.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The events of a request.
#[derive(Debug, Default)]
pub(super) struct Mailbox(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    is_closed: AtomicBool,
    events: Mutex<Vec<u64>>,
}

impl Mailbox {
    pub(super) fn new_scheduler(&self) -> *mut c_void {
        LIVE.fetch_add(1, Ordering::SeqCst);
        Arc::into_raw(Arc::clone(&self.0)).cast_mut().cast()
    }

    pub(super) fn take(&self) -> Vec<u64> {
        core::mem::take(&mut self.0.events.lock().unwrap())
    }

    pub(super) fn has_any(&self) -> bool {
        !self.0.events.lock().unwrap().is_empty()
    }

    /// The request is over.
    pub(super) fn close(&self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
    }
}

pub(super) fn commit(scheduler: *mut c_void, event: u64) {
    // SAFETY: the pointer came from `new_scheduler` and is not deleted.
    let shared = unsafe { &*scheduler.cast::<Shared>() };
    if shared.is_closed.load(Ordering::SeqCst) {
        LATE.fetch_add(1, Ordering::SeqCst);
    }
    shared.events.lock().unwrap().push(event);
}

pub(super) fn delete(scheduler: *mut c_void) {
    // SAFETY: the pointer came from `new_scheduler`, and the module deletes it once.
    drop(unsafe { Arc::from_raw(scheduler.cast::<Shared>().cast_const()) });
    LIVE.fetch_sub(1, Ordering::SeqCst);
}

/// Events that came after the end of their request.
pub(crate) fn late_commits() -> usize {
    LATE.load(Ordering::SeqCst)
}

/// Schedulers that are not deleted.
pub(crate) fn live_schedulers() -> usize {
    LIVE.load(Ordering::SeqCst)
}
