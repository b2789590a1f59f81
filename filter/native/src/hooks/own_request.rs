//! Hooks of the requests that the module sends itself, and of the client's connection that gets their
//! responses.

use super::cell::cell;
use super::stream::run;
use crate::abi::types::{Buffer, EnvoyPtr, Header, ModulePtr};
use crate::envoy::stream::Outcome;

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

/// The head of a response to such a request has arrived.
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
    unsafe {
        run(filter, stream, |stream, request| {
            stream.own_response_headers(request, number, headers);
            Outcome::Taken
        })
    };
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
    // SAFETY: the pointer is Envoy's.
    let cell = unsafe { cell(stream) };
    // SAFETY: Envoy gives the chunks for this hook.
    for chunk in unsafe { list(chunks, chunks_count) } {
        // SAFETY: as above; the pointer of the request is Envoy's.
        unsafe {
            cell.run_chunk(filter, chunk.bytes(), |stream, request| {
                stream.own_response_chunk(request, number, chunk.bytes())
            });
        }
    }
}

/// Such a response is complete.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_http_stream_complete(
    filter: EnvoyPtr,
    stream: ModulePtr,
    number: u64,
) {
    // SAFETY: the pointers are Envoy's.
    unsafe {
        run(filter, stream, |stream, request| {
            stream.own_response_end(request, number, false);
            Outcome::Taken
        })
    };
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
    unsafe {
        run(filter, stream, |stream, request| {
            stream.own_response_end(request, number, true);
            Outcome::Taken
        })
    };
}

/// The client's connection takes no more bytes at the moment.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    filter: EnvoyPtr,
    stream: ModulePtr,
) {
    // SAFETY: the pointers are Envoy's.
    unsafe {
        run(filter, stream, |stream, _| {
            stream.client_is_slow(true);
            Outcome::Taken
        })
    };
}

/// The client's connection takes bytes again.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    filter: EnvoyPtr,
    stream: ModulePtr,
) {
    // SAFETY: the pointers are Envoy's.
    unsafe {
        run(filter, stream, |stream, _| {
            stream.client_is_slow(false);
            Outcome::Taken
        })
    };
}
