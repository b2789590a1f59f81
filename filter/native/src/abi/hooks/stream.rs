//! Hooks of requests, each on its worker.

use std::cell::RefCell;
use std::rc::Rc;

use super::caught;
use super::cell::{RequestCell, ResumerCell, cell};
use super::filter_config::Filter;
use crate::abi::request::{LocalReply, RequestHandle};
use crate::abi::types::{Buffer, EnvoyPtr, ModulePtr};
use crate::envoy::filter_config::RouteConfig;
use crate::envoy::resumer::{Hold, ResumedStream};
use crate::envoy::stream::{Outcome, Stream};

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

/// Runs a hook's body, and sends the response that it returns, if any. `None` inside another hook of the
/// request, and for a request of another filter.
///
/// # Safety
/// `filter` and `stream` are the pointers that Envoy gave to the hook.
unsafe fn run(
    filter: EnvoyPtr,
    stream: ModulePtr,
    body: impl FnOnce(&mut Stream, &mut RequestHandle<'_>) -> Outcome,
) -> Option<Outcome> {
    // SAFETY: as the caller promises.
    let stream = unsafe { cell(stream) };
    let RequestCell::Picker(stream) = &*stream else { return None };
    let mut state = stream.try_borrow_mut().ok()?;
    // SAFETY: as the caller promises.
    let mut request = unsafe { RequestHandle::new(filter) };
    let outcome = match caught(|| body(&mut state, &mut request)) {
        Some(outcome) => outcome,
        // The body has panicked. The failure mode decides; if that panics too, the client gets a 503.
        None => caught(|| state.recover(&mut request)).unwrap_or_else(|| {
            state.give_up();
            Outcome::Reply(LocalReply::defect())
        }),
    };
    // Envoy calls the response's hooks inside `send_response`, and they borrow the state.
    drop(state);
    Some(match outcome {
        Outcome::Reply(reply) => {
            request.send_response(&reply);
            Outcome::Answered
        }
        Outcome::Continue | Outcome::Hold | Outcome::Wait | Outcome::Answered => outcome,
    })
}

fn status(outcome: Option<&Outcome>, (hold, wait, answered): (u32, u32, u32)) -> u32 {
    match outcome {
        None | Some(Outcome::Continue) => CONTINUE,
        Some(Outcome::Hold) => hold,
        Some(Outcome::Wait) => wait,
        Some(Outcome::Reply(_) | Outcome::Answered) => answered,
    }
}

/// Runs the body of a request's hook for a request of the filter that resumes streams. Returns the status for Envoy, or `None` for a request of
/// another filter.
///
/// # Safety
/// As [`run`].
unsafe fn resumer(
    filter: EnvoyPtr,
    stream: ModulePtr,
    (hold, taken): (u32, u32),
    body: impl FnOnce(&mut ResumedStream, &mut RequestHandle<'_>) -> Hold,
) -> Option<u32> {
    // SAFETY: as the caller promises.
    let stream = unsafe { cell(stream) };
    let RequestCell::Resumer(resumer) = &*stream else { return None };
    // SAFETY: as the caller promises.
    Some(match unsafe { resumer.run(filter, body) } {
        Hold::Pass => CONTINUE,
        Hold::Body => hold,
        Hold::Taken => taken,
    })
}

/// The configuration of the route that the request has now.
fn route_config<'r>(request: &'r RequestHandle<'_>) -> Option<&'r RouteConfig> {
    // SAFETY: a route's pointer is of a configuration that this module has accepted, and Envoy keeps it until the request gets another
    // route, which takes the handle mutably.
    unsafe { request.route_config().cast::<RouteConfig>().as_ref() }
}

/// A request arrived. Envoy fails it if the pointer is null.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(config: ModulePtr, filter: EnvoyPtr) -> ModulePtr {
    // SAFETY: the pointer is a configuration's, which Envoy keeps longer than its requests, and Envoy gives
    // its own for this hook.
    let (config, request) = unsafe { (&*config.cast::<Filter>(), RequestHandle::new(filter)) };
    let new = || match config {
        Filter::Picker(config) => {
            RequestCell::Picker(RefCell::new(Stream::new(config.worker(request.worker_index()))))
        }
        Filter::Resumer(config) => RequestCell::Resumer(ResumerCell::new(ResumedStream::new(config))),
    };
    match caught(new) {
        Some(cell) => Rc::into_raw(Rc::new(cell)).cast(),
        None => core::ptr::null(),
    }
}

/// The request is over in any way.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(stream: ModulePtr) {
    // SAFETY: the pointer came from `on_http_filter_new`, and Envoy calls this hook once.
    let stream = unsafe { Rc::from_raw(stream.cast::<RequestCell>()) };
    if let RequestCell::Resumer(resumer) = &*stream {
        resumer.destroy();
    }
    caught(|| drop(stream));
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    filter: EnvoyPtr,
    stream: ModulePtr,
    end_of_stream: bool,
) -> u32 {
    // SAFETY: the pointers are Envoy's.
    let resumer = unsafe {
        resumer(filter, stream, (STOP, STOP), |stream, request| {
            stream.request_headers(request, end_of_stream)
        })
    };
    if let Some(status) = resumer {
        return status;
    }
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
    let resumer = unsafe {
        resumer(filter, stream, (STOP_AND_BUFFER, STOP_AND_DROP), |stream, request| {
            stream.request_body(request, true, end_of_stream)
        })
    };
    if let Some(status) = resumer {
        return status;
    }
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
    let resumer = unsafe {
        resumer(filter, stream, (STOP, STOP), |stream, request| stream.request_body(request, false, true))
    };
    if let Some(status) = resumer {
        return status;
    }
    // SAFETY: the pointers are Envoy's.
    let outcome =
        unsafe { run(filter, stream, |stream, request| stream.request_trailers(request, route_config)) };
    status(outcome.as_ref(), (STOP, STOP, STOP))
}

/// The queue has resumed a request.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    filter: EnvoyPtr,
    stream: ModulePtr,
    _event: u64,
) {
    // SAFETY: the pointers are Envoy's.
    let outcome = unsafe { run(filter, stream, Stream::resumed) };
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
    // SAFETY: the pointers are Envoy's.
    unsafe { run(filter, stream, |stream, request| stream.response_body(request, end_of_stream)) };
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
