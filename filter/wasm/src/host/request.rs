//! The request that the callback at hand is about.

use core::net::SocketAddr;
use core::time::Duration;
use std::borrow::Cow;

use endpoint_picker::headers::HeaderList;
use endpoint_picker::pool::Endpoint;
use endpoint_picker_engine::proxy::metadata::Metadata;
use endpoint_picker_engine::proxy::{Proxy, REJECTED_DETAILS, Result, parse_address};
use proxy_wasm::hostcalls;
use proxy_wasm::types::{BufferType, MapType};

use super::header_pairs::HeaderPairs;
use super::{Envoy, local_response, refused};

/// The name of the request's state that marks it as picked. Only filters see it, so a client cannot set it.
const PICKED_FOR: &str = "endpoint-picker.pool";

/// The name of the explanation in the request's filter state, behind Envoy's prefix `wasm.`.
const SHADOW_EXPLANATION: &str = "endpoint-picker.explanation";

impl Proxy for Envoy {
    fn now(&self) -> Result<Duration> {
        super::now()
    }

    fn request_headers(&self, used: HeaderList) -> Result<HeaderList> {
        let headers = HeaderPairs::read(MapType::HttpRequestHeaders, "get_map(request headers)")?;
        let mut list = used.emptied(headers.size());
        headers.iter().for_each(|(name, value)| list.push(name, value));
        #[cfg(feature = "trap")]
        assert!(!list.has("x-test-trap"), "the VM ends here, as asked");
        Ok(list)
    }

    fn set_request_header(&mut self, name: &str, value: &str) -> Result<()> {
        hostcalls::set_map_value(MapType::HttpRequestHeaders, name, Some(value))
            .map_err(refused("set_map_value(request header)"))
    }

    fn remove_request_header(&mut self, name: &str) -> Result<()> {
        hostcalls::remove_map_value(MapType::HttpRequestHeaders, name)
            .map_err(refused("remove_map_value(request header)"))
    }

    fn request_body(&self, max_bytes: usize) -> Result<Cow<'_, [u8]>> {
        let bytes = hostcalls::get_buffer(BufferType::HttpRequestBody, 0, max_bytes);
        Ok(bytes.map_err(refused("get_buffer(request body)"))?.unwrap_or_default().into())
    }

    fn request_chunk(&self) -> Result<Cow<'_, [u8]>> {
        self.request_body(usize::MAX)
    }

    fn replace_request_body(&mut self, body: &[u8]) -> Result<()> {
        hostcalls::set_buffer(BufferType::HttpRequestBody, 0, usize::MAX, body)
            .map_err(refused("set_buffer(request body)"))
    }

    fn metadata_namespace(&self, namespace: &str) -> Result<Option<Vec<u8>>> {
        hostcalls::get_property(vec!["metadata", "filter_metadata", namespace])
            .map_err(refused("get_property(metadata)"))
    }

    fn metadata(&self, namespace: &str, key: &str) -> Result<Option<Vec<u8>>> {
        hostcalls::get_property(vec!["metadata", "filter_metadata", namespace, key])
            .map_err(refused("get_property(metadata)"))
    }

    /// Later filters of the chain copy headers into metadata. An explanation that follows when the headers
    /// have passed becomes a property, which Envoy keeps in the request's filter state.
    fn set_metadata(&mut self, metadata: &Metadata<'_>) -> Result<()> {
        if let Metadata::ShadowExplanation(text) = metadata {
            return hostcalls::set_property(vec![SHADOW_EXPLANATION], Some(text.as_bytes()))
                .map_err(refused("set_property(explanation)"));
        }
        match metadata.as_header() {
            Some((name, value)) => self.set_request_header(name, &value),
            None => Ok(()),
        }
    }

    fn picked_for(&self) -> Result<Option<Vec<u8>>> {
        hostcalls::get_property(vec![PICKED_FOR]).map_err(refused("get_property(picked)"))
    }

    fn mark_picked(&mut self, pool: &str) -> Result<()> {
        hostcalls::set_property(vec![PICKED_FOR], Some(pool.as_bytes())).map_err(refused("set_property"))
    }

    fn send_response(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> Result<()> {
        local_response::send(status, headers, body, REJECTED_DETAILS)
    }

    fn upstream_address(&self, likely: Option<&Endpoint>) -> Result<Option<SocketAddr>> {
        let address = hostcalls::get_property(vec!["upstream", "address"])
            .map_err(refused("get_property(upstream.address)"))?;
        Ok(address.and_then(|text| parse_address(&text, likely)))
    }

    fn attempts(&self) -> Option<u64> {
        number(vec!["upstream", "request_attempt_count"], "get_property(upstream.request_attempt_count)")
    }

    fn response_details(&self) -> Result<Vec<u8>> {
        let details = hostcalls::get_property(vec!["response", "code_details"])
            .map_err(refused("get_property(response.code_details)"))?;
        Ok(details.unwrap_or_default())
    }

    fn read_response_headers(&self, mut read: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let headers = HeaderPairs::read(MapType::HttpResponseHeaders, "get_map(response headers)")?;
        headers.iter().for_each(|(name, value)| read(name, value));
        Ok(())
    }

    fn read_response_trailers(&self, mut read: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let trailers = HeaderPairs::read(MapType::HttpResponseTrailers, "get_map(response trailers)")?;
        trailers.iter().for_each(|(name, value)| read(name, value));
        Ok(())
    }

    fn set_response_header(&mut self, name: &str, value: &str) -> Result<()> {
        hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value))
            .map_err(refused("set_map_value(response header)"))
    }

    fn remove_response_header(&mut self, name: &str) -> Result<()> {
        hostcalls::remove_map_value(MapType::HttpResponseHeaders, name)
            .map_err(refused("remove_map_value(response header)"))
    }

    fn response_chunk(&self) -> Result<Cow<'_, [u8]>> {
        let bytes = hostcalls::get_buffer(BufferType::HttpResponseBody, 0, usize::MAX);
        Ok(bytes.map_err(refused("get_buffer(response body)"))?.unwrap_or_default().into())
    }

    fn replace_response_chunk(&mut self, bytes: &[u8]) -> Result<()> {
        hostcalls::set_buffer(BufferType::HttpResponseBody, 0, usize::MAX, bytes)
            .map_err(refused("set_buffer(response body)"))
    }
}

/// Whether the metadata of the request's route names this pool, under `endpoint-picker` and `pool`. False if
/// Envoy refuses the call.
pub(crate) fn is_route_of(pool: &str) -> bool {
    let path = vec!["xds", "route_metadata", "filter_metadata", "endpoint-picker", "pool"];
    let named = hostcalls::get_property(path).map_err(refused("get_property(xds.route_metadata)"));
    let named = named.inspect_err(|error| log::error!("{error}; the request is not picked"));
    named.is_ok_and(|named| named.is_some_and(|named| named == pool.as_bytes()))
}

/// Bytes of the request that have arrived, its head included; `None` if Envoy refuses the call.
pub(crate) fn received_bytes() -> Option<u64> {
    number(vec!["request", "total_size"], "get_property(request.total_size)")
}

/// Has the next calls be about the request of this context, outside of its callbacks. False if it is over.
pub(crate) fn use_context(context: u32) -> bool {
    hostcalls::set_effective_context(context).is_ok()
}

/// A property that is a number; `None` if Envoy does not have it.
fn number(path: Vec<&str>, call: &'static str) -> Option<u64> {
    let value = hostcalls::get_property(path).map_err(refused(call));
    let value = value.inspect_err(|error| log::debug!("{error}")).ok()??;
    Some(u64::from_le_bytes(value.try_into().ok()?))
}
