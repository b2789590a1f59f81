//! The interface to the proxy that the engine runs in.

pub(crate) mod error_body;
pub mod headers;
pub mod metadata;

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::borrow::Cow;

use endpoint_picker::headers::HeaderList;
use endpoint_picker::pool::Endpoint;

use crate::proxy::metadata::Metadata;

/// A call that the proxy refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyError {
    /// The proxy's name of the call.
    pub call: &'static str,
    /// The proxy's name of the reason.
    pub status: String,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the proxy refused {}: {}", self.call, self.status)
    }
}

impl core::error::Error for ProxyError {}

/// Envoy's response code details when the filter rejects a request.
pub const REJECTED_DETAILS: &str = "endpoint_picker_rejected";

/// The result of a call to the proxy.
pub type Result<T> = core::result::Result<T, ProxyError>;

/// Has the proxy call [`Exchange::resumed`](crate::exchange::Exchange::resumed) on the request's own thread.
/// The [queue](crate::queue) calls it from any thread, while it is locked; so it must not call the queue.
pub type Resume = Box<dyn Fn() + Send>;

/// The address in a text of the proxy. Comparing it with the address of the `likely` endpoint takes less than
/// parsing it.
pub fn parse_address(text: &[u8], likely: Option<&Endpoint>) -> Option<SocketAddr> {
    match likely {
        Some(likely) if likely.printed_address().as_bytes() == text => Some(likely.address()),
        _ => core::str::from_utf8(text).ok()?.parse().ok(),
    }
}

/// One request in a proxy, from its head to the end of its response.
pub trait Proxy {
    /// Time since an origin that all workers of the proxy share. It may be the time of the whole event.
    fn now(&self) -> Result<Duration>;

    /// The time since then, by a clock that is read now.
    fn elapsed(&self, since: Duration) -> Result<Duration> {
        Ok(self.now()?.saturating_sub(since))
    }

    /// The way to resume this request from any thread, for a proxy whose store has a [queue](crate::queue).
    fn resume(&self) -> Result<Resume> {
        Err(ProxyError { call: "resume", status: "requests do not wait in this proxy".to_owned() })
    }

    /// All request headers, in the memory of a list that is not needed any more.
    fn request_headers(&self, used: HeaderList) -> Result<HeaderList>;

    /// Sets a request header and replaces its old values.
    fn set_request_header(&mut self, name: &str, value: &str) -> Result<()>;

    /// Removes all values of a request header.
    fn remove_request_header(&mut self, name: &str) -> Result<()>;

    /// The first `max_bytes` bytes of the request body, as far as they have arrived.
    fn request_body(&self, max_bytes: usize) -> Result<Cow<'_, [u8]>>;

    /// The chunk of the request body that has just arrived, where the chunks before have passed.
    fn request_chunk(&self) -> Result<Cow<'_, [u8]>>;

    /// Replaces the request body that has arrived. The caller corrects `content-length`.
    fn replace_request_body(&mut self, body: &[u8]) -> Result<()>;

    /// All of a namespace of the request's filter metadata, in the proxy's encoding.
    fn metadata_namespace(&self, namespace: &str) -> Result<Option<Vec<u8>>>;

    /// One value of the request's filter metadata: a [packed](endpoint_picker::request::packed) list, or the
    /// bytes of a string.
    fn metadata(&self, namespace: &str, key: &str) -> Result<Option<Vec<u8>>>;

    /// Leaves a value in the request's metadata, for the cluster and the access log.
    fn set_metadata(&mut self, metadata: &Metadata<'_>) -> Result<()>;

    /// The pool that an endpoint picker earlier in the chain has picked for.
    fn picked_for(&self) -> Result<Option<Vec<u8>>>;

    /// Marks the request as picked for this pool. A client must not be able to set the mark.
    fn mark_picked(&mut self, pool: &str) -> Result<()>;

    /// Responds to the request instead of a server.
    fn send_response(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> Result<()>;

    /// The address of the server that was tried last; `None` if none was. Nearly always it is the address of
    /// the `likely` endpoint.
    fn upstream_address(&self, likely: Option<&Endpoint>) -> Result<Option<SocketAddr>>;

    /// The number of attempts so far, the last one included; `None` if the proxy does not know it.
    fn attempts(&self) -> Option<u64>;

    /// Envoy's response code details: `via_upstream`, or the reason why the proxy responded itself.
    fn response_details(&self) -> Result<Vec<u8>>;

    /// Reads all response headers, in their order: their names and values.
    fn read_response_headers(&self, read: impl FnMut(&[u8], &[u8])) -> Result<()>;

    /// Reads all trailers of the response, in their order: their names and values.
    fn read_response_trailers(&self, read: impl FnMut(&[u8], &[u8])) -> Result<()>;

    /// Sets a response header and replaces its old values.
    fn set_response_header(&mut self, name: &str, value: &str) -> Result<()>;

    /// Removes all values of a response header.
    fn remove_response_header(&mut self, name: &str) -> Result<()>;

    /// The chunk of the response body that has just arrived.
    fn response_chunk(&self) -> Result<Cow<'_, [u8]>>;

    /// Replaces that chunk.
    fn replace_response_chunk(&mut self, bytes: &[u8]) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_its_text_whatever_endpoint_is_likely() {
        let endpoint = |address: &str| Endpoint::new("a".to_owned(), address.parse().unwrap(), vec![]);
        let (four, six) = (endpoint("10.0.0.1:8000"), endpoint("[2001:db8::1]:8000"));
        for text in
            ["10.0.0.1:8000", "10.0.0.1:80", "10.0.0.2:8000", "[2001:db8::1]:8000", "[2001:db8:0::1]:8000"]
        {
            let address = Some(text.parse().unwrap());
            for likely in [None, Some(&four), Some(&six)] {
                assert_eq!(parse_address(text.as_bytes(), likely), address, "{text} {likely:?}");
            }
        }
        for text in ["", "10.0.0.1", "envoy", "10.0.0.1:8000 "] {
            assert_eq!(parse_address(text.as_bytes(), Some(&four)), None, "{text}");
        }
        assert_eq!(parse_address(b"\xff", Some(&four)), None);
    }
}
