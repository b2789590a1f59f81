//! Calls from any thread to the main thread.

use core::ffi::c_void;
use core::ptr::NonNull;

use super::callbacks;
use super::types::EnvoyPtr;

/// Has Envoy call a configuration's scheduled hook on the main thread. It may outlive the configuration; then it does nothing.
#[derive(Debug)]
pub(crate) struct Scheduler(NonNull<c_void>);

// SAFETY: Envoy's scheduler has a weak reference to the configuration and posts to the main thread's dispatcher, which is made for
// calls from any thread.
unsafe impl Send for Scheduler {}
// SAFETY: as above; a commit does not change the scheduler.
unsafe impl Sync for Scheduler {}

impl Scheduler {
    /// # Safety
    /// `config` is Envoy's pointer of the configuration whose hook runs on the main thread.
    pub(super) unsafe fn new(config: EnvoyPtr) -> Option<Self> {
        // SAFETY: as the caller promises.
        NonNull::new(unsafe { callbacks::http_filter_config_scheduler_new(config) }).map(Self)
    }

    /// Has the hook called with this event.
    pub(crate) fn commit(&self, event: u64) {
        // SAFETY: the scheduler is deleted only when this value is dropped.
        unsafe { callbacks::http_filter_config_scheduler_commit(self.0.as_ptr(), event) }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: nothing uses the scheduler after its only owner.
        unsafe { callbacks::http_filter_config_scheduler_delete(self.0.as_ptr()) }
    }
}
