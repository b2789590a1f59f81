//! The interface to the proxy that the engine runs in.

pub(crate) mod error_body;
pub mod headers;
pub mod metadata;

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::borrow::Cow;

use endpoint_picker::headers::HeaderList;

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

/// Has the proxy call [`Exchange::resumed`](crate::exchange::Exchange::resumed) on the request's own thread. The [queue](crate::queue)
/// calls it from any thread, while it is locked; so it must not call the queue.
pub type Resume = Box<dyn Fn() + Send>;

/// One request in a proxy, from its head to the end of its response.
pub trait Proxy {
    /// Time since an origin that all workers of the proxy share.
    fn now(&self) -> Result<Duration>;

    /// The way to resume this request from any thread, for a proxy whose store has a [queue](crate::queue).
    fn resume(&self) -> Result<Resume> {
        Err(ProxyError { call: "resume", status: "requests do not wait in this proxy".to_owned() })
    }

    /// All request headers.
    fn request_headers(&self) -> Result<HeaderList>;

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

    /// One value of the request's filter metadata: a [packed](endpoint_picker::request::packed) list, or the bytes of a string.
    fn metadata(&self, namespace: &str, key: &str) -> Result<Option<Vec<u8>>>;

    /// Leaves a value in the request's metadata, for the cluster and the access log.
    fn set_metadata(&mut self, metadata: &Metadata<'_>) -> Result<()>;

    /// The pool that an endpoint picker earlier in the chain has picked for.
    fn picked_for(&self) -> Result<Option<Vec<u8>>>;

    /// Marks the request as picked for this pool. A client must not be able to set the mark.
    fn mark_picked(&mut self, pool: &str) -> Result<()>;

    /// Responds to the request instead of a server.
    fn send_response(&mut self, status: u16, headers: &[(&str, &str)], body: &[u8]) -> Result<()>;

    /// The address of the server that was tried last; `None` if none was.
    fn upstream_address(&self) -> Result<Option<SocketAddr>>;

    /// The number of attempts so far, the last one included; `None` if the proxy does not know it.
    fn attempts(&self) -> Option<u64>;

    /// Envoy's response code details: `via_upstream`, or the reason why the proxy responded itself.
    fn response_details(&self) -> Result<Vec<u8>>;

    /// Reads all response headers, in their order: their names and values.
    fn read_response_headers(&self, read: impl FnMut(&[u8], &[u8])) -> Result<()>;

    /// Sets a response header and replaces its old values.
    fn set_response_header(&mut self, name: &str, value: &str) -> Result<()>;

    /// Removes all values of a response header.
    fn remove_response_header(&mut self, name: &str) -> Result<()>;

    /// The chunk of the response body that has just arrived.
    fn response_chunk(&self) -> Result<Cow<'_, [u8]>>;

    /// Replaces that chunk.
    fn replace_response_chunk(&mut self, bytes: &[u8]) -> Result<()>;
}
