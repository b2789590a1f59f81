//! A request's headers.

/// A request's headers, names in lower case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a>(pub &'a [(String, Vec<u8>)]);

impl<'a> Headers<'a> {
    /// The first value under this name (in any case) that is text and not empty.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.texts(name).find(|value| !value.is_empty())
    }

    /// The value under the first of two names that has one: a header and its older spelling.
    pub fn get_either(&self, names: [&str; 2]) -> Option<&'a str> {
        names.into_iter().find_map(|name| self.get(name))
    }

    /// Whether a `Prefer` header (RFC 7240) has this preference, in any case and whatever its value and parameters.
    pub fn prefers(&self, preference: &str) -> bool {
        let mut preferences = self.texts("prefer").flat_map(|value| value.split(','));
        preferences.any(|one| {
            let token = one.split(['=', ';']).next().unwrap_or_default();
            token.trim().eq_ignore_ascii_case(preference)
        })
    }

    /// The values under a name that are UTF-8.
    fn texts(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let named = self.0.iter().filter(move |(header, _)| header.eq_ignore_ascii_case(name));
        named.filter_map(|(_, value)| core::str::from_utf8(value).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn the_first_header_is_found_in_any_case_and_skips_empty_and_unreadable_values() {
        let headers = [("a", &b""[..]), ("a", &[0xff]), ("a", b"1"), ("b", b"2"), ("a", b"3")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_vec()));
        assert_eq!(Headers(&headers).get("A"), Some("1"));
        assert_eq!(Headers(&headers).get("b"), Some("2"));
        assert_eq!(Headers(&headers).get("c"), None);
    }
}
