//! Texts of made-up words.

use endpoint_picker::rng::{Rng, SplitMix64};

/// Letters of the words: consonant, vowel, consonant. `tools/setup/field-model.py` makes the same words.
const CONSONANTS: &[u8] = b"bdfgklmnprstvwxz";
const VOWELS: &[u8] = b"aeio";

/// This many words, with a blank between two.
pub(crate) fn words(rng: &mut SplitMix64, count: usize) -> String {
    let mut letter = |letters: &[u8]| char::from(letters[rng.below(letters.len())]);
    let mut words = String::new();
    for _ in 0..count {
        words.extend([letter(CONSONANTS), letter(VOWELS), letter(CONSONANTS), ' ']);
    }
    words.pop();
    words
}
