//! Requests that another picker has routed: they pass unchanged, and its choice is compared with the own
//! decision.

use core::net::{AddrParseError, SocketAddr};

use endpoint_picker::headers::Headers;
use endpoint_picker_wire::statistics::Count;

use super::head::RequestHead;
use super::{Flow, Progress, Turn};
use crate::metrics::MetricSink;
use crate::proxy::headers::{DESTINATION, ENCODERS, PREFILLER, RANK};
use crate::proxy::{Proxy, Result};
use crate::worker_pool::decision::PickAddresses;
use crate::worker_pool::store::PoolStore;

/// Maximum number of addresses of a list that are read. Each is searched for in the pool, and a client may
/// have written the list.
const MAX_ADDRESSES: usize = 16;

/// Maximum length of an `ip:port`, in bytes.
const MAX_ADDRESS_BYTES: usize = 47;

/// A request that another picker has routed, while its body is read as it passes.
#[derive(Debug)]
pub(super) struct RoutedRequest {
    pub(super) pick: PickAddresses,
    /// The beginning of the body that has passed.
    pub(super) body: Vec<u8>,
}

impl RoutedRequest {
    /// Keeps the chunk that is passing, up to `max_bytes` of the body. Returns whether all of it is kept.
    pub(super) fn keep_chunk(&mut self, proxy: &impl Proxy, max_bytes: usize) -> Result<bool> {
        let chunk = proxy.request_chunk()?;
        let room = max_bytes.saturating_sub(self.body.len());
        self.body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        Ok(chunk.len() <= room)
    }
}

impl<S: PoolStore, M: MetricSink, P: Proxy> Turn<'_, S, M, P> {
    /// Reads the head of a request, and compares the choice or waits for the body. Requests without a body
    /// are not compared: they go to any endpoint.
    pub(super) fn begin_to_compare(&mut self, has_body: bool) -> Result<Flow> {
        let Self { exchange, pool, proxy } = self;
        // Decided until the choice can be compared, so that after an early return no body is read.
        let reading = core::mem::replace(&mut exchange.progress, Progress::Decided);
        exchange.head = RequestHead::read(*proxy, &pool.config.explain)?;
        if !has_body {
            return Ok(Flow::Continue);
        }
        // Another filter of this picker for the same pool has recorded the request already, and counts it
        // itself.
        let is_recorded = |proxy: &P| -> Result<bool> {
            Ok(proxy.picked_for()?.is_some_and(|picked| picked == pool.config.pool.as_bytes()))
        };
        match read(exchange.head.headers()) {
            Some(pick) if pool.view().versions().is_some() && !is_recorded(proxy)? => {
                exchange.other = Some(Box::new(RoutedRequest { pick, body: Vec::new() }));
                exchange.progress = reading;
                self.decide_by_head(true)
            }
            Some(_) | None => {
                pool.metrics.count(Count::ShadowNotCompared);
                Ok(Flow::Continue)
            }
        }
    }
}

/// Reads the choice from the headers; `None` if no picker has chosen.
fn read(headers: Headers<'_>) -> Option<PickAddresses> {
    let list = headers.get(DESTINATION).filter(|list| !list.is_empty())?;
    // The destination is a port that all ranks of the server share, but load and prompt belong to the rank.
    let list = headers.get(RANK).unwrap_or(list);
    let first = list.split(',').next().unwrap_or_default().trim();
    Some(PickAddresses {
        first: first.chars().take(MAX_ADDRESS_BYTES).collect(),
        destinations: addresses(list).map_while(core::result::Result::ok).collect(),
        prefill: headers.get(PREFILLER).and_then(|list| addresses(list).next()?.ok()),
        encode: headers
            .get(ENCODERS)
            .map_or_else(Vec::new, |list| addresses(list).filter_map(core::result::Result::ok).collect()),
    })
}

fn addresses(list: &str) -> impl Iterator<Item = core::result::Result<SocketAddr, AddrParseError>> {
    list.split(',').take(MAX_ADDRESSES).map(|address| address.trim().parse())
}

#[cfg(test)]
mod tests {
    use endpoint_picker::headers::HeaderList;

    use super::*;

    fn pick(headers: &[(&str, &str)]) -> Option<PickAddresses> {
        let mut list = HeaderList::default();
        for (name, value) in headers {
            list.push(name.as_bytes(), value.as_bytes());
        }
        read(Headers(&list))
    }

    #[test]
    fn the_destinations_are_read_in_order_up_to_the_first_without_an_address() {
        let list = "10.0.0.1:8000,[2001:db8::1]:8000, 10.0.0.3:8000,server:8000,10.0.0.4:8000";
        let pick = pick(&[(DESTINATION, list)]).unwrap();
        let expected = ["10.0.0.1:8000", "[2001:db8::1]:8000", "10.0.0.3:8000"];
        assert_eq!(pick.destinations, expected.map(|address| address.parse().unwrap()));
        assert_eq!((pick.first.as_str(), pick.prefill), ("10.0.0.1:8000", None));
    }

    #[test]
    fn without_a_destination_nothing_is_chosen() {
        assert_eq!(pick(&[(PREFILLER, "10.0.0.1:8000")]), None);
        assert_eq!(pick(&[(DESTINATION, "")]), None);
    }

    #[test]
    fn other_stages_and_the_rank_are_read() {
        let pick = pick(&[
            (DESTINATION, "10.0.0.1:8000"),
            (RANK, "10.0.0.1:8002"),
            (PREFILLER, "10.0.0.2:8000"),
            (ENCODERS, "10.0.0.3:8000,x,10.0.0.4:8000"),
        ])
        .unwrap();
        let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
        assert_eq!(pick.destinations, [at("10.0.0.1:8002")]);
        assert_eq!(pick.prefill, Some(at("10.0.0.2:8000")));
        assert_eq!(pick.encode, [at("10.0.0.3:8000"), at("10.0.0.4:8000")]);
    }

    #[test]
    fn a_long_list_and_a_long_name_are_cut() {
        let list = vec!["10.0.0.1:8000"; 1000].join(",");
        assert_eq!(pick(&[(DESTINATION, &list)]).unwrap().destinations.len(), MAX_ADDRESSES);
        let name = pick(&[(DESTINATION, &"x".repeat(1000))]).unwrap();
        assert_eq!((name.first.len(), name.destinations.len()), (MAX_ADDRESS_BYTES, 0));
    }
}
