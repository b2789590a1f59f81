//! Keys of cached prefixes by their text, as the metrics agent publishes them and the picker looks them up.
//!
//! The key of a prefix is a hash of the text behind the prefix before it, whose key is the hash's seed. The first prefix of a prompt follows a
//! root: one for each model or adapter, and salt. The hash is not cryptographic: a client can make a prompt of the same key as another one,
//! and so mislead the picker about where both are cached.

use xxhash_rust::xxh64::xxh64;

/// The key before a prompt for this served name of a base model, or this adapter.
pub fn root(model_or_adapter: &str, salt: Option<&str>) -> u64 {
    let root = xxh64(model_or_adapter.as_bytes(), 0);
    // Not a child of the root, which a prompt could have whose text is the salt.
    salt.map_or(root, |salt| xxh64(salt.as_bytes(), !root))
}

/// The key of the prefix that has this text behind `parent`.
pub fn child(parent: u64, text: &[u8]) -> u64 {
    xxh64(text, parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    /// Agents and proxies of different versions have to agree.
    #[test]
    fn keys_stay_the_same() {
        assert_eq!(root("m", None), 0xba2e_5670_83a2_b2e8);
        assert_eq!(root("m", Some("s")), 0x22c1_27de_7a39_7793);
        assert_eq!(child(root("m", None), b"text"), 0x1fe9_363c_e4ee_a622);
    }

    #[test]
    fn models_salts_and_texts_have_keys_of_their_own() {
        let base = root("a", None);
        let mut keys =
            vec![base, root("b", None), root("a", Some("")), root("a", Some("b")), child(base, b"b")];
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 5);
    }
}
