//! Requests, whose hooks a test calls.

use core::ffi::c_void;

use super::calls::Side;
use super::state::{ATTEMPTS, EnvoyRequest, Own, Panic, Reply, Value};
use super::{Buffer, Config, Header, Route, hooks};

/// Next step of Envoy after a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Continue,
    Hold,
    /// Envoy holds a body, and slows the client down when its buffer is full.
    Wait,
    /// The module has sent a response; its hook returns this for a body.
    Drop,
}

/// One request. Dropping it destroys it, if the test has not.
pub(crate) struct Request {
    envoy: Box<EnvoyRequest>,
}

impl Request {
    /// A request on a worker, with these headers.
    pub(crate) fn new(config: &Config, worker: u32, headers: &[(&str, &str)]) -> Self {
        let envoy = Box::new(EnvoyRequest { worker, ..EnvoyRequest::default() });
        envoy.buffer_limit.set(1 << 20);
        let bytes = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        envoy.headers.borrow_mut()[0] = headers.iter().map(bytes).collect();
        let side = Side::hook();
        // SAFETY: the pointers are of live objects.
        envoy
            .stream
            .set(unsafe { hooks::envoy_dynamic_module_on_http_filter_new(config.module, envoy.pointer()) });
        drop(side);
        assert!(!envoy.stream.get().is_null());
        Self { envoy }
    }

    /// A chat with a JSON body.
    pub(crate) fn chat(config: &Config, worker: u32) -> Self {
        Self::new(
            config,
            worker,
            &[
                (":method", "POST"),
                (":path", "/v1/chat/completions"),
                (":authority", "models"),
                ("content-type", "application/json"),
                ("content-length", "100"),
            ],
        )
    }

    pub(super) fn pointer(&self) -> *mut c_void {
        self.envoy.pointer()
    }

    /// A filter before the module chooses a route with this configuration, or one without.
    pub(crate) fn set_route(&self, route: Option<&Route>) {
        self.envoy.route.set(route.map_or(core::ptr::null(), |route| route.0));
    }

    /// Requests for this model have a route with this configuration.
    pub(crate) fn set_route_of(&self, model: &str, route: &Route) {
        self.envoy.routes.borrow_mut().insert(model.to_owned(), route.0);
    }

    /// The number of times that the module had Envoy find the route again.
    pub(crate) fn cleared_routes(&self) -> u32 {
        self.envoy.cleared.get()
    }

    /// Bodies come in one chunk at a time, as short ones nearly always do.
    #[allow(dead_code, reason = "the test of the budget uses it")]
    pub(crate) fn set_undivided(&self) {
        self.envoy.is_undivided.set(true);
    }

