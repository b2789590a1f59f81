//! Envoy itself: its clock, and its refusals as errors.

use core::time::Duration;
use std::time::UNIX_EPOCH;

use endpoint_picker_engine::proxy::{ProxyError, Result};
use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;

/// Envoy, as the request, the shared data and the metrics that the callback at hand is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envoy;

pub(super) fn refused(call: &'static str) -> impl FnOnce(Status) -> ProxyError {
    move |status| ProxyError { call, status: format!("{status:?}") }
}

/// Time since the Unix epoch, by the clock that all VMs of one Envoy share.
pub(crate) fn now() -> Result<Duration> {
    let now = hostcalls::get_current_time().map_err(refused("get_current_time"))?;
    Ok(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}
