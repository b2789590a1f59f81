//! Envoy's C interface for dynamic modules, bound by hand. The only module with `unsafe`.

#![expect(unsafe_code, reason = "Envoy's interface is C")]

use core::ffi::{CStr, c_char};

/// The version of the interface that this module is written for: the one of Envoy 1.40. Another Envoy warns and loads it all the same.
const VERSION: &CStr = c"v0.2.0";

/// Called once, when Envoy has loaded the library.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    VERSION.as_ptr()
}
