//! The output of one generation that the client has, for the comparison with the same generation at another
//! server.

use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

/// The byte before a place. Text has no such byte.
const PLACE: u8 = 0xff;

/// Bytes of a place.
const PLACE_BYTES: usize = 1 + size_of::<u64>();

/// The place of a text in a response, or an event without text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u64);

impl Place {
    /// The text of a chat or completion.
    pub(super) const TEXT: Self = Self(0);
    /// The reasoning of a chat.
    pub(super) const REASONING: Self = Self(1);

    /// The place with these names and numbers.
    pub(super) fn of(names: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// The output that is generated again is not the one that the client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DifferentOutput;

/// The texts of a generation with their places, and the part of them that the current response has repeated.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    written: Vec<u8>,
    /// Bytes that the current response has repeated or added.
    passed: usize,
    /// The place of the current response's last text.
    place: Option<Place>,
    has_more_than_text: bool,
    is_forgotten: bool,
}

impl Transcript {
    /// The part of a text of the current response that the client does not have, which is kept.
    pub(super) fn text<'t>(&mut self, place: Place, text: &'t str) -> Result<&'t str, DifferentOutput> {
        if text.is_empty() || self.is_forgotten {
            return Ok(text);
        }
        if self.place != Some(place) {
            self.enter(place)?;
            self.place = Some(place);
        }
        let known = self.written.get(self.passed..).unwrap_or_default();
        let common = known.len().min(text.len());
        if known.get(..common) != text.as_bytes().get(..common) {
            return Err(DifferentOutput);
        }
        let new = text.get(common..).ok_or(DifferentOutput)?;
        self.written.extend_from_slice(new.as_bytes());
        self.passed += text.len();
        Ok(new)
    }

    /// An event of the current response without text. Whether it is new to the client.
    pub(super) fn event(&mut self, place: Place) -> Result<bool, DifferentOutput> {
        self.place = None;
        if self.is_forgotten { Ok(true) } else { self.enter(place) }
    }

    fn enter(&mut self, Place(number): Place) -> Result<bool, DifferentOutput> {
        let known = self.written.get(self.passed..).unwrap_or_default();
        let mut bytes = core::iter::once(PLACE).chain(number.to_le_bytes());
        let is_new = known.is_empty();
        if is_new {
            self.written.extend(bytes);
            self.has_more_than_text |= Place(number) != Place::TEXT;
        } else if !bytes.by_ref().eq(known.iter().copied().take(PLACE_BYTES)) {
            return Err(DifferentOutput);
        }
        self.passed += PLACE_BYTES;
        Ok(is_new)
    }

    /// The generation begins again.
    pub(super) fn repeat(&mut self) {
        (self.passed, self.place) = (0, None);
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.written.len()
    }

    /// Whether the client has output that the current response has not repeated yet.
    pub(super) fn is_repeating(&self) -> bool {
        self.passed < self.written.len()
    }

    /// The text, if the generation has nothing else.
    pub(super) fn only_text(&self) -> Option<&str> {
        let text = self.written.get(PLACE_BYTES..).unwrap_or_default();
        if self.has_more_than_text { None } else { core::str::from_utf8(text).ok() }
    }

    /// A new generation begins.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Frees all, and takes each output for new from now on.
    pub(super) fn forget(&mut self) {
        *self = Self { is_forgotten: true, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: Place = Place(7);

    fn written() -> Transcript {
        let mut transcript = Transcript::default();
        assert_eq!(transcript.text(Place::REASONING, "hm ü"), Ok("hm ü"));
        assert_eq!(transcript.text(Place::TEXT, "so"), Ok("so"));
        assert_eq!(transcript.event(OTHER), Ok(true));
        transcript.repeat();
        transcript
    }

    #[test]
    fn only_the_rest_of_a_repeated_generation_is_new_however_it_is_cut() {
        for parts in [&["hm ü"][..], &["h", "m", " ü"], &["", "hm ", "ü", ""]] {
            let mut transcript = written();
            for part in parts {
                assert_eq!(transcript.text(Place::REASONING, part), Ok(""));
            }
            assert_eq!(transcript.text(Place::TEXT, "so"), Ok(""));
            assert!(transcript.is_repeating());
            assert_eq!(transcript.event(OTHER), Ok(false));
            assert!(!transcript.is_repeating());
            assert_eq!(transcript.event(OTHER), Ok(true));
            assert_eq!(transcript.text(Place::TEXT, "new"), Ok("new"));
        }
        let mut transcript = Transcript::default();
        transcript.text(Place::TEXT, "abc").unwrap();
        assert_eq!(transcript.only_text(), Some("abc"));
        transcript.repeat();
        assert_eq!(transcript.text(Place::TEXT, "abcd"), Ok("d"));
        transcript.event(OTHER).unwrap();
        assert_eq!(transcript.only_text(), None);
    }

    #[test]
    fn another_text_or_place_is_a_difference() {
        for (place, text) in [
            (Place::REASONING, "hm u"),
            (Place::REASONING, "hm üx"),
            (Place::REASONING, "hm \u{fd}"),
            (Place::TEXT, "hm ü"),
            (OTHER, "h"),
        ] {
            assert_eq!(written().text(place, text), Err(DifferentOutput), "{text}");
        }
        assert_eq!(written().event(OTHER), Err(DifferentOutput));
        let mut transcript = written();
        transcript.forget();
        assert_eq!(transcript.text(OTHER, "x"), Ok("x"));
        assert!(!transcript.is_repeating());
    }
}
