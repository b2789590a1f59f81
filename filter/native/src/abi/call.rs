//! Requests that a filter sends itself in place of the router, and the response that it sends to the client.

use super::callbacks;
use super::request::RequestHandle;
use super::types::{Buffer, Header};

/// Names and values of headers.
pub(crate) type HeaderPairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The reset of a client's stream by the proxy.
const LOCAL_RESET: u32 = 0;

fn headers(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<Header> {
    pairs.iter().map(|(name, value)| Header::of_bytes(name, value)).collect()
}

/// Envoy may call other hooks of the request inside each of these calls, so nothing may borrow its state.
/// After the last chunk and after a reset the request may be destroyed.
impl RequestHandle<'_> {
    /// Sends a whole request to a cluster. Returns its number; `None` if Envoy does not send it.
    pub(crate) fn start_call(
        &mut self,
        cluster: &str,
        head: &[(Vec<u8>, Vec<u8>)],
        body: &[u8],
    ) -> Option<u64> {
        let mut number = 0;
        let head = headers(head);
        // SAFETY: the pointer is valid during the hook, the buffers and the result's place during the call.
        let result = unsafe {
            callbacks::http_filter_start_http_stream(
                self.filter(),
                &raw mut number,
                Buffer::of(cluster.as_bytes()),
                head.as_ptr(),
                head.len(),
                Buffer::of(body),
                true,
                0,
            )
        };
        (result == 0).then_some(number)
    }

    /// Resets a request that [`start_call`](Self::start_call) has sent.
    pub(crate) fn reset_call(&mut self, number: u64) {
        // SAFETY: the pointer is valid during the hook.
        unsafe { callbacks::http_filter_reset_http_stream(self.filter(), number) }
    }

    /// Sends the head of a response to the client.
    pub(crate) fn send_head(&mut self, head: &[(Vec<u8>, Vec<u8>)]) {
        let head = headers(head);
        // SAFETY: the pointer is valid during the hook, the buffers during the call.
        unsafe {
            callbacks::http_send_response_headers(self.filter(), head.as_ptr(), head.len(), false);
        }
    }

    /// Sends a chunk of the response's body to the client.
    pub(crate) fn send_chunk(&mut self, chunk: &[u8], is_last: bool) {
        // SAFETY: the pointer is valid during the hook, the buffer during the call.
        unsafe { callbacks::http_send_response_data(self.filter(), Buffer::of(chunk), is_last) }
    }

    /// Resets the client's stream. `details` are the response code details in the access log.
    pub(crate) fn reset(self, details: &str) {
        // SAFETY: the pointer is valid until the call, which consumes the handle; the buffer is during it.
        unsafe {
            callbacks::http_filter_reset_stream(self.filter(), LOCAL_RESET, Buffer::of(details.as_bytes()));
        }
    }
}
