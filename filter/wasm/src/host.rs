//! Every call to Envoy, as a function that returns a `Result`.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::time::UNIX_EPOCH;

use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType, MetricType, Status};

/// A call that Envoy refused.
#[derive(Debug)]
pub(crate) struct HostError {
    call: &'static str,
    status: Status,
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envoy refused {}: {:?}", self.call, self.status)
    }
}

pub(crate) type Result<T> = core::result::Result<T, HostError>;

fn refused(call: &'static str) -> impl FnOnce(Status) -> HostError {
    move |status| HostError { call, status }
}

/// Time since the Unix epoch, the clock that all VMs of one Envoy share.
pub(crate) fn now() -> Result<Duration> {
    let now = hostcalls::get_current_time().map_err(refused("get_current_time"))?;
    Ok(now.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Asks for `on_tick` at this period.
pub(crate) fn set_tick_period(period: Duration) -> Result<()> {
    hostcalls::set_tick_period(period).map_err(refused("set_tick_period"))
}

/// The text of the filter's `configuration` field.
pub(crate) fn plugin_configuration() -> Result<Vec<u8>> {
    let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
    Ok(bytes.map_err(refused("get_buffer(configuration)"))?.unwrap_or_default())
}

/// What this Envoy is called: the `node.id` of its configuration.
pub(crate) fn node_id() -> Result<Option<String>> {
    let id =
        hostcalls::get_property(vec!["xds", "node", "id"]).map_err(refused("get_property(xds.node.id)"))?;
    Ok(id.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// All request headers; values need not be text.
pub(crate) fn request_headers() -> Result<Vec<(String, Vec<u8>)>> {
    hostcalls::get_map_bytes(MapType::HttpRequestHeaders).map_err(refused("get_map(request headers)"))
}

/// Sets a request header, replacing what was there.
pub(crate) fn set_request_header(name: &str, value: &str) -> Result<()> {
    hostcalls::set_map_value(MapType::HttpRequestHeaders, name, Some(value))
        .map_err(refused("set_map_value(request header)"))
}

/// Removes a request header, however often it is there.
pub(crate) fn remove_request_header(name: &str) -> Result<()> {
    hostcalls::remove_map_value(MapType::HttpRequestHeaders, name)
        .map_err(refused("remove_map_value(request header)"))
}

/// The request body as far as it is buffered, this many bytes at most.
pub(crate) fn request_body(most: usize) -> Result<Vec<u8>> {
    let bytes = hostcalls::get_buffer(BufferType::HttpRequestBody, 0, most);
    Ok(bytes.map_err(refused("get_buffer(request body)"))?.unwrap_or_default())
}

/// Puts another body in the place of all that is buffered. The length in the headers is the caller's.
pub(crate) fn set_request_body(body: &[u8]) -> Result<()> {
    hostcalls::set_buffer(BufferType::HttpRequestBody, 0, usize::MAX, body)
        .map_err(refused("set_buffer(request body)"))
}

/// All response headers; values need not be text.
pub(crate) fn response_headers() -> Result<Vec<(String, Vec<u8>)>> {
    hostcalls::get_map_bytes(MapType::HttpResponseHeaders).map_err(refused("get_map(response headers)"))
}

/// Sets a response header, replacing what was there.
pub(crate) fn set_response_header(name: &str, value: &str) -> Result<()> {
    hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value))
        .map_err(refused("set_map_value(response header)"))
}

/// Removes a response header.
pub(crate) fn remove_response_header(name: &str) -> Result<()> {
    hostcalls::remove_map_value(MapType::HttpResponseHeaders, name)
        .map_err(refused("remove_map_value(response header)"))
}

/// The chunk of the response body that has just come.
pub(crate) fn response_chunk() -> Result<Vec<u8>> {
    let bytes = hostcalls::get_buffer(BufferType::HttpResponseBody, 0, usize::MAX);
    Ok(bytes.map_err(refused("get_buffer(response body)"))?.unwrap_or_default())
}

/// Puts other bytes, or none, in the place of that chunk.
pub(crate) fn set_response_chunk(bytes: &[u8]) -> Result<()> {
    hostcalls::set_buffer(BufferType::HttpResponseBody, 0, usize::MAX, bytes)
        .map_err(refused("set_buffer(response body)"))
}

/// The `ip:port` that answers; `None` when Envoy answers by itself.
pub(crate) fn upstream_address() -> Result<Option<SocketAddr>> {
    let address = hostcalls::get_property(vec!["upstream", "address"])
        .map_err(refused("get_property(upstream.address)"))?;
    Ok(address.and_then(|bytes| core::str::from_utf8(&bytes).ok()?.parse().ok()))
}

/// How Envoy came to the answer: `via_upstream`, or why it gave one itself.
pub(crate) fn response_details() -> Result<Vec<u8>> {
    let details = hostcalls::get_property(vec!["response", "code_details"])
        .map_err(refused("get_property(response.code_details)"))?;
    Ok(details.unwrap_or_default())
}

/// A value of the request's filter metadata, in the host's encoding.
pub(crate) fn filter_metadata(namespace: &str, key: &str) -> Result<Option<Vec<u8>>> {
    hostcalls::get_property(vec!["metadata", "filter_metadata", namespace, key])
        .map_err(refused("get_property(metadata)"))
}

/// All of a namespace of the request's filter metadata, in the host's encoding.
pub(crate) fn filter_metadata_namespace(namespace: &str) -> Result<Option<Vec<u8>>> {
    hostcalls::get_property(vec!["metadata", "filter_metadata", namespace])
        .map_err(refused("get_property(metadata)"))
}

/// State of the request that only filters see: its name. A client cannot set it.
const PICKED_FOR: &str = "endpoint-picker.pool";

/// Marks the request at hand as picked for this pool.
pub(crate) fn mark_picked(pool: &str) -> Result<()> {
    hostcalls::set_property(vec![PICKED_FOR], Some(pool.as_bytes())).map_err(refused("set_property"))
}

/// The pool that a filter before this one has picked for, if any.
pub(crate) fn picked_for() -> Result<Option<Vec<u8>>> {
    hostcalls::get_property(vec![PICKED_FOR]).map_err(refused("get_property(picked)"))
}

/// Answers the request here.
pub(crate) fn send_response(status: u16, headers: Vec<(&str, &str)>, body: &[u8]) -> Result<()> {
    hostcalls::send_http_response(status.into(), headers, Some(body)).map_err(refused("send_http_response"))
}

/// A shared-data value with its version for compare-and-swap.
pub(crate) type Shared = (Vec<u8>, Option<u32>);

/// Reads shared data; an absent key is empty with no version.
pub(crate) fn shared_get(key: &str) -> Result<Shared> {
    let (value, cas) = hostcalls::get_shared_data(key).map_err(refused("get_shared_data"))?;
    Ok((value.unwrap_or_default(), cas))
}

/// Writes shared data, whatever is there.
pub(crate) fn shared_set(key: &str, value: &[u8]) -> Result<()> {
    hostcalls::set_shared_data(key, Some(value), None).map_err(refused("set_shared_data"))
}

/// Writes shared data if it is still of this version; says whether it was.
pub(crate) fn shared_swap(key: &str, value: &[u8], cas: Option<u32>) -> Result<bool> {
    match hostcalls::set_shared_data(key, Some(value), cas) {
        Ok(()) => Ok(true),
        Err(Status::CasMismatch) => Ok(false),
        Err(status) => Err(refused("set_shared_data")(status)),
    }
}

/// The name by which the agent is asked: one that every agent allows, whatever Envoy calls its cluster.
const AGENT: &str = "metrics-agent";

/// Starts a GET; the answer comes to `on_http_call_response` under the returned token.
pub(crate) fn get(cluster: &str, path: &str, timeout: Duration) -> Result<u32> {
    let headers = vec![(":method", "GET"), (":path", path), (":authority", AGENT)];
    hostcalls::dispatch_http_call(cluster, headers, None, vec![], timeout)
        .map_err(refused("dispatch_http_call"))
}

/// Starts a POST of protobuf, as [`get`].
pub(crate) fn post(cluster: &str, path: &str, body: &[u8], timeout: Duration) -> Result<u32> {
    let headers = vec![
        (":method", "POST"),
        (":path", path),
        (":authority", AGENT),
        ("content-type", "application/x-protobuf"),
    ];
    hostcalls::dispatch_http_call(cluster, headers, Some(body), vec![], timeout)
        .map_err(refused("dispatch_http_call"))
}

/// The status of the answer being delivered.
pub(crate) fn call_status() -> Result<Option<u16>> {
    let status = hostcalls::get_map_value_bytes(MapType::HttpCallResponseHeaders, ":status")
        .map_err(refused("get_map_value(call status)"))?;
    Ok(status.and_then(|bytes| core::str::from_utf8(&bytes).ok()?.parse().ok()))
}

/// The body of the answer being delivered.
pub(crate) fn call_body() -> Result<Vec<u8>> {
    let bytes = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, usize::MAX);
    Ok(bytes.map_err(refused("get_buffer(call body)"))?.unwrap_or_default())
}

/// Defines a counter.
pub(crate) fn define_counter(name: &str) -> Result<u32> {
    hostcalls::define_metric(MetricType::Counter, name).map_err(refused("define_metric"))
}

/// Defines a gauge.
pub(crate) fn define_gauge(name: &str) -> Result<u32> {
    hostcalls::define_metric(MetricType::Gauge, name).map_err(refused("define_metric"))
}

/// Defines a histogram.
pub(crate) fn define_histogram(name: &str) -> Result<u32> {
    hostcalls::define_metric(MetricType::Histogram, name).map_err(refused("define_metric"))
}

/// Sets a gauge, or adds a value to a histogram.
pub(crate) fn record(metric: u32, value: u64) -> Result<()> {
    hostcalls::record_metric(metric, value).map_err(refused("record_metric"))
}

/// Adds so many to a counter.
pub(crate) fn increment(counter: u32, count: u64) -> Result<()> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    hostcalls::increment_metric(counter, count).map_err(refused("increment_metric"))
}

/// The value of a counter, all VMs together.
pub(crate) fn counted(counter: u32) -> Result<u64> {
    hostcalls::get_metric(counter).map_err(refused("get_metric"))
}
