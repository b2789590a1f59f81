//! A request on its way to the endpoints it was routed to.

use core::net::SocketAddr;
use core::time::Duration;

use endpoint_picker::cycle::Load;

use crate::host;

/// Where a request was routed, and what it adds to the load there.
#[derive(Debug, Default)]
pub(crate) struct Pick {
    /// Keys of the endpoints that it goes to, in the order in which they are tried.
    pub(crate) destinations: Vec<u64>,
    pub(crate) reservations: Vec<Charged>,
    /// When, since the epoch.
    pub(crate) at: Duration,
}

/// What a request adds to an endpoint's load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charged {
    /// The endpoint's key.
    pub(crate) endpoint: u64,
    pub(crate) prefill: Load,
    pub(crate) response: Load,
}

/// An answer that begins, as Envoy tells of it.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Who was asked last; `None` when nobody was.
    pub(crate) from: Option<SocketAddr>,
    /// Nothing came, or an error of the server's.
    pub(crate) is_failure: bool,
}

impl Answer {
    /// The answer to the request at hand, of this status.
    pub(crate) fn of_status(status: u16) -> host::Result<Self> {
        let from = host::upstream_address()?;
        let is_failure = from.is_some() && status >= 500 && is_the_servers(&host::response_details()?);
        Ok(Self { from, is_failure })
    }
}

/// Whether the server that was asked is to blame for an error. It is not when Envoy would not ask it, because more is under
/// way there than its circuit breakers allow, and when a filter answered.
fn is_the_servers(details: &[u8]) -> bool {
    let of_server: [&[u8]; 4] = [
        b"via_upstream",
        b"upstream_reset_before_response_started{",
        b"upstream_per_try_timeout",
        b"response_timeout",
    ];
    of_server.iter().any(|known| details.starts_with(known))
        && !details.windows(b"{overflow".len()).any(|part| part == b"{overflow")
}