    /// Adds a request header.
    pub(crate) fn set_header(&self, name: &str, value: &str) {
        self.envoy.headers.borrow_mut()[0].push((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
    }

    /// The values of a request header.
    pub(crate) fn header_values(&self, name: &str) -> Vec<String> {
        let headers = self.envoy.headers.borrow();
        let values = headers[0].iter().filter(|(header, _)| header == name.as_bytes());
        values.map(|(_, value)| String::from_utf8(value.clone()).unwrap()).collect()
    }

    /// Replaces the values of a request header, as a filter may.
    pub(crate) fn replace_header(&self, name: &str, values: &[&str]) {
        self.envoy.headers.borrow_mut()[0].retain(|(header, _)| header != name.as_bytes());
        for value in values {
            self.set_header(name, value);
        }
    }

    /// Lets the module panic at these calls from now on.
    pub(crate) fn set_panics(&self, panics: &[Panic]) {
        *self.envoy.panics.borrow_mut() = panics.to_vec();
    }

    pub(crate) fn set_metadata(&self, namespace: &str, key: &str, value: Value) {
        self.envoy.metadata.borrow_mut().insert((namespace.to_owned(), key.to_owned()), value);
    }

    pub(crate) fn destroy_by_reply(&self) {
        self.envoy.is_destroyed_by_reply.set(true);
    }

    fn next(status: u32) -> Next {
        match status {
            0 => Next::Continue,
            1 => Next::Hold,
            2 => Next::Wait,
            3 => Next::Drop,
            other => panic!("status {other}"),
        }
    }

    pub(crate) fn headers(&self, end: bool) -> Next {
        let _side = Side::hook();
        // SAFETY: the pointers are of live objects.
        Self::next(unsafe {
            hooks::envoy_dynamic_module_on_http_filter_request_headers(
                self.envoy.pointer(),
                self.envoy.stream.get(),
                end,
            )
        })
    }

    /// A chunk of the body arrives; Envoy buffers it if the module holds the request.
    pub(crate) fn body(&self, piece: &[u8], end: bool) -> Next {
        *self.envoy.received.borrow_mut() = piece.to_vec();
        let side = Side::hook();
        // SAFETY: the pointers are of live objects.
        let next = Self::next(unsafe {
            hooks::envoy_dynamic_module_on_http_filter_request_body(
                self.envoy.pointer(),
                self.envoy.stream.get(),
                end,
            )
        });
        drop(side);
        if matches!(next, Next::Hold | Next::Wait) && !self.envoy.is_same.get() {
            let received = core::mem::take(&mut *self.envoy.received.borrow_mut());
            self.envoy.buffered.borrow_mut().extend(received);
        }
        next
    }

    /// An earlier filter has held the body, so that it arrives at once and is the buffered one too.
    pub(crate) fn held_body(&self, whole: &[u8]) -> Next {
        self.envoy.is_same.set(true);
        *self.envoy.buffered.borrow_mut() = whole.to_vec();
        self.body(whole, true)
    }

    /// Handles the events that schedulers have sent to the request's worker. Returns the number of times that
    /// the module has continued the request.
    pub(crate) fn run_scheduled(&self) -> u32 {
        let before = self.envoy.continued.get();
        for event in self.envoy.mailbox.take() {
            // SAFETY: the pointers are of live objects.
            unsafe {
                hooks::envoy_dynamic_module_on_http_filter_scheduled(
                    self.envoy.pointer(),
                    self.envoy.stream.get(),
                    event,
                );
            }
        }
        self.envoy.continued.get() - before
    }

    /// Whether a scheduler has sent something.
    pub(crate) fn has_scheduled(&self) -> bool {
        self.envoy.mailbox.has_any()
    }

    pub(crate) fn trailers(&self) -> Next {
        // SAFETY: the pointers are of live objects.
        Self::next(unsafe {
            hooks::envoy_dynamic_module_on_http_filter_request_trailers(
                self.envoy.pointer(),
                self.envoy.stream.get(),
            )
        })
    }

    /// Envoy has tried this number of servers.
    pub(crate) fn set_attempts(&self, attempts: u64) {
        self.envoy.numbers.borrow_mut().insert(ATTEMPTS, attempts);
    }

    /// The head of a server's response arrives, to the first attempt unless the test has set another number.
    pub(crate) fn answer_headers(&self, server: &str, headers: &[(&str, &str)], end: bool) {
        self.envoy.attributes.borrow_mut().insert(41, server.as_bytes().to_vec());
        self.envoy.attributes.borrow_mut().insert(16, b"via_upstream".to_vec());
        self.envoy.numbers.borrow_mut().entry(ATTEMPTS).or_insert(1);
        let bytes = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        self.envoy.headers.borrow_mut()[2] = headers.iter().map(bytes).collect();
        let _side = Side::hook();
        // SAFETY: the pointers are of live objects.
        let next = Self::next(unsafe {
            hooks::envoy_dynamic_module_on_http_filter_response_headers(
                self.envoy.pointer(),
                self.envoy.stream.get(),
                end,
            )
        });
        assert_eq!(next, Next::Continue);
    }

    /// A chunk of the response's body arrives. Returns the bytes that the client gets.
    pub(crate) fn answer_body(&self, piece: &[u8], end: bool) -> String {
        *self.envoy.response.borrow_mut() = piece.to_vec();
        let side = Side::hook();
        // SAFETY: the pointers are of live objects.
        let next = Self::next(unsafe {
            hooks::envoy_dynamic_module_on_http_filter_response_body(
                self.envoy.pointer(),
                self.envoy.stream.get(),
                end,
            )
        });
        drop(side);
        assert_eq!(next, Next::Continue);
        String::from_utf8(self.envoy.response.borrow().clone()).unwrap()
    }

    /// Envoy has reset the client's stream after the response of a server began, with these details.
    pub(crate) fn cut(&self, details: &str) {
        let details = Buffer::of(details.as_bytes());
        // SAFETY: the pointers are of live objects.
        let status = unsafe {
            hooks::envoy_dynamic_module_on_http_filter_local_reply(
                self.pointer(),
                self.envoy.stream.get(),
                502,
                details,
                false,
            )
        };
        assert_eq!(status, 0);
    }

    /// The head of the response to the module's request of this number arrives.
    pub(crate) fn call_head(&self, number: u64, headers: &[(&str, &str)]) {
        let headers = headers.iter().map(|(name, value)| Header {
            name: Buffer::of(name.as_bytes()),
            value: Buffer::of(value.as_bytes()),
        });
        let headers: Vec<Header> = headers.collect();
        // SAFETY: the pointers are of live objects.
        unsafe {
            hooks::envoy_dynamic_module_on_http_filter_http_stream_headers(
                self.pointer(),
                self.envoy.stream.get(),
                number,
                headers.as_ptr(),
                headers.len(),
                false,
            );
        }
    }

    /// A chunk of that response arrives.
    pub(crate) fn call_chunk(&self, number: u64, chunk: &str) {
        let chunk = Buffer::of(chunk.as_bytes());
        // SAFETY: the pointers are of live objects.
        unsafe {
            hooks::envoy_dynamic_module_on_http_filter_http_stream_data(
                self.pointer(),
                self.envoy.stream.get(),
                number,
                &raw const chunk,
                1,
                false,
            );
        }
    }

    /// That response ends, with a reset or without.
    pub(crate) fn call_end(&self, number: u64, is_reset: bool) {
        let (envoy, stream) = (self.pointer(), self.envoy.stream.get());
        // SAFETY: the pointers are of live objects.
        unsafe {
            if is_reset {
                hooks::envoy_dynamic_module_on_http_filter_http_stream_reset(envoy, stream, number, 0);
            } else {
                hooks::envoy_dynamic_module_on_http_filter_http_stream_complete(envoy, stream, number);
            }
        }
    }

    /// The client's connection takes no more bytes.
    pub(crate) fn client_stops_reading(&self) {
        // SAFETY: the pointers are of live objects.
        unsafe {
            hooks::envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
                self.pointer(),
                self.envoy.stream.get(),
            );
        }
    }

    /// The module's own requests and response.
    pub(crate) fn own(&self) -> Own {
        self.envoy.own.borrow().clone()
    }

    pub(crate) fn answer_trailers(&self) {
        // SAFETY: the pointers are of live objects.
        unsafe {
            hooks::envoy_dynamic_module_on_http_filter_response_trailers(
                self.envoy.pointer(),
                self.envoy.stream.get(),
            )
        };
    }

    /// The value of a request header.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.header_of(0, name)
    }

