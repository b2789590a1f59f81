//! The state of a request, to which the pointer that Envoy keeps leads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::caught;
use crate::abi::types::{EnvoyPtr, ModulePtr};
use crate::abi::{LocalReply, RequestHandle};
use crate::envoy::own_stream::OwnAction;
use crate::envoy::stream::{Outcome, Stream};

/// Envoy's pointer to a request is an `Rc` of this. A hook that runs inside another hook of the same request
/// finds the state borrowed and does nothing.
pub(super) struct RequestCell {
    state: RefCell<Stream>,
    /// The chunks of the response since the last hook, while nothing reads them; `None`: each is for the
    /// state.
    chunks: Cell<Option<u64>>,
    is_destroyed: Cell<bool>,
}

/// The request of Envoy's pointer, which is kept if Envoy destroys it inside this hook.
///
/// # Safety
/// `stream` is the pointer that Envoy gave to the hook.
pub(super) unsafe fn cell(stream: ModulePtr) -> Rc<RequestCell> {
    let stream = stream.cast::<RequestCell>();
    // SAFETY: the pointer came from `Rc::into_raw` in `on_http_filter_new`, and Envoy's own count is there
    // until `on_http_filter_destroy`.
    unsafe {
        Rc::increment_strong_count(stream);
        Rc::from_raw(stream)
    }
}

impl RequestCell {
    pub(super) fn new(stream: Stream) -> Self {
        Self { state: RefCell::new(stream), chunks: Cell::new(None), is_destroyed: Cell::new(false) }
    }

    /// Counts a chunk of the response that is not the last. False: it is for the state.
    pub(super) fn counts_chunk(&self) -> bool {
        let chunks = self.chunks.get().map(|chunks| chunks + 1);
        self.chunks.set(chunks);
        chunks.is_some()
    }

    /// Has the state pass a chunk of the response that is not the last. False: the pool is needed for it.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub(super) unsafe fn passes_chunk(&self, filter: EnvoyPtr) -> bool {
        let Ok(mut state) = self.state.try_borrow_mut() else { return false };
        // SAFETY: as the caller promises.
        let mut request = unsafe { RequestHandle::new(filter) };
        // After a panic the chunk is read as others are, and that hook's panic decides.
        caught(|| state.pass_chunk(&mut request)).unwrap_or(false)
    }

    /// Envoy has destroyed the request: its pointer is not used any more.
    pub(super) fn destroy(&self) {
        self.is_destroyed.set(true);
    }

    /// Runs a hook's body, and then the calls to Envoy that it has left: Envoy calls further hooks of the
    /// request inside some of them, so nothing borrows the state then. `None` inside another hook of the
    /// request.
    ///
    /// # Safety
    /// `filter` is the pointer that Envoy gave to the hook of this request.
    pub(super) unsafe fn run(
        &self,
        filter: EnvoyPtr,
        body: impl FnOnce(&mut Stream, &mut RequestHandle<'_>) -> Outcome,
    ) -> Option<Outcome> {
        let outcome = {
            let mut state = self.state.try_borrow_mut().ok()?;
            // SAFETY: as the caller promises.
            let mut request = unsafe { RequestHandle::new(filter) };
            state.count_chunks(self.chunks.take().unwrap_or(0));
            let outcome = match caught(|| body(&mut state, &mut request)) {
                Some(outcome) => outcome,
                // The body has panicked. The failure mode decides; if that panics too, the client gets a 503.
                None => caught(|| state.recover(&mut request)).unwrap_or_else(|| {
                    state.give_up();
                    Outcome::Reply(LocalReply::defect())
                }),
            };
            self.chunks.set(state.only_counts_chunks().then_some(0));
            outcome
        };
        // SAFETY: as the caller promises.
        unsafe { self.act(filter) };
        Some(match outcome {
            Outcome::Reply(reply) => {
                // SAFETY: as the caller promises. A request that is to get this response has left no other
                // calls.
                unsafe { RequestHandle::new(filter) }.send_response(&reply);
                Outcome::Answered
            }
            Outcome::Continue | Outcome::Hold | Outcome::Wait | Outcome::Answered | Outcome::Taken => outcome,
        })
    }

    /// As [`run`](Self::run), with a chunk of the response to a request of the module, which the client gets
    /// if the body returns true. Does nothing for a request that Envoy has destroyed.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    pub(super) unsafe fn run_chunk(
        &self,
        filter: EnvoyPtr,
        chunk: &[u8],
        body: impl FnOnce(&mut Stream, &mut RequestHandle<'_>) -> bool,
    ) {
        if self.is_destroyed.get() {
            return;
        }
        let mut passes = false;
        // SAFETY: as the caller promises; the request is not destroyed.
        unsafe {
            self.run(filter, |stream, request| {
                passes = body(stream, request);
                Outcome::Taken
            });
        }
        if passes {
            // SAFETY: as the caller promises. A request whose chunk passes has left no calls, in which Envoy
            // could have destroyed it.
            unsafe { RequestHandle::new(filter) }.send_chunk(chunk, false);
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn act(&self, filter: EnvoyPtr) {
        while !self.is_destroyed.get()
            && let Some(action) = self.next_action()
        {
            // SAFETY: as the caller promises; the request is not destroyed.
            let mut request = unsafe { RequestHandle::new(filter) };
            match action {
                OwnAction::Call { cluster, head, body } => {
                    let number = request.start_call(&cluster, &head, &body);
                    if let Ok(mut state) = self.state.try_borrow_mut() {
                        state.called(number);
                    }
                }
                OwnAction::ResetCall(number) => request.reset_call(number),
                OwnAction::Head(head) => request.send_head(&head),
                OwnAction::Chunk { bytes, is_last } => request.send_chunk(&bytes, is_last),
                OwnAction::Reply(reply) => request.send_response(&reply),
                OwnAction::Reset(details) => request.reset(details),
            }
        }
    }

    fn next_action(&self) -> Option<OwnAction> {
        self.state.try_borrow_mut().ok()?.next_action()
    }
}
