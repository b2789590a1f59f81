//! The root context, and the agent.

use core::time::Duration;

use endpoint_picker_engine::agent::{AUTHORITY, AgentRequest, AgentResponse, CONTENT_TYPE, CallError};
use endpoint_picker_engine::proxy::ProxyError;
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType, Status};

use super::refused;

/// Has Envoy call `on_tick` at this period.
pub(crate) fn set_tick_period(period: Duration) -> Result<(), ProxyError> {
    hostcalls::set_tick_period(period).map_err(refused("set_tick_period"))
}

/// The text of the filter's `configuration` field.
pub(crate) fn plugin_configuration() -> Result<Vec<u8>, ProxyError> {
    let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
    Ok(bytes.map_err(refused("get_buffer(configuration)"))?.unwrap_or_default())
}

/// This Envoy's name: the `node.id` of its configuration.
pub(crate) fn node_id() -> Result<Option<String>, ProxyError> {
    let id =
        hostcalls::get_property(vec!["xds", "node", "id"]).map_err(refused("get_property(xds.node.id)"))?;
    Ok(id.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Sends a request to the agent; the response comes to `on_http_call_response` under the returned number.
pub(crate) fn call_agent(cluster: &str, request: &AgentRequest) -> Result<u32, CallError> {
    let method = if request.body.is_some() { "POST" } else { "GET" };
    let mut headers = vec![(":method", method), (":path", &request.path), (":authority", AUTHORITY)];
    if request.body.is_some() {
        headers.push(("content-type", CONTENT_TYPE));
    }
    let call =
        hostcalls::dispatch_http_call(cluster, headers, request.body.as_deref(), vec![], request.timeout);
    call.map_err(|status| match status {
        // The request has all that Envoy requires.
        Status::BadArgument => CallError::NoCluster(cluster.to_owned()),
        // It failed at once.
        Status::InternalFailure => {
            CallError::NoResponse(format!("its cluster {cluster:?} has no healthy endpoint"))
        }
        status => refused("dispatch_http_call")(status).into(),
    })
}

/// The agent's response that is being delivered. `headers` is the number of its headers as Envoy reports it.
pub(crate) fn agent_response(headers: usize) -> Result<AgentResponse, CallError> {
    // A call that was cut off, as by the removal of its cluster, has no headers, and proxy-wasm panics at
    // Envoy's error on reading one.
    if headers == 0 {
        return Err(CallError::NoResponse(String::new()));
    }
    let header = |name| {
        hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, name)
            .map_err(refused("get_map_value(call header)"))
    };
    let status = header(":status")?.and_then(|bytes| core::str::from_utf8(&bytes).ok()?.parse().ok());
    let status = status.ok_or_else(|| CallError::NoResponse(String::new()))?;
    // With an empty response there is no buffer to read.
    if status == 204 {
        return Ok(AgentResponse { status, body: vec![] });
    }
    let body = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, usize::MAX);
    let body = body.map_err(refused("get_buffer(call body)"))?.unwrap_or_default();
    AgentResponse { status, body }.of_agent(header("date")?.is_some())
}
