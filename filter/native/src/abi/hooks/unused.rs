//! Hooks that Envoy requires and this module has no use for. It makes no HTTP calls through Envoy, so none of their events comes.

use crate::abi::types::{Buffer, EnvoyPtr, Header, ModulePtr};

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
    fn envoy_dynamic_module_on_http_filter_http_stream_headers(EnvoyPtr, ModulePtr, u64, *const Header, usize, bool);
    fn envoy_dynamic_module_on_http_filter_http_stream_data(EnvoyPtr, ModulePtr, u64, *const Buffer, usize, bool);
    fn envoy_dynamic_module_on_http_filter_http_stream_trailers(EnvoyPtr, ModulePtr, u64, *const Header, usize);
    fn envoy_dynamic_module_on_http_filter_http_stream_complete(EnvoyPtr, ModulePtr, u64);
    fn envoy_dynamic_module_on_http_filter_http_stream_reset(EnvoyPtr, ModulePtr, u64, u32);
    fn envoy_dynamic_module_on_http_filter_config_http_callout_done(EnvoyPtr, ModulePtr, u64, u32, *const Header, usize, *const Buffer, usize);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_headers(EnvoyPtr, ModulePtr, u64, *const Header, usize, bool);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_data(EnvoyPtr, ModulePtr, u64, *const Buffer, usize, bool);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_trailers(EnvoyPtr, ModulePtr, u64, *const Header, usize);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_complete(EnvoyPtr, ModulePtr, u64);
    fn envoy_dynamic_module_on_http_filter_config_http_stream_reset(EnvoyPtr, ModulePtr, u64, u32);
    fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(EnvoyPtr, ModulePtr);
    fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(EnvoyPtr, ModulePtr);
}
