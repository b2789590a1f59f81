//! Hooks of the requests of the filter that resumes streams.

use std::cell::{Cell, RefCell};

use super::caught;
use super::stream::{RequestCell, cell};
use crate::abi::request::RequestHandle;
use crate::abi::types::{Buffer, EnvoyPtr, Header, ModulePtr};
use crate::envoy::resumer::{Action, Hold, ResumedStream};

/// A request of this filter.
pub(super) struct ResumerCell {
    stream: RefCell<ResumedStream>,
    is_destroyed: Cell<bool>,
}

impl ResumerCell {
    pub(super) fn new(stream: ResumedStream) -> Self {
        Self { stream: RefCell::new(stream), is_destroyed: Cell::new(false) }
    }

    /// Envoy has destroyed the request: its pointer is not used any more.
    pub(super) fn destroy(&self) {
        self.is_destroyed.set(true);
    }

    /// Runs a hook's body, and after that the actions that it has left.
    ///
    /// # Safety
    /// `filter` is the pointer that Envoy gave to the hook of this request.
    pub(super) unsafe fn run(
        &self,
        filter: EnvoyPtr,
        body: impl FnOnce(&mut ResumedStream, &mut RequestHandle<'_>) -> Hold,
    ) -> Hold {
        let hold = match self.stream.try_borrow_mut() {
            Ok(mut stream) => {
                // SAFETY: as the caller promises.
                let mut request = unsafe { RequestHandle::new(filter) };
                caught(|| body(&mut stream, &mut request)).unwrap_or_else(|| stream.fail())
            }
            Err(_) => Hold::Pass,
        };
        // SAFETY: as the caller promises.
        unsafe { self.act(filter) };
        hold
    }

    /// Nothing borrows the request's state during an action, because Envoy calls further hooks of the request inside some.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn act(&self, filter: EnvoyPtr) {
        while !self.is_destroyed.get()
            && let Some(action) = self.next()
        {
            // SAFETY: as the caller promises; the request is not destroyed.
            let mut request = unsafe { RequestHandle::new(filter) };
            match action {
                Action::Call { cluster, head, body } => {
                    let number = request.start_call(&cluster, &head, &body);
                    if let Ok(mut stream) = self.stream.try_borrow_mut() {
                        stream.called(number);
                    }
                }
                Action::Head(head) => request.send_head(&head),
                Action::Chunk { bytes, is_last } => request.send_chunk(&bytes, is_last),
                Action::Reply(reply) => request.send_response(&reply),
                Action::Reset(details) => request.reset(details),
            }
        }
    }

    fn next(&self) -> Option<Action> {
        self.stream.try_borrow_mut().ok()?.next_action()
    }
}

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
