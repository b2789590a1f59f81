//! The part of a request's prompts that servers have cached.

/// The kind of prompts, and of the cached prefixes that they can begin with. A model has a tree of prefixes
/// for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptKind {
    /// Texts, in UTF-8.
    #[default]
    Text,
    /// Token ids, each in four bytes, little-endian.
    TokenIds,
}

/// The place of a block in a server: graphics memory, main memory, or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Graphics memory.
    Gpu,
    /// Main memory.
    Cpu,
    /// Any other.
    Other,
}

impl Tier {
    /// All tiers.
    pub const ALL: [Self; 3] = [Self::Gpu, Self::Cpu, Self::Other];
}

/// The data-parallel ranks of an endpoint that have a block in their caches: bit n for rank n. None for an
/// endpoint without ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks(pub u8);

/// The part of a request's prompts that is in the caches of servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachedPrompt {
    pub(crate) kind: PromptKind,
    /// Bytes of the prompts.
    pub(crate) bytes: u64,
    pub(crate) runs: Vec<CachedRun>,
}

/// The beginning of the prompts in the cache of one endpoint, without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedRun {
    pub(crate) endpoint: u64,
    /// Bytes by tier.
    pub(crate) bytes: [u64; Tier::ALL.len()],
    pub(crate) tokens: u64,
    /// The ranks with the longest run, if there is one prompt.
    pub(crate) ranks: Ranks,
    /// The bytes of this run.
    pub(crate) ranked: u64,
}

impl CachedPrompt {
    /// The kind of the prompts.
    pub fn kind(&self) -> PromptKind {
        self.kind
    }

    /// The part of each endpoint whose cache is completely known, also where it is nothing.
    pub fn runs(&self) -> &[CachedRun] {
        &self.runs
    }

    /// The part of the endpoint of this [key](crate::pool::Endpoint::key), if its cache is completely known.
    pub fn run(&self, endpoint: u64) -> Option<&CachedRun> {
        self.runs.iter().find(|run| run.endpoint == endpoint)
    }

    /// The part of the prompts that the run covers, a byte counting as the weight of its tier; `total` for
    /// the whole, cut to an integer.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, which is the intent"
    )]
    pub fn part_of(&self, run: &CachedRun, weights: &TierWeights, total: u32) -> u32 {
        if self.bytes == 0 {
            return 0;
        }
        let weighted: f64 =
            run.bytes.iter().zip(weights.0).map(|(&bytes, weight)| weight * bytes as f64).sum();
        (weighted * f64::from(total) / self.bytes as f64) as u32
    }

    /// The only rank of the run's endpoint that has cached half of the prompt, or more, and more than the
    /// other ranks.
    pub fn rank_of(&self, run: &CachedRun) -> Option<u32> {
        let Ranks(ranks) = run.ranks;
        (ranks.is_power_of_two() && 2 * run.ranked >= self.bytes).then(|| ranks.trailing_zeros())
    }
}

impl CachedRun {
    /// The endpoint's [key](crate::pool::Endpoint::key).
    pub fn endpoint(&self) -> u64 {
        self.endpoint
    }

    /// Its tokens, as the servers count them.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

/// The weights of blocks by tier, in the order of [`Tier::ALL`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierWeights(pub [f64; Tier::ALL.len()]);
