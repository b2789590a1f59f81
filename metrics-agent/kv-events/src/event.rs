//! Events of KV caches: blocks that a model server has stored and removed.

/// A server's name of a block, 64 bits. Servers write it as an integer with or without a sign, or as bytes,
/// the last eight of which count.
pub type BlockHash = u64;

/// A change of a server's KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks were stored.
    Stored(Stored),
    /// Blocks were removed.
    Removed(Removed),
    /// All blocks were removed.
    Cleared,
}

/// Blocks that were stored, each the parent of the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The block before the first one; `None`: the first one begins a prompt.
    pub parent: Option<BlockHash>,
    /// At least one.
    pub blocks: Vec<Block>,
    /// Tokens of each block; 0: the event has no tokens, as of blocks that move to a lower tier.
    pub block_size: usize,
    /// The tokens of all blocks.
    pub tokens: Vec<u32>,
    /// The tier that has stored them.
    pub tier: StorageTier,
    /// The group of KV caches of a hybrid model.
    pub group: u32,
    /// Whether a block of the group is of use for every later token, and not only for tokens nearby.
    pub is_full_attention: bool,
    /// The LoRA adapter.
    pub adapter: Option<Vec<u8>>,
    /// The salt of a prompt; only the event with a prompt's first block has it.
    pub salt: Option<Vec<u8>>,
}

/// A stored block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The server's name of the block, which depends on all blocks before it.
    pub hash: BlockHash,
    /// Further keys that distinguish the block, such as images, in the server's encoding; empty: none.
    pub extra: Vec<u8>,
}

/// Blocks that were removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The blocks.
    pub blocks: Vec<BlockHash>,
    /// The tier that has removed them.
    pub tier: StorageTier,
    /// The group of KV caches.
    pub group: u32,
}

/// The memory in which a block is stored. A faster tier is less than a slower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorageTier {
    /// The accelerator's memory.
    Gpu,
    /// The host's memory.
    Cpu,
    /// Disks and remote storage.
    Storage,
}

impl StorageTier {
    /// All tiers, the fastest first.
    pub const ALL: [Self; 3] = [Self::Gpu, Self::Cpu, Self::Storage];

    /// The value of a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
            Self::Storage => "storage",
        }
    }
}
