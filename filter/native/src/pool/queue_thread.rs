//! A thread that ticks the queue in front of a pool while requests wait in it.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::io;
use std::panic::catch_unwind;
use std::thread;

use endpoint_picker_engine::worker_pool::store::PoolStore;

use crate::pool::store::SharedStore;
use crate::process::clock;
use crate::process::thread::Thread;

/// Pause after a panic, which was logged when it happened.
const PAUSE: Duration = Duration::from_millis(20);

/// Starts the thread. It sleeps until a request begins to wait, and then from tick to tick.
pub(crate) fn start(store: SharedStore) -> io::Result<Thread> {
    Thread::start("epp-queue", move |stop| {
        store.pool().set_ticker();
        while !stop.is_stopped() {
            match catch_unwind(AssertUnwindSafe(|| tick(&store))).unwrap_or(Some(PAUSE)) {
                Some(pause) => thread::park_timeout(pause),
                // A request that began to wait after the tick has unparked this thread, and `park` returns at
                // once.
                None => thread::park(),
            }
        }
    })
}

/// Returns the time until the next tick; `None`: nothing waits.
fn tick(store: &SharedStore) -> Option<Duration> {
    let now = clock::now();
    let next = store.with_current_queue(now, |queue| {
        queue.tick(now);
        queue.wake_at()
    });
    next.flatten().map(|at| at.saturating_sub(clock::now()))
}
