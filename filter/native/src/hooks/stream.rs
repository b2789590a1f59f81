//! Hooks of requests, each on its worker.

use std::rc::Rc;

use super::caught;
use super::cell::{RequestCell, cell};
use crate::abi::RequestHandle;
use crate::abi::types::{Buffer, EnvoyPtr, ModulePtr};
use crate::envoy::filter_config::{FilterConfig, RouteConfig};
use crate::envoy::stream::{Outcome, Stream};
use crate::envoy::wake::Wake;

/// Envoy continues.
const CONTINUE: u32 = 0;
/// Headers and trailers, `StopIteration`: Envoy holds them.
const STOP: u32 = 1;
/// Body, `StopIterationAndBuffer`: Envoy buffers the part that has arrived.
const STOP_AND_BUFFER: u32 = 1;
/// Body, `StopIterationAndWatermark`: Envoy buffers the part that has arrived, and slows the client down when
/// its buffer is full.
const STOP_AND_WATERMARK: u32 = 2;
/// Body, `StopIterationNoBuffer`: Envoy drops the part that has arrived, since a response was sent.
const STOP_AND_DROP: u32 = 3;

/// Runs a hook's body, and the calls to Envoy that it leaves. `None` inside another hook of the request.
///
/// # Safety
/// `filter` and `stream` are the pointers that Envoy gave to the hook.
pub(super) unsafe fn run(
    filter: EnvoyPtr,
    stream: ModulePtr,
    body: impl FnOnce(&mut Stream, &mut RequestHandle<'_>) -> Outcome,
) -> Option<Outcome> {
    // SAFETY: as the caller promises.
    unsafe { cell(stream).run(filter, body) }
}

fn status(outcome: Option<&Outcome>, (hold, wait, answered): (u32, u32, u32)) -> u32 {
    match outcome {
        None | Some(Outcome::Continue) => CONTINUE,
        Some(Outcome::Hold) => hold,
        Some(Outcome::Wait) => wait,
        Some(Outcome::Reply(_) | Outcome::Answered | Outcome::Taken) => answered,
    }
}

/// Has the state of the request get a chunk of the response.
///
/// # Safety
/// As [`run`].
// A function of its own, so that its hook saves no registers for a chunk that is only counted.
#[inline(never)]
unsafe fn read_chunk(filter: EnvoyPtr, stream: ModulePtr, end_of_stream: bool) {
    // SAFETY: as the caller promises, and nothing destroys the request while its chunk passes.
    if !end_of_stream && unsafe { (*stream.cast::<RequestCell>()).passes_chunk(filter) } {
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { run(filter, stream, |stream, request| stream.response_body(request, end_of_stream)) };
}

/// The configuration of the route that the request has now.
fn route_config<'r>(request: &'r RequestHandle<'_>) -> Option<&'r RouteConfig> {
    // SAFETY: a route's pointer is of a configuration that this module has accepted, and Envoy keeps it until
    // the request gets another route, which takes the handle mutably.
    unsafe { request.route_config().cast::<RouteConfig>().as_ref() }
}

/// A request arrived. Envoy fails it if the pointer is null.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(config: ModulePtr, filter: EnvoyPtr) -> ModulePtr {
    // SAFETY: the pointer is a configuration's, which Envoy keeps longer than its requests, and Envoy gives
    // its own for this hook.
    let (config, request) = unsafe { (&*config.cast::<FilterConfig>(), RequestHandle::new(filter)) };
    match caught(|| Rc::new(RequestCell::new(Stream::new(config.worker(request.worker_index()))))) {
        Some(cell) => Rc::into_raw(cell).cast(),
        None => core::ptr::null(),
    }
}

/// The request is over in any way.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(stream: ModulePtr) {
    // SAFETY: the pointer came from `on_http_filter_new`, and Envoy calls this hook once.
    let stream = unsafe { Rc::from_raw(stream.cast::<RequestCell>()) };
    stream.destroy();
    caught(|| drop(stream));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    filter: EnvoyPtr,
    stream: ModulePtr,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointers are Envoy's.
    let outcome = unsafe {
        run(filter, stream, |stream, request| stream.request_headers(request, route_config, end_of_stream))
    };
    status(outcome.as_ref(), (STOP, STOP, STOP))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    filter: EnvoyPtr,
    stream: ModulePtr,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointers are Envoy's.
    let outcome = unsafe {
        run(filter, stream, |stream, request| stream.request_body(request, route_config, end_of_stream))
    };
    status(outcome.as_ref(), (STOP_AND_BUFFER, STOP_AND_WATERMARK, STOP_AND_DROP))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(
    filter: EnvoyPtr,
    stream: ModulePtr,
) -> u32 {
    // SAFETY: the pointers are Envoy's.
    let outcome =
        unsafe { run(filter, stream, |stream, request| stream.request_trailers(request, route_config)) };
    status(outcome.as_ref(), (STOP, STOP, STOP))
}

/// The queue has resumed a request, or the server of a request of the module has paused for too long.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(filter: EnvoyPtr, stream: ModulePtr, event: u64) {
    // SAFETY: the pointers are Envoy's.
    let outcome = unsafe {
        run(filter, stream, |stream, request| match Wake::from(event) {
            Wake::Resumed => stream.resumed(request),
            Wake::Stalled { events } => stream.own_response_stalled(request, events),
        })
    };
    if let Some(Outcome::Continue) = outcome {
        // SAFETY: as above. Nothing borrows the request's state, since `run` has ended.
        unsafe { RequestHandle::new(filter) }.continue_decoding();
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    filter: EnvoyPtr,
    stream: ModulePtr,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, request| stream.response_headers(request, end_of_stream)) };
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    filter: EnvoyPtr,
    stream: ModulePtr,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointer came from `on_http_filter_new`, and nothing destroys the request while its chunk is
    // counted.
    if !end_of_stream && unsafe { &*stream.cast::<RequestCell>() }.counts_chunk() {
        return CONTINUE;
    }
    // SAFETY: the pointers are Envoy's.
    unsafe { read_chunk(filter, stream, end_of_stream) };
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    filter: EnvoyPtr,
    stream: ModulePtr,
) -> u32 {
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, Stream::response_trailers) };
    CONTINUE
}

/// Envoy or another filter sends a response of its own. The response's hooks follow, as for a response of a
/// server, unless the response of a server has begun: then Envoy resets the client's stream.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_local_reply(
    filter: EnvoyPtr,
    stream: ModulePtr,
    _status: u32,
    details: Buffer,
    _reset_imminent: bool,
) -> u32 {
    // SAFETY: Envoy gives the details for this hook.
    let details = unsafe { details.bytes() };
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, request| stream.local_reply(request, details)) };
    CONTINUE
}
