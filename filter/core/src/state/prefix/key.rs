//! Keys of cached prefixes by their text or their token ids, as the metrics agent publishes them and the
//! picker looks them up.
//!
//! The key of a prefix is a hash of the bytes behind the prefix before it, whose key is the hash's seed. The
//! first prefix of a prompt follows a root: one for the texts of each model or adapter and salt, and one for
//! their token ids. The hash is not cryptographic: a client can make a prompt of the same key as another one,
//! and so mislead the picker about where both are cached.

use xxhash_rust::xxh64::xxh64;

/// The key before the text of a prompt for this served name of a base model, or this adapter.
pub fn root(model_or_adapter: &str, salt: Option<&str>) -> u64 {
    salted(xxh64(model_or_adapter.as_bytes(), 0), salt)
}

/// The key before the token ids of such a prompt.
pub fn root_of_token_ids(model_or_adapter: &str, salt: Option<&str>) -> u64 {
    salted(xxh64(model_or_adapter.as_bytes(), 1), salt)
}

fn salted(root: u64, salt: Option<&str>) -> u64 {
    // Not a child of the root, which a prompt could have whose text is the salt.
    salt.map_or(root, |salt| xxh64(salt.as_bytes(), !root))
}

/// The key of the prefix that has these bytes behind `parent`: UTF-8, or token ids of four bytes each,
/// little-endian.
pub fn child(parent: u64, bytes: &[u8]) -> u64 {
    xxh64(bytes, parent)
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
        assert_eq!(root_of_token_ids("m", None), 0x394c_0a2d_8b1e_e6d8);
        assert_eq!(child(root_of_token_ids("m", None), &7_u32.to_le_bytes()), 0x95a4_8eb4_1c3b_f0f0);
    }

    #[test]
    fn models_salts_and_texts_have_keys_of_their_own() {
        let base = root("a", None);
        let ids = root_of_token_ids("a", None);
        let mut keys = vec![
            base,
            root("b", None),
            root("a", Some("")),
            root("a", Some("b")),
            child(base, b"b"),
            ids,
            root_of_token_ids("b", None),
            root_of_token_ids("a", Some("b")),
            child(ids, b"b"),
        ];
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}
