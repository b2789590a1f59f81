//! One request during one hook.

use core::ffi::c_void;
use core::marker::PhantomData;

use super::scheduler::{Kind, Scheduler};
use super::types::{Buffer, EnvoyPtr, Header, ModulePtr};
use super::{callbacks, late};

/// The source of metadata that filters write.
const DYNAMIC: u32 = 0;

/// A map of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HeaderMap {
    /// The request's headers.
    Request = 0,
    /// The response's headers.
    Response = 2,
    /// The response's trailers.
    ResponseTrailers = 3,
}

/// A part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BodyPart {
    /// The chunk of the request that the current hook brings.
    ReceivedRequest = 0,
    /// The chunks of the request that Envoy holds.
    BufferedRequest = 1,
    /// The chunk of the response that the current hook brings.
    ReceivedResponse = 2,
}

/// An attribute of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Attribute {
    /// `via_upstream`, or the reason of Envoy's own response.
    ResponseCodeDetails = 16,
    /// The `ip:port` of the server that was tried last.
    UpstreamAddress = 41,
}

/// A response of the module in place of a server's.
#[derive(Debug)]
pub(crate) struct LocalReply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The value of `%RESPONSE_CODE_DETAILS%` in the access log.
    pub(crate) details: &'static str,
}

/// One request during one hook. Bytes of Envoy borrow the handle, and every call that may free them needs it
/// mutably.
///
/// ```
/// use endpoint_picker_native::{BodyPart, HeaderMap, RequestHandle};
///
/// fn length(request: &mut RequestHandle<'_>) -> usize {
///     let mut length = 0;
///     request.for_each_piece(BodyPart::ReceivedRequest, |chunk| length += chunk.len());
///     request.set_header(HeaderMap::Request, "content-length", Some("0"));
///     length
/// }
/// ```
///
/// A buffer that is used after the change does not compile:
///
/// ```compile_fail,E0502
/// use endpoint_picker_native::{BodyPart, HeaderMap, RequestHandle};
///
/// fn length(request: &mut RequestHandle<'_>) -> usize {
///     let mut last = &[][..];
///     request.for_each_piece(BodyPart::ReceivedRequest, |chunk| last = chunk);
///     request.set_header(HeaderMap::Request, "content-length", Some("0"));
///     last.len()
/// }
/// ```
///
/// Nor does one that outlives the hook:
///
/// ```compile_fail
/// use endpoint_picker_native::{BodyPart, RequestHandle};
///
/// fn keep(request: &RequestHandle<'_>) -> &'static [u8] {
///     let mut last = &[][..];
///     request.for_each_piece(BodyPart::ReceivedRequest, |chunk| last = chunk);
///     last
/// }
/// ```
#[derive(Debug)]
pub struct RequestHandle<'hook> {
    filter: EnvoyPtr,
    hook: PhantomData<&'hook mut c_void>,
}

impl LocalReply {
    /// The response when a hook fails, and its recovery too.
    pub(crate) fn defect() -> Self {
        Self { status: 503, headers: Vec::new(), body: Vec::new(), details: "endpoint_picker_defect" }
    }
}

