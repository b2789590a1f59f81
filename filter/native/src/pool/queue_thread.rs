//! A thread that ticks the queues in front of all pools while requests wait in them.

use core::panic::AssertUnwindSafe;
use core::time::Duration;
use std::io;
use std::panic::catch_unwind;
use std::sync::{Arc, LazyLock};
use std::thread;

use endpoint_picker_engine::worker_pool::store::PoolStore;

use crate::pool::SharedPool;
use crate::pool::store::SharedStore;
use crate::process::clock;
use crate::process::registry::ProcessRegistry;
use crate::process::subscribers::{Subscribers, Subscription};
use crate::process::thread::Thread;

/// Pause after a panic, which was logged when it happened.
const PAUSE: Duration = Duration::from_millis(20);

/// The thread of the process, while there is a pool.
static TICKER: LazyLock<ProcessRegistry<(), Ticker>> = LazyLock::new(ProcessRegistry::new);

/// The thread, and the pools whose queues it ticks.
#[derive(Debug)]
struct Ticker {
    stores: Arc<Subscribers<SharedStore>>,
    thread: Thread,
}

/// The ticks of one pool's queue, which end with this value.
#[derive(Debug)]
pub(crate) struct QueueTicks {
    /// Ends before the thread does.
    _subscription: Subscription<SharedStore>,
    _ticker: Arc<Ticker>,
}

impl QueueTicks {
    /// Has the queue of this pool ticked from now on.
    pub(crate) fn start(pool: &Arc<SharedPool>) -> io::Result<Self> {
        let ticker = TICKER.get_or_make((), Ticker::start)?;
        let subscription = ticker.stores.add(SharedStore::new(pool));
        pool.set_ticker(ticker.thread.handle());
        Ok(Self { _subscription: subscription, _ticker: ticker })
    }
}

impl Ticker {
    /// Starts the thread. It sleeps until a request begins to wait, and then from tick to tick.
    fn start() -> io::Result<Self> {
        let stores = Arc::<Subscribers<SharedStore>>::default();
        let ticked = Arc::clone(&stores);
        let thread = Thread::start("epp-queue", move |stop| {
            while !stop.is_stopped() {
                match tick_all(&ticked) {
                    Some(pause) => thread::park_timeout(pause),
                    // A request that began to wait after the tick has unparked this thread, and `park`
                    // returns at once.
                    None => thread::park(),
                }
            }
        })?;
        Ok(Self { stores, thread })
    }
}

/// Returns the time until the next tick; `None`: nothing waits.
fn tick_all(stores: &Arc<Subscribers<SharedStore>>) -> Option<Duration> {
    let mut next: Option<Duration> = None;
    stores.for_each(|store| {
        let pause = catch_unwind(AssertUnwindSafe(|| tick(store))).unwrap_or(Some(PAUSE));
        next = next.into_iter().chain(pause).min();
    });
    next
}

/// As [`tick_all`], of one pool.
fn tick(store: &SharedStore) -> Option<Duration> {
    let now = clock::now();
    let next = store.with_current_queue(now, |queue| {
        queue.tick(now);
        queue.wake_at()
    });
    next.flatten().map(|at| at.saturating_sub(clock::now()))
}
