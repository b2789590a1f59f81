//! The subset hint: endpoints an earlier filter restricts the choice to.

use core::net::SocketAddr;

use hashbrown::HashSet;

use crate::pool::Endpoint;
use crate::request::packed;
use crate::rng::{Rng, shuffle};

/// Which endpoints of the pool may be candidates.
///
/// Entries are `ip:port` and match with their port, unlike the EPP, which ignores it (the endpoint picker
/// protocol says `ip:port`, and ranks of one server differ only there). Any other entry matches
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subset {
    /// No hint was given.
    #[default]
    All,
    /// Only these; may be empty, and then nothing is eligible.
    Only(HashSet<SocketAddr>),
}

impl Subset {
    /// From the items of a list value.
    pub fn from_items<'a>(items: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Only(items.into_iter().filter_map(|item| item.trim().parse().ok()).collect())
    }

    /// From a comma-separated string, the hint's other form.
    pub fn from_comma_separated(text: &str) -> Self {
        Self::from_items(text.split(','))
    }

    /// From the value of the hint in Envoy's metadata, as a filter is handed it: a list of texts, or the
    /// bytes of a text. Whatever else it may be, such as a number or a list with a number in it, names no
    /// endpoint.
    pub fn from_metadata(value: &[u8]) -> Self {
        let Some(items) = packed::items(value) else {
            return text(value).map_or_else(|| Self::from_items([]), Self::from_comma_separated);
        };
        let items: Option<Vec<&str>> = items.into_iter().map(text).collect();
        Self::from_items(items.unwrap_or_default())
    }

    /// Whether there is a hint.
    pub fn is_hint(&self) -> bool {
        matches!(self, Self::Only(_))
    }

    /// The addresses of the hint in random order; `None` without a hint.
    pub fn shuffled(&self, rng: &mut dyn Rng) -> Option<Vec<SocketAddr>> {
        let Self::Only(addresses) = self else { return None };
        let mut addresses: Vec<SocketAddr> = addresses.iter().copied().collect();
        // The set's own order differs between runs.
        addresses.sort_unstable();
        shuffle(&mut addresses, rng);
        Some(addresses)
    }

    /// Whether the hint allows this endpoint.
    pub fn allows(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::All => true,
            Self::Only(addresses) => addresses.contains(&endpoint.address()),
        }
    }
}

/// The text of an item. Numbers, booleans and nested values come as bytes of their representation, which have
/// control characters.
fn text(item: &[u8]) -> Option<&str> {
    let is_binary = |c: char| c.is_control() && !c.is_whitespace();
    core::str::from_utf8(item).ok().filter(|text| !text.contains(is_binary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::test;

    fn allowed(subset: &Subset, address: &str) -> bool {
        subset.allows(&Endpoint::new("default/a".to_owned(), address.parse().unwrap(), vec![]))
    }

    #[test]
    fn no_hint_allows_every_endpoint() {
        assert!(allowed(&Subset::All, "10.0.0.1:8000"));
    }

    #[test]
    fn an_entry_matches_with_its_port() {
        let subset = Subset::from_items(["10.0.0.1:8000", "10.0.0.2:9000"]);
        assert!(allowed(&subset, "10.0.0.1:8000"));
        assert!(allowed(&subset, "10.0.0.2:9000"));
        assert!(!allowed(&subset, "10.0.0.1:9000"));
    }

    #[test]
    fn a_comma_separated_string_is_a_list() {
        let subset = Subset::from_comma_separated("10.0.0.1:8000, [2001:db8::1]:8000");
        assert!(allowed(&subset, "10.0.0.1:8000"));
        assert!(allowed(&subset, "[2001:db8:0::1]:8000"));
    }

    #[test]
    fn a_number_names_no_endpoint_whatever_its_bytes_are() {
        for number in [0.0, 1.0, -1.0, 1e300, f64::from_le_bytes(*b"10.0.0.1"), f64::from_le_bytes([0xff; 8])]
        {
            let subset = Subset::from_metadata(&number.to_le_bytes());
            assert_eq!(subset, Subset::from_items([]), "{number}");
        }
    }

    #[test]
    fn a_string_in_metadata_is_a_list() {
        let subset = Subset::from_metadata(b"10.0.0.1:8000,10.0.0.2:8000");
        assert!(allowed(&subset, "10.0.0.2:8000"));
    }

    #[test]
    fn every_address_of_a_hint_comes_first_equally_often() {
        let items: Vec<String> = (0..4).map(|port| format!("10.0.0.1:{port}")).collect();
        let subset = Subset::from_items(items.iter().map(String::as_str));
        let mut first = [0; 4];
        for seed in 0..8_000 {
            let addresses = subset.shuffled(&mut SplitMix64::new(seed)).unwrap();
            assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), 4, "seed {seed}");
            first[usize::from(addresses[0].port())] += 1;
        }
        assert!(first.iter().all(|count| (1_850..2_150).contains(count)), "{first:?}");
        assert_eq!(Subset::All.shuffled(&mut SplitMix64::new(1)), None);
    }

    #[test]
    fn a_list_with_an_item_that_is_no_text_allows_nothing() {
        let address = &b"10.0.0.1:8000"[..];
        let of = |item: &[u8]| Subset::from_metadata(&packed::list(&[b"x,10.0.0.1:8000,y", address, item]));
        for text in [&b""[..], b"x", b" \n", "\u{e9}".as_bytes()] {
            assert!(allowed(&of(text), "10.0.0.1:8000"), "{text:?}");
        }
        // Numbers, booleans, an empty object and a list.
        let values =
            [&5f64.to_ne_bytes()[..], &0.1f64.to_ne_bytes(), &[0], &[1], &[0; 4], &packed::list(&[address])];
        for value in values {
            assert!(!allowed(&of(value), "10.0.0.1:8000"), "{value:?}");
        }
    }

    #[test]
    fn an_empty_list_or_one_without_addresses_allows_nothing() {
        for subset in [
            Subset::from_items([]),
            Subset::from_comma_separated(""),
            Subset::from_items(["10.0.0.1", "x:1"]),
        ] {
            assert!(!allowed(&subset, "10.0.0.1:8000"), "{subset:?}");
        }
    }
}
