//! The size of an endpoint's index.

/// The number of blocks that are remembered for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Blocks of which the whole cache of the endpoint has room for this many.
    pub blocks: usize,
    /// Whether the number is in force from now on. Otherwise the number of the endpoint's first addition
    /// stays in force, as in the EPP.
    pub is_current: bool,
    /// Whether only the [share](super::usage::Share) of them counts that the endpoint really has room for, as
    /// its usage shows.
    pub is_learnt: bool,
}

impl Capacity {
    const LEARNT: u64 = 1 << 63;
    const CURRENT: u64 = 1 << 62;

    /// A number that stays in force from the endpoint's first addition on.
    pub fn first(blocks: usize) -> Self {
        Self { blocks, is_current: false, is_learnt: false }
    }

    pub(super) fn word(self) -> u64 {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        self.blocks as u64 | flag(self.is_learnt, Self::LEARNT) | flag(self.is_current, Self::CURRENT)
    }

    pub(super) fn read(word: u64) -> Self {
        Self {
            blocks: usize::try_from(word & !(Self::LEARNT | Self::CURRENT)).unwrap_or(usize::MAX),
            is_current: word & Self::CURRENT != 0,
            is_learnt: word & Self::LEARNT != 0,
        }
    }
}
