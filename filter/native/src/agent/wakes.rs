//! Wakes of filter configurations, which write the metrics of all pools into Envoy. A configuration may have
//! no pool of its own, so the threads of any pool wake all of them.

use core::time::Duration;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use parking_lot::Mutex;

use crate::process::subscribers::{Subscribers, Subscription};

/// Has Envoy's main thread call a filter configuration's scheduled hook soon. It is called from threads of
/// the module.
pub type Wake = Box<dyn Fn() + Send>;

/// Time between two wakes.
const SECOND: Duration = Duration::from_secs(1);

/// The filter configurations of the process.
static WAKES: LazyLock<Arc<Subscribers<Wake>>> = LazyLock::new(Arc::default);

/// The last wake.
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// A filter configuration's wakes, which end with this value.
#[derive(Debug)]
pub struct WakeSubscription {
    _subscription: Subscription<Wake>,
}

/// Has a function called once a second while the process has a pool.
pub fn subscribe(wake: Wake) -> WakeSubscription {
    WakeSubscription { _subscription: WAKES.add(wake) }
}

/// Wakes all filter configurations if a second has passed since the last wake of the process.
pub(super) fn wake_if_due() {
    let is_due = {
        let mut last = LAST.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= SECOND);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    };
    if is_due {
        WAKES.for_each(|wake| wake());
    }
}