impl RequestHandle<'_> {
    /// # Safety
    /// `filter` is the pointer that Envoy gave to the hook, and the handle is dropped before the hook ends.
    pub(crate) unsafe fn new(filter: EnvoyPtr) -> Self {
        Self { filter, hook: PhantomData }
    }

    /// Calls `each` with the name and the value of every header, in their order.
    pub fn for_each_header(&self, map: HeaderMap, mut each: impl FnMut(&[u8], &[u8])) {
        /// Few requests have more headers; the others take an allocation.
        const USUAL: usize = 48;
        let mut usual = [Header::NULL; USUAL];
        let mut many;
        // SAFETY: the pointer is valid during the hook.
        let count = unsafe { callbacks::http_get_headers_size(self.filter, map as u32) };
        let headers = if let Some(headers) = usual.get_mut(..count) {
            headers
        } else {
            many = vec![Header::NULL; count];
            many.as_mut_slice()
        };
        // SAFETY: there is room for `count` headers, and nothing has changed them since they were counted.
        if !unsafe { callbacks::http_get_headers(self.filter, map as u32, headers.as_mut_ptr()) } {
            return;
        }
        for header in headers {
            // SAFETY: the bytes live until the request is changed, and `each` cannot change it: this method
            // borrows the handle.
            let (name, value) = unsafe { header.bytes() };
            each(name, value);
        }
    }

    /// Sets a header and removes its old values; `None` only removes them. False if Envoy refuses.
    pub fn set_header(&mut self, map: HeaderMap, name: &str, value: Option<&str>) -> bool {
        let value = value.map_or(Buffer::NULL, |value| Buffer::of(value.as_bytes()));
        // SAFETY: the pointer is valid during the hook, the buffers during the call.
        unsafe { callbacks::http_set_header(self.filter, map as u32, Buffer::of(name.as_bytes()), value) }
    }

    /// Adds a header after those of its name. False if Envoy refuses.
    pub fn add_header(&mut self, map: HeaderMap, name: &str, value: &[u8]) -> bool {
        let (name, value) = (Buffer::of(name.as_bytes()), Buffer::of(value));
        // SAFETY: the pointer is valid during the hook, the buffers during the call.
        unsafe { callbacks::http_add_header(self.filter, map as u32, name, value) }
    }

    /// Bytes of a part of the body.
    pub fn body_size(&self, part: BodyPart) -> usize {
        // SAFETY: the pointer is valid during the hook.
        unsafe { callbacks::http_get_body_size(self.filter, part as u32) }
    }

    /// Calls `each` with every chunk of a part of the body, in their order.
    pub fn for_each_piece<'a>(&'a self, part: BodyPart, mut each: impl FnMut(&'a [u8])) {
        /// Few bodies have more chunks; the others take an allocation.
        const USUAL: usize = 16;
        let mut usual = [Buffer::NULL; USUAL];
        let mut many;
        // SAFETY: the pointer is valid during the hook.
        let count = unsafe { callbacks::http_get_body_chunks_size(self.filter, part as u32) };
        let pieces = if let Some(pieces) = usual.get_mut(..count) {
            pieces
        } else {
            many = vec![Buffer::NULL; count];
            many.as_mut_slice()
        };
        // SAFETY: there is room for `count` chunks, and nothing has changed them since they were counted.
        if count == 0
            || !unsafe { callbacks::http_get_body_chunks(self.filter, part as u32, pieces.as_mut_ptr()) }
        {
            return;
        }
        for piece in pieces {
            // SAFETY: the bytes live until the request is changed, and each chunk borrows the handle.
            each(unsafe { piece.bytes() });
        }
    }

    /// Whether the received part is the buffered one too, because an earlier filter has held the body.
    pub fn received_is_buffered(&self) -> bool {
        // SAFETY: the pointer is valid during the hook.
        unsafe { callbacks::http_received_buffered_request_body(self.filter) }
    }

    /// Replaces a part of the body. False if Envoy refuses.
    pub fn replace_body(&mut self, part: BodyPart, bytes: &[u8]) -> bool {
        // SAFETY: the pointer is valid during the hook.
        unsafe { callbacks::http_drain_body(self.filter, part as u32, usize::MAX) };
        // SAFETY: the pointer is valid during the hook, the buffer during the call.
        bytes.is_empty()
            || unsafe { callbacks::http_append_body(self.filter, part as u32, Buffer::of(bytes)) }
    }

    /// Lets Envoy buffer at least this many bytes for the stream.
    pub fn raise_buffer_limit(&mut self, bytes: u64) {
        // SAFETY: the pointer is valid during the hook.
        let limit = unsafe { callbacks::http_get_buffer_limit(self.filter) };
        // 0 means that there is no limit.
        if limit != 0 && limit < bytes {
            // SAFETY: the pointer is valid during the hook.
            unsafe { callbacks::http_set_buffer_limit(self.filter, bytes) }
        }
    }

    /// Sends a response to the client. Envoy may call other hooks of the request inside this call, so nothing
    /// may borrow its state.
    pub(crate) fn send_response(self, reply: &LocalReply) {
        let headers: Vec<Header> =
            reply.headers.iter().map(|(name, value)| Header::of(name, value)).collect();
        // SAFETY: the pointer is valid until the call, which consumes the handle; the buffers are during it.
        unsafe {
            callbacks::http_send_response(
                self.filter,
                reply.status.into(),
                headers.as_ptr(),
                headers.len(),
                Buffer::of(&reply.body),
                Buffer::of(reply.details.as_bytes()),
            );
        }
    }

    /// The way back to this request from any thread.
    pub(crate) fn scheduler(&self) -> Option<Scheduler> {
        // SAFETY: the pointer is valid during the hook. The queue drops what holds the scheduler when the
        // request leaves it, which a stream does before it is destroyed.
        unsafe { Scheduler::new(Kind::Request, self.filter) }
    }

    /// Continues the request, which the module has held. Envoy may call other hooks of the request inside
    /// this call, so nothing may borrow its state.
    pub(crate) fn continue_decoding(self) {
        // SAFETY: the pointer is valid until the call, which consumes the handle.
        unsafe { callbacks::http_filter_continue_decoding(self.filter) }
    }

    /// The keys of a namespace of dynamic metadata; none if it does not exist.
    pub fn metadata_keys(&self, namespace: &str) -> Vec<&[u8]> {
        let namespace = Buffer::of(namespace.as_bytes());
        // SAFETY: the pointer is valid during the hook, the buffer during the call.
        let count = unsafe { callbacks::http_get_metadata_keys_count(self.filter, DYNAMIC, namespace) };
        let mut keys = vec![Buffer::NULL; count];
        // SAFETY: there is room for `count` keys, and nothing has changed them since they were counted.
        let is_read = count > 0
            && unsafe {
                callbacks::http_get_metadata_keys(self.filter, DYNAMIC, namespace, keys.as_mut_ptr())
            };
        keys.truncate(if is_read { count } else { 0 });
        // SAFETY: the bytes live until metadata is changed, and the result borrows the handle.
        keys.into_iter().map(|key| unsafe { key.bytes() }).collect()
    }

    /// The items of a list in dynamic metadata; `None` if the value is not a list, or an item is not a text.
    pub fn metadata_list(&self, namespace: &str, key: &str) -> Option<Vec<&[u8]>> {
        let (namespace, key) = (Buffer::of(namespace.as_bytes()), Buffer::of(key.as_bytes()));
        let mut size = 0;
        // SAFETY: the pointer is valid during the hook, the buffers and the result's place during the call.
        let is_list = unsafe {
            callbacks::http_get_metadata_list_size(self.filter, DYNAMIC, namespace, key, &raw mut size)
        };
        let item = |index| {
            let mut item = Buffer::NULL;
            // SAFETY: as above.
            let is_text = unsafe {
                callbacks::http_get_metadata_list_string(
                    self.filter,
                    DYNAMIC,
                    namespace,
                    key,
                    index,
                    &raw mut item,
                )
            };
            // SAFETY: the bytes live until metadata is changed, and the result borrows the handle.
            is_text.then(|| unsafe { item.bytes() })
        };
        if is_list { (0..size).map(item).collect() } else { None }
    }

    /// A text in dynamic metadata. Envoy logs an error if the value is of another type.
    pub fn metadata_text(&self, namespace: &str, key: &str) -> Option<&[u8]> {
        let mut value = Buffer::NULL;
        // SAFETY: the pointer is valid during the hook, the buffers and the result's place during the call.
        let is_text = unsafe {
            callbacks::http_get_metadata_string(
                self.filter,
                DYNAMIC,
                Buffer::of(namespace.as_bytes()),
                Buffer::of(key.as_bytes()),
                &raw mut value,
            )
        };
        // SAFETY: the bytes live until metadata is changed, and the result borrows the handle.
        is_text.then(|| unsafe { value.bytes() })
    }

    /// Sets a text in dynamic metadata.
    pub fn set_metadata_text(&mut self, namespace: &str, key: &str, value: &str) {
        // SAFETY: the pointer is valid during the hook, the buffers during the call.
        unsafe {
            callbacks::http_set_dynamic_metadata_string(
                self.filter,
                Buffer::of(namespace.as_bytes()),
                Buffer::of(key.as_bytes()),
                Buffer::of(value.as_bytes()),
            );
        }
    }

    /// Sets a number in dynamic metadata.
    pub fn set_metadata_number(&mut self, namespace: &str, key: &str, value: f64) {
        // SAFETY: the pointer is valid during the hook, the buffers during the call.
        unsafe {
            callbacks::http_set_dynamic_metadata_number(
                self.filter,
                Buffer::of(namespace.as_bytes()),
                Buffer::of(key.as_bytes()),
                value,
            );
        }
    }

    /// Merges an encoded `google.protobuf.Struct` into dynamic metadata. False before Envoy 1.40, which
    /// cannot.
    pub fn merge_metadata(&mut self, namespace: &str, encoded: &[u8]) -> bool {
        let Some(set_struct) = late::http_set_dynamic_metadata_struct() else { return false };
        // SAFETY: the pointer is valid during the hook, the buffers during the call.
        unsafe { set_struct(self.filter, Buffer::of(namespace.as_bytes()), Buffer::of(encoded)) };
        true
    }

    /// A value that filters of this request share, and clients cannot set.
    pub fn filter_state(&self, key: &str) -> Option<&[u8]> {
        let mut value = Buffer::NULL;
        // SAFETY: the pointer is valid during the hook, the buffers and the result's place during the call.
        let is_found = unsafe {
            callbacks::http_get_filter_state_bytes(self.filter, Buffer::of(key.as_bytes()), &raw mut value)
        };
        // SAFETY: the bytes live until filter state is changed, and the result borrows the handle.
        is_found.then(|| unsafe { value.bytes() })
    }

    /// Sets such a value, which must not be there yet. False if Envoy refuses.
    pub fn set_filter_state(&mut self, key: &str, value: &[u8]) -> bool {
        // SAFETY: the pointer is valid during the hook, the buffers during the call.
        unsafe {
            callbacks::http_set_filter_state_bytes(self.filter, Buffer::of(key.as_bytes()), Buffer::of(value))
        }
    }

    /// An attribute; `None` if it is not known yet.
    pub fn attribute(&self, attribute: Attribute) -> Option<&[u8]> {
        let mut value = Buffer::NULL;
        // SAFETY: the pointer is valid during the hook, the result's place during the call.
        let is_known = unsafe {
            callbacks::http_filter_get_attribute_string(self.filter, attribute as u32, &raw mut value)
        };
        // SAFETY: the bytes live until the request is changed, and the result borrows the handle.
        is_known.then(|| unsafe { value.bytes() })
    }

    /// The number of attempts so far; `None` with Envoy before 1.39, which does not know it here.
    pub fn attempts(&self) -> Option<u64> {
        /// `upstream.request_attempt_count`
        const REQUEST_ATTEMPT_COUNT: u32 = 53;
        let mut count = 0;
        // Envoy 1.38 has no such attribute and logs an error for each call. Of the supported versions only
        // 1.38 lacks this function.
        late::http_filter_config_set_gauge()?;
        // SAFETY: the pointer is valid during the hook, the result's place during the call.
        let is_known = unsafe {
            callbacks::http_filter_get_attribute_int(self.filter, REQUEST_ATTEMPT_COUNT, &raw mut count)
        };
        is_known.then_some(count)
    }

    /// Prefers a host for the first attempt, strictly: to any other host. False if it is not an `ip:port`.
    pub fn set_override_host(&mut self, host: &str, strict: bool) -> bool {
        // SAFETY: the pointer is valid during the hook, the buffer during the call.
        unsafe {
            callbacks::http_set_upstream_override_host(self.filter, Buffer::of(host.as_bytes()), strict)
        }
    }

    /// The worker that runs the request.
    pub(crate) fn worker_index(&self) -> u32 {
        // SAFETY: the pointer is valid during the hook.
        unsafe { callbacks::http_filter_get_worker_index(self.filter) }
    }

    /// Has Envoy find the request's route again, by its headers as they are now.
    pub fn clear_route_cache(&mut self) {
        // SAFETY: the pointer is valid during the hook. The old route's configuration is borrowed from the
        // handle.
        unsafe { callbacks::http_clear_route_cache(self.filter) }
    }

    /// The module's configuration of the request's route.
    pub(crate) fn route_config(&self) -> ModulePtr {
        // SAFETY: the pointer is valid during the hook.
        unsafe { callbacks::get_most_specific_route_config(self.filter) }
    }

    /// Envoy's pointer, for changes of metrics.
    pub(super) fn filter(&self) -> EnvoyPtr {
        self.filter
    }
}
