//! The functions that Envoy calls.
//!
//! Each catches panics: an unwinding `extern "C"` function would end Envoy with all of its connections. Envoy calls the hooks of one
//! request on one worker, one after another; but inside [`send_response`](super::RequestHandle::send_response) it calls further hooks of the same
//! request, so a hook sends its answer last, when nothing borrows the request's state.

mod cluster;
mod filter_config;
mod stream;
mod unused;

use core::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::log;

/// The version of the interface that this module is written for: the one of Envoy 1.40. Another Envoy warns and loads it all the same.
const VERSION: &CStr = c"v0.2.0";

/// Called when Envoy has loaded the library.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    log::install();
    VERSION.as_ptr()
}

/// The result of a hook's body; `None` if it panicked. The panic has been logged.
fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    // What a panic leaves behind is either dropped or used by code that expects any state.
    catch_unwind(AssertUnwindSafe(body)).ok()
}
