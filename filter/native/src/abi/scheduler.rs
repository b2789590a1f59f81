//! Calls from any thread to the thread of a hook.

use core::ffi::c_void;
use core::ptr::NonNull;

use super::callbacks;
use super::types::EnvoyPtr;

/// Has Envoy call the scheduled hook of its owner: a filter configuration or a cluster on the main thread, a
/// request on its worker. It may outlive its owner, but not that thread; without its owner it does nothing.
#[derive(Debug)]
pub(crate) struct Scheduler {
    scheduler: NonNull<c_void>,
    kind: Kind,
}

/// The owner of a scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    FilterConfig,
    Cluster,
    Request,
}

// SAFETY: Envoy's scheduler has a weak reference to its owner and posts to the dispatcher of its thread,
// which is made for calls from any thread.
unsafe impl Send for Scheduler {}
// SAFETY: as above; a commit does not change the scheduler.
unsafe impl Sync for Scheduler {}

impl Scheduler {
    /// # Safety
    /// `owner` is Envoy's pointer of the object of this kind whose hook runs, and the scheduler of a request
    /// is not used any more when the request is destroyed: its worker may end then.
    pub(super) unsafe fn new(kind: Kind, owner: EnvoyPtr) -> Option<Self> {
        // SAFETY: as the caller promises.
        let scheduler = unsafe {
            match kind {
                Kind::FilterConfig => callbacks::http_filter_config_scheduler_new(owner),
                Kind::Cluster => callbacks::cluster_scheduler_new(owner),
                Kind::Request => callbacks::http_filter_scheduler_new(owner),
            }
        };
        Some(Self { scheduler: NonNull::new(scheduler)?, kind })
    }

    /// Has the hook called with this event.
    pub(crate) fn commit(&self, event: u64) {
        let scheduler = self.scheduler.as_ptr();
        // SAFETY: the scheduler is deleted only when this value is dropped.
        unsafe {
            match self.kind {
                Kind::FilterConfig => callbacks::http_filter_config_scheduler_commit(scheduler, event),
                Kind::Cluster => callbacks::cluster_scheduler_commit(scheduler, event),
                Kind::Request => callbacks::http_filter_scheduler_commit(scheduler, event),
            }
        }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let scheduler = self.scheduler.as_ptr();
        // SAFETY: nothing uses the scheduler after its only owner.
        unsafe {
            match self.kind {
                Kind::FilterConfig => callbacks::http_filter_config_scheduler_delete(scheduler),
                Kind::Cluster => callbacks::cluster_scheduler_delete(scheduler),
                Kind::Request => callbacks::http_filter_scheduler_delete(scheduler),
            }
        }
    }
}
