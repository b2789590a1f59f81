//! Envoy's functions that 1.38 or 1.39 lack. They are looked up at their first use, so that the module loads
//! without them: the linker binds all others when it loads the module.

use core::ffi::{CStr, c_void};
use core::mem;
use core::ptr::NonNull;
use std::sync::OnceLock;

use super::types::{Buffer, EnvoyPtr};

/// Changes a metric outside of requests: configuration, metric, values of its labels and their number,
/// amount. 0 is success.
pub(super) type ChangeMetric = unsafe extern "C" fn(EnvoyPtr, usize, *const Buffer, usize, u64) -> u32;

/// Merges an encoded `google.protobuf.Struct` into a namespace of the request's dynamic metadata.
pub(super) type SetMetadataStruct = unsafe extern "C" fn(EnvoyPtr, Buffer, Buffer);

/// Reads a value of the request's filter state for its balancer; false if there is none.
pub(super) type ReadFilterState = unsafe extern "C" fn(EnvoyPtr, Buffer, *mut Buffer) -> bool;

fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name ends with a zero byte; `RTLD_DEFAULT` searches the executable and its libraries.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

macro_rules! late {
    ($($(#[$doc:meta])* fn $name:ident: $type:ty;)*) => {
        $(
            $(#[$doc])*
            pub(super) fn $name() -> Option<$type> {
                static FOUND: OnceLock<Option<$type>> = OnceLock::new();
                const NAME: &str = concat!("envoy_dynamic_module_callback_", stringify!($name), "\0");
                *FOUND.get_or_init(|| {
                    let found = symbol(CStr::from_bytes_with_nul(NAME.as_bytes()).ok()?)?;
                    // SAFETY: Envoy exports the function under this name with these arguments since the
                    // version below.
                    Some(unsafe { mem::transmute::<NonNull<c_void>, $type>(found) })
                })
            }
        )*
    };
}

late! {
    /// Adds to a counter. Since 1.39.
    fn http_filter_config_increment_counter: ChangeMetric;
    /// Sets a gauge. Since 1.39.
    fn http_filter_config_set_gauge: ChangeMetric;
    /// Adds a value to a histogram. Since 1.39.
    fn http_filter_config_record_histogram_value: ChangeMetric;
    /// Reads filter state in a balancer. Since 1.39.
    fn cluster_lb_context_get_filter_state_bytes: ReadFilterState;
    /// Merges a structure into dynamic metadata. Since 1.40.
    fn http_set_dynamic_metadata_struct: SetMetadataStruct;
}