    /// The value of a header of the response.
    pub(crate) fn answer_header(&self, name: &str) -> Option<String> {
        self.header_of(2, name)
    }

    fn header_of(&self, map: usize, name: &str) -> Option<String> {
        let headers = self.envoy.headers.borrow();
        let (_, value) = headers[map].iter().find(|(header, _)| header == name.as_bytes())?;
        Some(String::from_utf8(value.clone()).unwrap())
    }

    /// A text in dynamic metadata.
    pub(crate) fn metadata(&self, namespace: &str, key: &str) -> Option<String> {
        match self.envoy.metadata.borrow().get(&(namespace.to_owned(), key.to_owned()))? {
            Value::Text(text) => Some(text.clone()),
            other => panic!("{other:?}"),
        }
    }

    /// A number in dynamic metadata.
    pub(crate) fn metadata_number(&self, namespace: &str, key: &str) -> Option<f64> {
        match self.envoy.metadata.borrow().get(&(namespace.to_owned(), key.to_owned()))? {
            Value::Number(number) => Some(*number),
            other => panic!("{other:?}"),
        }
    }

    /// The destinations in dynamic metadata.
    pub(crate) fn destinations(&self) -> Option<String> {
        self.metadata("envoy.lb", "x-gateway-destination-endpoint")
    }

    pub(crate) fn override_host(&self) -> Option<(String, bool)> {
        self.envoy.override_host.borrow().clone()
    }

    /// The number of values in filter state.
    pub(crate) fn filter_state(&self) -> usize {
        self.envoy.filter_state.borrow().len()
    }

    pub(crate) fn structures(&self) -> Vec<(String, Vec<u8>)> {
        self.envoy.structures.borrow().clone()
    }

    /// All of the request's body that a server gets.
    pub(crate) fn sent_body(&self) -> String {
        let mut body =
            if self.envoy.is_same.get() { Vec::new() } else { self.envoy.buffered.borrow().clone() };
        body.extend_from_slice(&self.envoy.received.borrow());
        String::from_utf8(body).unwrap()
    }

    pub(crate) fn buffer_limit(&self) -> u64 {
        self.envoy.buffer_limit.get()
    }

    pub(crate) fn reply(&self) -> Option<Reply> {
        self.envoy.reply.borrow().clone()
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.envoy.destroy();
    }
}
