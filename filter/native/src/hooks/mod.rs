//! The functions that Envoy calls.
//!
//! Each catches panics: an unwinding `extern "C"` function would end Envoy with all of its connections. Envoy
//! calls the hooks of one request on one worker, one after another; but inside
//! [`send_response`](crate::abi::RequestHandle::send_response) it calls further hooks of the same request, so
//! a hook sends its response last, when nothing borrows the request's state.

#![expect(unsafe_code, reason = "Envoy's interface is C")]

mod cell;
mod cluster;
mod filter_config;
mod own_request;
mod stream;

use core::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::log;
use crate::abi::types::{Buffer, EnvoyPtr, Header, ModulePtr};

/// The version of the interface that this module is written for: the one of Envoy 1.40. Another Envoy warns
/// and loads it all the same.
const VERSION: &CStr = c"v0.2.0";

/// Called when Envoy has loaded the library.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    log::install();
    VERSION.as_ptr()
}

/// The result of a hook's body; `None` if it panicked. The panic has been logged.
fn caught<T>(body: impl FnOnce() -> T) -> Option<T> {
    // State that a panic leaves behind is either dropped or used only by code that accepts any state.
    catch_unwind(AssertUnwindSafe(body)).ok()
}

// Hooks that Envoy requires and this module has no use for. Its only calls through Envoy are streams of
// requests.
macro_rules! unused {
    ($(fn $name:ident($($type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($(_: $type),*) {}
        )*
    };
}

unused! {
    fn envoy_dynamic_module_on_http_filter_stream_complete(EnvoyPtr, ModulePtr);
    fn envoy_dynamic_module_on_http_filter_http_callout_done(EnvoyPtr, ModulePtr, u64, u32, *const Header, usize, *const Buffer, usize);
    fn envoy_dynamic_module_on_http_filter_http_stream_trailers(EnvoyPtr, ModulePtr, u64, *const Header, usize);
    fn envoy_dynamic_module_on_http_filter_config_http_callout_done(EnvoyPtr, ModulePtr, u64, u32, *const Header, usize, *const Buffer, usize);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_headers(EnvoyPtr, ModulePtr, u64, *const Header, usize, bool);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_data(EnvoyPtr, ModulePtr, u64, *const Buffer, usize, bool);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_trailers(EnvoyPtr, ModulePtr, u64, *const Header, usize);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_complete(EnvoyPtr, ModulePtr, u64);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_reset(EnvoyPtr, ModulePtr, u64, u32);
}
