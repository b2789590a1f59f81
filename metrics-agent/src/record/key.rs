//! The key of the hashes in a record. Without it, a reader cannot tell whether a hash belongs to a guessed
//! text.

use core::fmt;
use core::hash::Hasher;
#[expect(deprecated, reason = "the standard library's other hashers take no key")]
use core::hash::SipHasher;
use std::io;
use std::path::Path;

use metrics_agent_support::files;

/// Numbers of a record are below this: every JSON reader has them exactly.
const MAX_NUMBER: u64 = 1 << 53;

/// A key of SipHash-2-4. Two runs with the same key give equal hashes, so their records can be joined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RecordKey(u64, u64);

/// The use of a hash, so that hashes of one value for two uses are different.
#[derive(Clone, Copy, Debug)]
pub(super) enum HashUse {
    Session,
    Tenant,
    Block,
    Sample,
}

impl RecordKey {
    /// A random key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
        Ok(Self::of(bytes))
    }

    /// The key in a file: 32 hexadecimal digits.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = files::read(path).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let is_key = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let key = u128::from_str_radix(text, 16).ok().filter(|_| is_key);
        key.map(|key| Self::of(key.to_be_bytes())).ok_or_else(|| "must have 32 hexadecimal digits".to_owned())
    }

    fn of(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "both halves")]
        Self(number as u64, (number >> 64) as u64)
    }

    /// The hash of a value.
    pub(super) fn hash(self, of: HashUse, value: u64) -> u64 {
        let mut bytes = [of as u8; 9];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        self.hash_bytes(&bytes)
    }

    /// The hash of a value as a number of a record.
    pub(super) fn number(self, of: HashUse, value: u64) -> u64 {
        self.hash(of, value) % MAX_NUMBER
    }

    fn hash_bytes(self, bytes: &[u8]) -> u64 {
        #[expect(deprecated, reason = "as above")]
        let mut hasher = SipHasher::new_with_keys(self.0, self.1);
        hasher.write(bytes);
        hasher.finish()
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key in the paper.
    const PAPERS_KEY: u128 = 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f;

    #[test]
    fn hashes_are_those_of_siphash_and_depend_on_the_key_and_the_use() {
        let bytes = PAPERS_KEY.to_be_bytes();
        let key = RecordKey::of(bytes);
        // The example in appendix A of the paper of SipHash.
        assert_eq!(key.hash_bytes(&bytes[..15]), 0xa129_ca61_49be_45e5);
        let other = RecordKey::random().unwrap();
        assert_ne!(other, RecordKey::random().unwrap());
        assert_ne!(key.hash(HashUse::Block, 1), other.hash(HashUse::Block, 1));
        assert_ne!(key.hash(HashUse::Block, 1), key.hash(HashUse::Session, 1));
        assert!((0..1000).all(|value| key.number(HashUse::Block, value) < MAX_NUMBER));
    }

    #[test]
    fn a_key_file_has_32_hexadecimal_digits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for (text, is_key) in [
            ("000102030405060708090a0b0c0d0e0f\n", true),
            ("", false),
            ("000102030405060708090a0b0c0d0e0", false),
            ("+00102030405060708090a0b0c0d0e0f", false),
            ("xyz102030405060708090a0b0c0d0e0f", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(RecordKey::read(&path).is_ok(), is_key, "{text:?}");
        }
        std::fs::write(&path, "000102030405060708090a0b0c0d0e0f").unwrap();
        assert_eq!(RecordKey::read(&path), Ok(RecordKey::of(PAPERS_KEY.to_be_bytes())));
    }
}
