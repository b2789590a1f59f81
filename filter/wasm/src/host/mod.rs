//! Every call to Envoy, as a function that returns a `Result`.

mod header_pairs;
mod local_response;
mod metrics;
mod request;
mod root;

use core::time::Duration;
use std::time::UNIX_EPOCH;

use endpoint_picker_engine::proxy::{ProxyError, Result};
use endpoint_picker_workers::{SharedData, Versioned};
use proxy_wasm::hostcalls;
use proxy_wasm::types::Status;

pub(crate) use request::{is_route_of, received_bytes, use_context};
pub(crate) use root::{agent_response, call_agent, node_id, plugin_configuration, set_tick_period};

/// Envoy, as the request, the shared data and the metrics that the callback at hand is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envoy;

fn refused(call: &'static str) -> impl FnOnce(Status) -> ProxyError {
    move |status| ProxyError { call, status: format!("{status:?}") }
}

/// Time since the Unix epoch, by the clock that all VMs of one Envoy share.
pub(crate) fn now() -> Result<Duration> {
    let now = hostcalls::get_current_time().map_err(refused("get_current_time"))?;
    Ok(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl SharedData for Envoy {
    type Error = ProxyError;

    fn get(&self, key: &str) -> Result<Versioned> {
        let (bytes, version) = hostcalls::get_shared_data(key).map_err(refused("get_shared_data"))?;
        Ok(Versioned { bytes: bytes.unwrap_or_default(), version })
    }

    fn set(&self, key: &str, value: &[u8]) -> Result<()> {
        hostcalls::set_shared_data(key, Some(value), None).map_err(refused("set_shared_data"))
    }

    fn compare_and_swap(&self, key: &str, value: &[u8], version: Option<u32>) -> Result<bool> {
        match hostcalls::set_shared_data(key, Some(value), version) {
            Ok(()) => Ok(true),
            Err(Status::CasMismatch) => Ok(false),
            Err(status) => Err(refused("set_shared_data")(status)),
        }
    }
}
