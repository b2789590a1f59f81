//! The module's hooks of requests.

use core::ffi::c_void;

use super::{Buffer, Header};

unsafe extern "C" {
    pub(super) fn envoy_dynamic_module_on_http_filter_new(
        config: *const c_void,
        envoy: *mut c_void,
    ) -> *const c_void;
    pub(super) fn envoy_dynamic_module_on_http_filter_destroy(stream: *const c_void);
    pub(super) fn envoy_dynamic_module_on_http_filter_request_headers(
        envoy: *mut c_void,
        stream: *const c_void,
        end: bool,
    ) -> u32;
    pub(super) fn envoy_dynamic_module_on_http_filter_request_body(
        envoy: *mut c_void,
        stream: *const c_void,
        end: bool,
    ) -> u32;
    pub(super) fn envoy_dynamic_module_on_http_filter_request_trailers(
        envoy: *mut c_void,
        stream: *const c_void,
    ) -> u32;
    pub(super) fn envoy_dynamic_module_on_http_filter_scheduled(
        envoy: *mut c_void,
        stream: *const c_void,
        event: u64,
    );
    pub(super) fn envoy_dynamic_module_on_http_filter_response_headers(
        envoy: *mut c_void,
        stream: *const c_void,
        end: bool,
    ) -> u32;
    pub(super) fn envoy_dynamic_module_on_http_filter_response_body(
        envoy: *mut c_void,
        stream: *const c_void,
        end: bool,
    ) -> u32;
    pub(super) fn envoy_dynamic_module_on_http_filter_response_trailers(
        envoy: *mut c_void,
        stream: *const c_void,
    ) -> u32;
    pub(super) fn envoy_dynamic_module_on_http_filter_local_reply(
        envoy: *mut c_void,
        stream: *const c_void,
        status: u32,
        details: Buffer,
        reset_imminent: bool,
    ) -> u32;
    pub(super) fn envoy_dynamic_module_on_http_filter_http_stream_headers(
        envoy: *mut c_void,
        stream: *const c_void,
        number: u64,
        headers: *const Header,
        headers_count: usize,
        end: bool,
    );
    pub(super) fn envoy_dynamic_module_on_http_filter_http_stream_data(
        envoy: *mut c_void,
        stream: *const c_void,
        number: u64,
        chunks: *const Buffer,
        chunks_count: usize,
        end: bool,
    );
    pub(super) fn envoy_dynamic_module_on_http_filter_http_stream_complete(
        envoy: *mut c_void,
        stream: *const c_void,
        number: u64,
    );
    pub(super) fn envoy_dynamic_module_on_http_filter_http_stream_reset(
        envoy: *mut c_void,
        stream: *const c_void,
        number: u64,
        reason: u32,
    );
    pub(super) fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
        envoy: *mut c_void,
        stream: *const c_void,
    );
}
