//! The headers of a request or a response.

use core::fmt;

/// Header names in lower case with their values, which may be any bytes, in their order.
///
/// All bytes lie in one buffer, so that a list costs two allocations whatever its length.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HeaderList {
    bytes: Vec<u8>,
    /// The lengths of the name and the value of each header.
    lengths: Vec<(usize, usize)>,
    /// The [bits](bit) of all names, because most names that are looked up are not there.
    bits: u64,
}

/// The bit of a name, in any case: of its length, its first byte and its last one.
// Inlined, so that the bit of a name in the code is a constant.
#[inline]
fn bit(name: &[u8]) -> u64 {
    let letter = |byte: Option<&u8>| usize::from(byte.map_or(0, u8::to_ascii_lowercase));
    1 << ((name.len() + 7 * letter(name.first()) + 31 * letter(name.last())) % 64)
}

/// A place in a list, before one of its headers.
#[derive(Clone, Copy, Default)]
struct ListPlace {
    /// The number of headers before it.
    header: usize,
    /// The number of bytes before it.
    start: usize,
}

impl HeaderList {
    /// An empty list.
    pub const EMPTY: Self = Self { bytes: Vec::new(), lengths: Vec::new(), bits: 0 };

    /// An empty list in the same memory, which gets room for headers that have this many bytes in all.
    #[must_use]
    pub fn emptied(self, (headers, bytes): (usize, usize)) -> Self {
        let Self { bytes: mut all, mut lengths, .. } = self;
        all.clear();
        all.reserve(bytes);
        lengths.clear();
        lengths.reserve(headers);
        Self { bytes: all, lengths, bits: 0 }
    }

    /// Whether there is no header.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Appends a header.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.lengths.push((name.len(), value.len()));
        self.bits |= bit(name);
    }

    /// All headers, names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.lengths.iter().scan(self.bytes.as_slice(), |rest, &(name, value)| {
            let (name, behind) = rest.split_at_checked(name)?;
            let (value, behind) = behind.split_at_checked(value)?;
            *rest = behind;
            Some((name, value))
        })
    }

    /// Whether there is a header of this name, in any case.
    #[inline]
    pub fn has(&self, name: &str) -> bool {
        self.may_have(name) && self.find(name, &mut ListPlace::default()).is_some()
    }

    /// Whether a header may have this name.
    #[inline]
    fn may_have(&self, name: &str) -> bool {
        self.bits & bit(name.as_bytes()) != 0
    }

    /// The values under a name, in any case, in their order.
    pub fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let mut place = ListPlace::default();
        core::iter::from_fn(move || self.find(name, &mut place))
    }

    /// The next value under a name, in any case, from this place on, which moves behind it. The length is
    /// compared first, so that most names are never read.
    // A request looks up a dozen names, and copies of this search would be a tenth of the code that it
    // touches.
    #[inline(never)]
    fn find(&self, name: &str, place: &mut ListPlace) -> Option<&[u8]> {
        let mut start = place.start;
        for (passed, &(name_length, value_length)) in self.lengths.get(place.header..)?.iter().enumerate() {
            let middle = start + name_length;
            let end = middle + value_length;
            if name_length == name.len() && is_named(self.bytes.get(start..middle)?, name.as_bytes()) {
                *place = ListPlace { header: place.header + passed + 1, start: end };
                return self.bytes.get(middle..end);
            }
            start = end;
        }
        None
    }
}

/// Whether a header has this name, in any case. Most proxies pass names on in lower case.
fn is_named(header: &[u8], name: &[u8]) -> bool {
    header == name || header.eq_ignore_ascii_case(name)
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for HeaderList {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        let mut list = Self::EMPTY;
        headers.into_iter().for_each(|(name, value)| list.push(name.as_ref(), value.as_ref()));
        list
    }
}

impl fmt::Debug for HeaderList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(name, value): (&[u8], &[u8])| {
            (name.escape_ascii().to_string(), value.escape_ascii().to_string())
        };
        f.debug_map().entries(self.iter().map(text)).finish()
    }
}

/// A request's headers.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a>(pub &'a HeaderList);

impl Default for Headers<'_> {
    fn default() -> Self {
        static NONE: HeaderList = HeaderList::EMPTY;
        Self(&NONE)
    }
}

impl<'a> Headers<'a> {
    /// The first value under this name (in any case) that is text and not empty.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        if self.0.may_have(name) { self.first_text(name) } else { None }
    }

    #[inline(never)]
    fn first_text(self, name: &str) -> Option<&'a str> {
        self.texts(name).find(|value| !value.is_empty())
    }

    /// The value under the first of two names that has one: a header and its older spelling.
    #[inline]
    pub fn get_either(&self, [newer, older]: [&str; 2]) -> Option<&'a str> {
        self.get(newer).or_else(|| self.get(older))
    }

    /// Whether a `Prefer` header (RFC 7240) has this preference without a value, in any case and whatever its
    /// parameters.
    #[inline(never)]
    pub fn prefers(&self, preference: &str) -> bool {
        let mut preferences = self.texts("prefer").flat_map(|value| value.split(','));
        preferences.any(|one| {
            let token = one.split(';').next().unwrap_or_default();
            token.trim().eq_ignore_ascii_case(preference)
        })
    }

    /// The values under a name that are UTF-8.
    fn texts(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.values(name).filter_map(|value| core::str::from_utf8(value).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn the_first_header_is_found_in_any_case_and_skips_empty_and_unreadable_values() {
        let headers = [("a", &b""[..]), ("a", &[0xff]), ("a", b"1"), ("b", b"2"), ("a", b"3")];
        let headers: HeaderList = headers.into_iter().collect();
        assert_eq!(Headers(&headers).get("A"), Some("1"));
        assert_eq!(Headers(&headers).get("b"), Some("2"));
        assert_eq!(Headers(&headers).get("c"), None);
    }

    #[test]
    fn a_list_keeps_the_headers_in_their_order() {
        let pairs = [(&b"a"[..], &b"1"[..]), (b"b", b""), (b"a", b"\xff")];
        let list: HeaderList = pairs.into_iter().collect();
        assert_eq!(list.iter().collect::<Vec<_>>(), pairs);
        assert!(list.has("b") && !list.has("c"));
        assert_eq!(format!("{list:?}"), r#"{"a": "1", "b": "", "a": "\\xff"}"#);
    }
}
