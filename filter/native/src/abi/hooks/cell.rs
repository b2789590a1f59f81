//! The state of a request, to which the pointer that Envoy keeps leads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::caught;
use crate::abi::request::RequestHandle;
use crate::abi::types::{EnvoyPtr, ModulePtr};
use crate::envoy::resumer::{Action, Hold, ResumedStream};
use crate::envoy::stream::Stream;

/// Envoy's pointer to a request is an `Rc` of this. A hook that runs inside another hook of the same request
/// finds the cell borrowed and does nothing.
#[expect(clippy::large_enum_variant, reason = "a box would cost every request of the picker an allocation")]
pub(super) enum RequestCell {
    Picker(RefCell<Stream>),
    Resumer(ResumerCell),
}

/// The request of Envoy's pointer, which is kept if Envoy destroys it inside this hook.
///
/// # Safety
/// `stream` is the pointer that Envoy gave to the hook.
pub(super) unsafe fn cell(stream: ModulePtr) -> Rc<RequestCell> {
    let stream = stream.cast::<RequestCell>();
    // SAFETY: the pointer came from `Rc::into_raw` in `on_http_filter_new`, and Envoy's own count is there until
    // `on_http_filter_destroy`.
    unsafe {
        Rc::increment_strong_count(stream);
        Rc::from_raw(stream)
    }
}

/// A request of the filter that resumes streams.
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
