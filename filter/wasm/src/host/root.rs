//! The root context, and the agent.

use core::time::Duration;

use endpoint_picker_engine::agent::{AUTHORITY, AgentAnswer, AgentRequest, CONTENT_TYPE, CallId};
use endpoint_picker_engine::proxy::Result;
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};

use super::envoy::refused;

/// Has Envoy call `on_tick` at this period.
pub(crate) fn set_tick_period(period: Duration) -> Result<()> {
    hostcalls::set_tick_period(period).map_err(refused("set_tick_period"))
}

/// The text of the filter's `configuration` field.
pub(crate) fn plugin_configuration() -> Result<Vec<u8>> {
    let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
    Ok(bytes.map_err(refused("get_buffer(configuration)"))?.unwrap_or_default())
}

/// This Envoy's name: the `node.id` of its configuration.
pub(crate) fn node_id() -> Result<Option<String>> {
    let id =
        hostcalls::get_property(vec!["xds", "node", "id"]).map_err(refused("get_property(xds.node.id)"))?;
    Ok(id.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Sends a request to the agent; the answer comes to `on_http_call_response` under the returned number.
pub(crate) fn call_agent(cluster: &str, request: &AgentRequest) -> Result<CallId> {
    let method = if request.body.is_some() { "POST" } else { "GET" };
    let mut headers = vec![(":method", method), (":path", &request.path), (":authority", AUTHORITY)];
    if request.body.is_some() {
        headers.push(("content-type", CONTENT_TYPE));
    }
    hostcalls::dispatch_http_call(cluster, headers, request.body.as_deref(), vec![], request.timeout)
        .map_err(refused("dispatch_http_call"))
}

/// The status of the agent's answer that is being delivered; `None` if it did not answer.
pub(crate) fn call_status() -> Result<Option<u16>> {
    let status = hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, ":status")
        .map_err(refused("get_map_value(call status)"))?;
    Ok(status.and_then(|bytes| core::str::from_utf8(&bytes).ok()?.parse().ok()))
}

/// The agent's answer that is being delivered.
pub(crate) fn agent_answer() -> Result<AgentAnswer> {
    let status = call_status()?;
    // Without an answer, or with an empty one, there is no buffer to read.
    if matches!(status, None | Some(204)) {
        return Ok(AgentAnswer { status, body: vec![] });
    }
    let body = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, usize::MAX);
    Ok(AgentAnswer { status, body: body.map_err(refused("get_buffer(call body)"))?.unwrap_or_default() })
}
