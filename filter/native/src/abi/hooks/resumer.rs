//! Hooks of the requests of the filter that resumes streams.

use super::cell::{RequestCell, cell};
use crate::abi::request::RequestHandle;
use crate::abi::types::{Buffer, EnvoyPtr, Header, ModulePtr};
use crate::envoy::resumer::{Hold, ResumedStream};

/// Runs a hook's body for a request of this filter.
///
/// # Safety
/// The pointers are those that Envoy gave to the hook.
unsafe fn run(
    filter: EnvoyPtr,
    stream: ModulePtr,
    body: impl FnOnce(&mut ResumedStream, &mut RequestHandle<'_>),
) {
    // SAFETY: as the caller promises.
    let cell = unsafe { cell(stream) };
    if let RequestCell::Resumer(resumer) = &*cell {
        // SAFETY: as the caller promises.
        unsafe {
            resumer.run(filter, |stream, request| {
                body(stream, request);
                Hold::Taken
            });
        }
    }
}

/// The values that Envoy gives to a hook.
///
/// # Safety
/// Envoy gives `count` values at `first` for the hook.
unsafe fn list<'hook, T>(first: *const T, count: usize) -> &'hook [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts(first, count) }
}

/// The head of a response to a request of the module has arrived.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_headers(
    filter: EnvoyPtr,
    stream: ModulePtr,
    number: u64,
    headers: *const Header,
    headers_count: usize,
    _end_of_stream: bool,
) {
    // SAFETY: Envoy gives the headers for this hook.
    let headers = unsafe { list(headers, headers_count) }.iter().map(|header| unsafe { header.bytes() });
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, _| stream.response_head(number, headers)) }
}

/// A chunk of such a response has arrived.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_data(
    filter: EnvoyPtr,
    stream: ModulePtr,
    number: u64,
    chunks: *const Buffer,
    chunks_count: usize,
    _end_of_stream: bool,
) {
    // SAFETY: Envoy gives the chunks for this hook.
    let chunks = unsafe { list(chunks, chunks_count) }.iter().map(|chunk| unsafe { chunk.bytes() });
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, _| chunks.for_each(|chunk| stream.response_chunk(number, chunk))) }
}

/// Such a response is complete.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(
    filter: EnvoyPtr,
    stream: ModulePtr,
    number: u64,
) {
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, request| stream.response_end(request, number, false)) }
}

/// Such a response was reset.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_reset(
    filter: EnvoyPtr,
    stream: ModulePtr,
    number: u64,
    _reason: u32,
) {
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, request| stream.response_end(request, number, true)) }
}

/// The client's connection takes no more bytes at the moment.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    filter: EnvoyPtr,
    stream: ModulePtr,
) {
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, _| stream.client_is_slow(true)) }
}

/// The client's connection takes bytes again.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    filter: EnvoyPtr,
    stream: ModulePtr,
) {
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, _| stream.client_is_slow(false)) }
}
