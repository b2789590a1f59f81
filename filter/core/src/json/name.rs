//! Names of members.

use core::cmp::Ordering;
use core::ops::Deref;

use super::string::Str;

/// The name of a member. One that the body spells with escapes is copied, without the heap unless it is long:
/// there may be one in each five bytes of a body.
#[derive(Clone, Debug)]
pub(crate) struct Name<'a>(Spelling<'a>);

#[derive(Clone, Debug)]
enum Spelling<'a> {
    /// The part of the body between the quotes.
    Plain(&'a str),
    /// The first bytes are the name.
    Short([u8; SHORT], u8),
    Long(Box<str>),
}

/// Maximum number of bytes of a copy that is not on the heap. A name has the size of a `String` with it: two
/// bytes are its length and the variant.
const SHORT: usize = size_of::<String>() - 2;

impl<'a> Name<'a> {
    pub(crate) fn new(text: Str<'a, '_>) -> Self {
        if let Some(plain) = text.in_body() {
            return Self(Spelling::Plain(plain));
        }
        let mut bytes = [0; SHORT];
        let short = bytes.get_mut(..text.len()).zip(u8::try_from(text.len()).ok());
        Self(match short {
            Some((place, length)) => {
                place.copy_from_slice(text.as_bytes());
                Spelling::Short(bytes, length)
            }
            None => Spelling::Long(Box::from(&*text)),
        })
    }

    /// A copy of a name.
    pub(crate) fn copy(name: &str) -> Name<'static> {
        Name::new(Str::copied(name))
    }

    /// Whether the body spells it without escapes.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.0, Spelling::Plain(_))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Spelling::Plain(name) => name.as_bytes(),
            Spelling::Short(bytes, length) => bytes.get(..usize::from(*length)).unwrap_or_default(),
            Spelling::Long(name) => name.as_bytes(),
        }
    }
}

impl Deref for Name<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Spelling::Plain(name) => name,
            Spelling::Short(..) => core::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Spelling::Long(name) => name,
        }
    }
}

impl PartialEq for Name<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name<'_> {}

impl PartialOrd for Name<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As texts are ordered: by their bytes.
impl Ord for Name<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn a_copy_is_the_name_however_long_it_is() {
        assert_eq!(size_of::<Name<'_>>(), size_of::<String>());
        let names = ["", "a", "é", &"x".repeat(SHORT), &"x".repeat(SHORT + 1), &"é".repeat(1000)];
        for (at, name) in names.iter().enumerate() {
            let (copy, plain) = (Name::copy(name), Name(Spelling::Plain(name)));
            assert_eq!((&*copy, &copy), (*name, &plain));
            for (other_at, other) in names.iter().enumerate() {
                assert_eq!(copy.cmp(&Name(Spelling::Plain(other))), name.cmp(other), "{at} {other_at}");
            }
        }
    }
}
