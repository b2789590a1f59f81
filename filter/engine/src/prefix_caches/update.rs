//! A message of the agent about cached prefixes, in steps. A step of blocks takes little time; the first step
//! takes longer if it forgets blocks of some endpoints.

use core::fmt;
use std::sync::Arc;

use endpoint_picker::cached_prefixes::Block;
use endpoint_picker::request::cached_prompt::{Ranks, Tier};
use endpoint_picker_wire::prefixes::{Blocks, CacheState, CachedPrefixes, Model};
use endpoint_picker_wire::{DecodeError, Message as _, PREFIXES_FORMAT};

use super::ServedModels;

/// Maximum number of blocks of a step.
const STEP: usize = 1024;

/// A message of the agent about cached prefixes.
#[derive(Clone, Debug, PartialEq)]
pub struct CachesUpdate(CachedPrefixes);

/// Why a message cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub enum UpdateError {
    /// It is not the schema's protobuf.
    Malformed(DecodeError),
    /// It has another format than [`PREFIXES_FORMAT`]: the versions of agent and filter do not match.
    UnknownFormat(u32),
    /// The columns of its blocks have different lengths.
    Columns,
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "the cached prefixes are malformed: {error}"),
            Self::UnknownFormat(found) => write!(
                f,
                "the cached prefixes have format {found}, this filter reads format {PREFIXES_FORMAT}: update the older side"
            ),
            Self::Columns => f.write_str("the columns of the cached prefixes have different lengths"),
        }
    }
}

impl core::error::Error for UpdateError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            Self::UnknownFormat(_) | Self::Columns => None,
        }
    }
}

/// A step of an update.
#[derive(Debug)]
pub enum Step<'a> {
    /// The first step.
    Begin {
        /// Whether all earlier blocks are forgotten.
        is_whole: bool,
        /// All endpoints whose events are followed.
        caches: &'a [CacheState],
        /// All models, if they have changed.
        models: Option<&'a Arc<ServedModels>>,
    },
    /// Blocks that endpoints no longer have.
    Removed(BlocksOfStep<'a>),
    /// Blocks that endpoints have stored since the last update.
    Stored(BlocksOfStep<'a>),
    /// The last step.
    End {
        /// Whether the agent has sent everything.
        is_last: bool,
    },
}

/// Some of the blocks of a message.
#[derive(Clone, Copy, Debug)]
pub struct BlocksOfStep<'a> {
    blocks: &'a Blocks,
    endpoints: &'a [u64],
    from: usize,
    to: usize,
}

impl CachesUpdate {
    /// Reads the agent's response.
    pub fn read(bytes: &[u8]) -> Result<Self, UpdateError> {
        let message = CachedPrefixes::decode(bytes).map_err(UpdateError::Malformed)?;
        if message.format != PREFIXES_FORMAT {
            return Err(UpdateError::UnknownFormat(message.format));
        }
        let have = |blocks: &Option<Blocks>, is_stored| {
            blocks.as_ref().is_none_or(|blocks| is_regular(blocks, is_stored))
        };
        if !have(&message.removed, false) || !have(&message.stored, true) {
            return Err(UpdateError::Columns);
        }
        Ok(Self(message))
    }

    /// The log of the agent, and its version after the update.
    pub fn position(&self) -> (u64, u64) {
        (self.0.log, self.0.version)
    }

    /// Whether the agent has more.
    pub fn has_more(&self) -> bool {
        self.0.more
    }

    /// All models, if they have changed.
    pub fn models(&self) -> Option<&[Model]> {
        self.0.models_changed.then_some(&self.0.models)
    }

    /// The steps of the update. `models` are made of [its models](Self::models).
    pub fn steps<'a>(&'a self, models: Option<&'a Arc<ServedModels>>) -> impl Iterator<Item = Step<'a>> {
        let Self(CachedPrefixes { whole, caches, endpoints, stored, removed, more, .. }) = self;
        let parts = |blocks: &'a Option<Blocks>| {
            blocks.iter().flat_map(move |blocks| {
                let count = blocks.keys.len();
                let starts = (0..count).step_by(STEP);
                starts.map(move |from| BlocksOfStep { blocks, endpoints, from, to: (from + STEP).min(count) })
            })
        };
        let begin = Step::Begin { is_whole: *whole, caches, models };
        core::iter::once(begin)
            .chain(parts(removed).map(Step::Removed))
            .chain(parts(stored).map(Step::Stored))
            .chain(core::iter::once(Step::End { is_last: !more }))
    }
}

/// Whether the columns have equal lengths.
fn is_regular(blocks: &Blocks, is_stored: bool) -> bool {
    let Blocks { parents, keys, lengths, tokens, endpoints, tiers, ranks } = blocks;
    let of_both = [endpoints.len(), tiers.len()];
    let of_stored = [parents.len(), lengths.len(), tokens.len()];
    (ranks.is_empty() || ranks.len() == keys.len())
        && of_both.iter().all(|&length| length == keys.len())
        && of_stored.iter().all(|&length| length == if is_stored { keys.len() } else { 0 })
}

impl<'a> BlocksOfStep<'a> {
    /// The endpoint and the key of each removed block. A block of an endpoint that the message does not name
    /// is left out.
    pub(super) fn removed(&self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let Self { blocks, endpoints, from, to } = *self;
        (from..to).filter_map(move |at| Some((endpoint(blocks, endpoints, at)?, *blocks.keys.get(at)?)))
    }

    /// The endpoint, the tier, the ranks and each stored block.
    pub(super) fn stored(&self) -> impl Iterator<Item = (u64, Tier, Ranks, Block)> + 'a {
        let Self { blocks, endpoints, from, to } = *self;
        (from..to).filter_map(move |at| {
            let block = Block {
                parent: *blocks.parents.get(at)?,
                key: *blocks.keys.get(at)?,
                length: *blocks.lengths.get(at)?,
                tokens: *blocks.tokens.get(at)?,
            };
            let tier = match blocks.tiers.get(at)? {
                0 => Tier::Gpu,
                1 => Tier::Cpu,
                _ => Tier::Other,
            };
            let ranks = blocks.ranks.get(at).and_then(|&ranks| u8::try_from(ranks).ok());
            Some((endpoint(blocks, endpoints, at)?, tier, Ranks(ranks.unwrap_or_default()), block))
        })
    }
}

fn endpoint(blocks: &Blocks, endpoints: &[u64], at: usize) -> Option<u64> {
    endpoints.get(usize::try_from(*blocks.endpoints.get(at)?).ok()?).copied()
}
