//! The sample of requests that are recorded.

use xxhash_rust::xxh64::xxh64;

use crate::request::prompt::BYTES_PER_TOKEN;

/// Maximum number of blocks of a recorded prompt: as the rules look up by default. Further ones are left out.
pub const MAX_RECORDED_BLOCKS: usize = 2048;

/// Tokens of a block where no rule reads prompts: the EPP's smallest block.
pub const RECORDED_BLOCK_TOKENS: u32 = 64;

/// Bytes of a prompt that are hashed where no rule reads prompts.
pub const RECORDED_PROMPT_BYTES: usize =
    MAX_RECORDED_BLOCKS * RECORDED_BLOCK_TOKENS as usize * BYTES_PER_TOKEN;

/// The requests that are recorded. All requests of one session are, or none: also in other proxies and after
/// a restart, as long as the key stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSample {
    /// The seed of the hash.
    pub key: u64,
    /// The greatest hash that is recorded.
    pub limit: u64,
}

impl RecordSample {
    /// Whether requests of this id are recorded.
    pub fn contains(&self, id: u64) -> bool {
        xxh64(&id.to_le_bytes(), self.key) <= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn a_sample_has_its_share_of_ids_and_another_key_has_others() {
        let sample = |key| RecordSample { key, limit: u64::MAX / 10 };
        let ids = |key| (0..10_000).filter(|&id| sample(key).contains(id)).collect::<Vec<u64>>();
        assert!((900..1100).contains(&ids(1).len()), "{}", ids(1).len());
        assert_eq!(ids(1), ids(1));
        assert!(ids(1).iter().filter(|id| ids(2).contains(id)).count() < 200);
        assert!((0..100).all(|id| RecordSample { key: 7, limit: u64::MAX }.contains(id)));
    }
}
