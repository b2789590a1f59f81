//! Envoy's state of a request, which the module reads and changes by its calls.

use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use std::collections::HashMap;

use super::calls::Side;
use super::hooks;
use super::scheduler::Mailbox;

/// A value in dynamic metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    /// Items that are not texts are `None`.
    List(Vec<Option<String>>),
    Number(f64),
}

/// The calls at which the mock lets the module panic, by a count of items that no memory can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Panic {
    RequestHeaders,
    RequestBody,
    Metadata,
    ResponseHeaders,
    ResponseBody,
}

/// Names and values.
type Headers = Vec<(Vec<u8>, Vec<u8>)>;

/// A response of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u32,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
    pub(crate) details: String,
}

/// A request that the module has sent.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

/// The module's own requests, and the response that it sends in place of the router's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    pub(crate) calls: Vec<Call>,
    pub(crate) head: Option<HashMap<String, String>>,
    pub(crate) body: String,
    pub(crate) is_complete: bool,
    /// The numbers of the requests that the module has reset.
    pub(crate) resets: Vec<u64>,
    pub(crate) reset: Option<String>,
}

/// The number of the attribute `upstream.request_attempt_count`.
pub(super) const ATTEMPTS: u32 = 53;

/// Envoy's state of a request.
#[derive(Debug, Default)]
pub(crate) struct EnvoyRequest {
    pub(super) worker: u32,
    pub(super) headers: RefCell<[Headers; 4]>,
    pub(super) received: RefCell<Vec<u8>>,
    pub(super) buffered: RefCell<Vec<u8>>,
    pub(super) response: RefCell<Vec<u8>>,
    /// The received part is the buffered one.
    pub(super) is_same: Cell<bool>,
    /// Each part of a body is one chunk.
    pub(super) is_undivided: Cell<bool>,
    pub(super) buffer_limit: Cell<u64>,
    pub(super) metadata: RefCell<HashMap<(String, String), Value>>,
    pub(super) structures: RefCell<Vec<(String, Vec<u8>)>>,
    pub(super) filter_state: RefCell<HashMap<String, Vec<u8>>>,
    pub(super) attributes: RefCell<HashMap<u32, Vec<u8>>>,
    pub(super) numbers: RefCell<HashMap<u32, u64>>,
    pub(super) override_host: RefCell<Option<(String, bool)>>,
    pub(super) route: Cell<*const c_void>,
    /// The routes' configurations by the model's header, and the number of times that the route was found
    /// again.
    pub(super) routes: RefCell<HashMap<String, *const c_void>>,
    pub(super) cleared: Cell<u32>,
    pub(super) reply: RefCell<Option<Reply>>,
    pub(super) own: RefCell<Own>,
    pub(super) panics: RefCell<Vec<Panic>>,
    /// Events that schedulers have sent.
    pub(super) mailbox: Mailbox,
    /// The number of times that the module has continued the request.
    pub(super) continued: Cell<u32>,
    /// The module's pointer; null once it is destroyed.
    pub(super) stream: Cell<*const c_void>,
    /// Destroys the request inside the call that sends a response, as Envoy may.
    pub(super) is_destroyed_by_reply: Cell<bool>,
}

/// The request of a pointer that the module passes.
pub(super) fn of_pointer<'a>(envoy: *mut c_void) -> &'a EnvoyRequest {
    // SAFETY: the module calls with the pointer of a live request during a hook.
    unsafe { &*envoy.cast::<EnvoyRequest>() }
}

impl EnvoyRequest {
    pub(super) fn pointer(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    /// Finds the route by the model's header; without a match the route stays.
    pub(super) fn find_route(&self) {
        self.cleared.set(self.cleared.get() + 1);
        let headers = self.headers.borrow();
        let model = headers[0].iter().find(|(name, _)| name == b"x-gateway-model-name");
        let model = model.and_then(|(_, model)| String::from_utf8(model.clone()).ok());
        if let Some(route) = model.and_then(|model| self.routes.borrow().get(&model).copied()) {
            self.route.set(route);
        }
    }

    pub(super) fn panics_at(&self, call: Panic) -> bool {
        self.panics.borrow().contains(&call)
    }

    pub(super) fn destroy(&self) {
        let stream = self.stream.replace(core::ptr::null());
        if !stream.is_null() {
            let side = Side::hook();
            // SAFETY: the pointer is of a live object, which this call frees.
            unsafe { hooks::envoy_dynamic_module_on_http_filter_destroy(stream) }
            drop(side);
            // Its worker may end now, so its schedulers must not be used any more.
            self.mailbox.close();
        }
    }

    /// Runs the response's hooks, as Envoy does inside the call that sends it.
    pub(super) fn pass_reply(&self, reply: Reply) {
        let status = reply.status.to_string().into_bytes();
        self.headers.borrow_mut()[2] = vec![(b":status".to_vec(), status)];
        *self.response.borrow_mut() = reply.body.clone().into_bytes();
        assert_eq!(self.reply.replace(Some(reply)), None, "answered twice");
        // SAFETY: the pointers are of live objects.
        unsafe {
            hooks::envoy_dynamic_module_on_http_filter_response_headers(
                self.pointer(),
                self.stream.get(),
                false,
            );
            hooks::envoy_dynamic_module_on_http_filter_response_body(self.pointer(), self.stream.get(), true);
        }
        if self.is_destroyed_by_reply.get() {
            self.destroy();
        }
    }
}
