//! The headers of a request or a response.

use core::fmt;
use core::ops::Range;

/// Header names in lower case with their values, which may be any bytes, in their order.
///
/// All bytes lie in one buffer, so that a list costs two allocations whatever its length.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HeaderList {
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// The [bits](Digest::bit) of all names, because most names that are looked up are not there.
    bits: u64,
}

/// The place of a header in the bytes of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    name: Digest,
    start: usize,
    /// The end of the name, where the value begins.
    middle: usize,
    end: usize,
}

/// A number of a name, the same in any case: of its length, its first byte and its last one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Digest(usize);

impl Digest {
    // Inlined, so that the digest of a name in the code is a constant.
    #[inline]
    fn of(name: &[u8]) -> Self {
        // The bit in which the cases of a letter differ is set.
        let letter = |byte: Option<&u8>| usize::from(byte.map_or(0, |byte| byte | 0x20));
        Self(name.len() + 7 * letter(name.first()) + 31 * letter(name.last()))
    }

    fn bit(self) -> u64 {
        1 << (self.0 % 64)
    }
}

impl HeaderList {
    /// An empty list.
    pub const EMPTY: Self = Self { bytes: Vec::new(), places: Vec::new(), bits: 0 };

    /// An empty list in the same memory, which gets room for headers that have this many bytes in all.
    #[must_use]
    pub fn emptied(self, (headers, bytes): (usize, usize)) -> Self {
        let Self { bytes: mut all, mut places, .. } = self;
        all.clear();
        all.reserve(bytes);
        places.clear();
        places.reserve(headers);
        Self { bytes: all, places, bits: 0 }
    }

    /// Whether there is no header.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Appends a header.
    #[inline]
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let (start, digest) = (self.bytes.len(), Digest::of(name));
        let middle = start + name.len();
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.places.push(Place { name: digest, start, middle, end: middle + value.len() });
        self.bits |= digest.bit();
    }

    /// All headers, names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places.iter().map(|place| (self.part(place.start..place.middle), self.value(place)))
    }

    fn value(&self, place: &Place) -> &[u8] {
        self.part(place.middle..place.end)
    }

    fn part(&self, part: Range<usize>) -> &[u8] {
        self.bytes.get(part).unwrap_or_default()
    }

    /// Whether there is a header of this name, in any case.
    #[inline]
    pub fn has(&self, name: &str) -> bool {
        let digest = Digest::of(name.as_bytes());
        self.may_have(digest) && self.find(name, digest, 0).is_some()
    }

    /// Whether a header may have a name of this digest.
    #[inline]
    fn may_have(&self, name: Digest) -> bool {
        self.bits & name.bit() != 0
    }

    /// The values under a name, in any case, in their order.
    pub fn values<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        self.values_of(name, Digest::of(name.as_bytes()))
    }

    fn values_of<'a>(&'a self, name: &str, digest: Digest) -> impl Iterator<Item = &'a [u8]> {
        let mut next = 0;
        core::iter::from_fn(move || {
            let (at, place) = self.find(name, digest, next)?;
            next = at + 1;
            Some(self.value(place))
        })
    }

    /// The next header of a name, in any case, from this place on. The digest is compared first, so that most
    /// names are never read.
    // A request looks up a dozen names, and copies of this search would be a tenth of the code that it
    // touches.
    #[inline(never)]
    fn find(&self, name: &str, digest: Digest, from: usize) -> Option<(usize, &Place)> {
        let rest = self.places.get(from..)?;
        let passed = rest.iter().position(|place| {
            place.name == digest && is_named(self.part(place.start..place.middle), name.as_bytes())
        })?;
        Some((from + passed, rest.get(passed)?))
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
        let digest = Digest::of(name.as_bytes());
        if self.0.may_have(digest) { self.first_text(name, digest) } else { None }
    }

    #[inline(never)]
    fn first_text(self, name: &str, digest: Digest) -> Option<&'a str> {
        self.texts(name, digest).find(|value| !value.is_empty())
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
        let values = self.texts("prefer", Digest::of(b"prefer"));
        let mut preferences = values.flat_map(|value| value.split(','));
        preferences.any(|one| {
            let token = one.split(';').next().unwrap_or_default();
            token.trim().eq_ignore_ascii_case(preference)
        })
    }

    /// The values under a name that are UTF-8.
    fn texts(&self, name: &str, digest: Digest) -> impl Iterator<Item = &'a str> {
        self.0.values_of(name, digest).filter_map(|value| core::str::from_utf8(value).ok())
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
