//! The choice of another picker, as its headers name it.

use core::net::SocketAddr;

use endpoint_picker::headers::Headers;

use crate::proxy::headers::{DESTINATION, ENCODERS, PREFILLER, RANK};
use crate::worker_pool::comparison::PickAddresses;

/// Addresses of a list that are read. Each is searched for in the pool, and a client may have written the list.
const MOST_ADDRESSES: usize = 16;

/// Bytes of the longest `ip:port`.
const LONGEST_ADDRESS: usize = 47;

/// Reads the choice; `None` if no picker has chosen.
pub(super) fn read(headers: Headers<'_>) -> Option<PickAddresses> {
    let list = headers.get(DESTINATION).filter(|list| !list.is_empty())?;
    // The request goes to a port that all ranks of the server share; load and prompt are the rank's.
    let list = headers.get(RANK).unwrap_or(list);
    let first = list.split(',').next().unwrap_or_default().trim();
    Some(PickAddresses {
        first: first.chars().take(LONGEST_ADDRESS).collect(),
        destinations: addresses(list).map_while(Result::ok).collect(),
        prefill: headers.get(PREFILLER).and_then(|list| addresses(list).next()?.ok()),
        encode: headers
            .get(ENCODERS)
            .map_or_else(Vec::new, |list| addresses(list).filter_map(Result::ok).collect()),
    })
}

fn addresses(list: &str) -> impl Iterator<Item = Result<SocketAddr, core::net::AddrParseError>> {
    list.split(',').take(MOST_ADDRESSES).map(|address| address.trim().parse())
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
        assert_eq!(pick(&[(DESTINATION, &list)]).unwrap().destinations.len(), MOST_ADDRESSES);
        let name = pick(&[(DESTINATION, &"x".repeat(1000))]).unwrap();
        assert_eq!((name.first.len(), name.destinations.len()), (LONGEST_ADDRESS, 0));
    }
}
