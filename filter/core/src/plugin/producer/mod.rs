//! Producers: plugins that provide data for the decisions of other plugins.

mod agent_identity;
mod approx_prefix_cache_producer;
mod burst_prefix_cache_producer;
mod inflight_load_producer;
mod mm_embeddings_cache_producer;
mod p2p_source_producer;
mod precise_prefix_cache_producer;
mod predicted_latency_producer;
mod session_id_producer;
mod token_estimate;
mod token_producer;
mod topology_extractor;

pub use agent_identity::AgentIdentity;
pub use approx_prefix_cache_producer::ApproxPrefixCacheProducer;
pub use burst_prefix_cache_producer::BurstPrefixCacheProducer;
pub use inflight_load_producer::InflightLoadProducer;
pub use mm_embeddings_cache_producer::MmEmbeddingsCacheProducer;
pub use p2p_source_producer::P2pSourceProducer;
pub use precise_prefix_cache_producer::PrecisePrefixCacheProducer;
pub use predicted_latency_producer::PredictedLatencyProducer;
pub use session_id_producer::SessionIdProducer;
pub use token_producer::TokenProducer;
pub use topology_extractor::TopologyExtractor;

use core::fmt::Debug;

use crate::decision::CacheSource;
use crate::headers::Headers;
use crate::input::cycle::Cycle;
use crate::input::prediction::Prediction;
use crate::plugin::Stage;
use crate::pool::reading::Reading;
use crate::request::cached_prompt::PromptKind;
use crate::request::prompt::BlockHashes;
use crate::rng::Rng;
use crate::state::prefix::{PrefixMatch, TokenScale};

/// Determines how prompts are cut into blocks.
pub trait PrefixProducer: Debug + Send + Sync {
    /// Tokens per block for the whole pool. `first` is the reading of the first candidate: the EPP lets it
    /// decide for all.
    fn block_size(&self, first: &Reading) -> u32;

    /// Maximum number of blocks of one prompt that are looked up.
    fn max_blocks(&self, block_size: u32) -> usize;

    /// Bytes of one prompt that can matter, at four bytes a token.
    fn max_prompt_bytes(&self) -> usize;

    /// Tokens of the request's model; the estimate unless the producer learns from the usage in responses.
    fn token_scale(&self, cycle: &Cycle<'_>) -> TokenScale {
        let _ = cycle;
        TokenScale::ONE
    }

    /// Whether it reads the part of a prompt that is [in the caches](crate::request::Request::cached) of
    /// servers.
    fn reads_caches(&self) -> bool {
        false
    }

    /// Counts for each endpoint, by its index, the blocks of the prompt that it was sent before. `ends` is
    /// memory for the count.
    fn count_matches(
        &self,
        cycle: &Cycle<'_>,
        hashes: &BlockHashes,
        matched: &mut [u32],
        ends: &mut Vec<usize>,
    );

    /// The source of the blocks that were [counted](Self::count_matches) for an endpoint, if the producer has
    /// several. `matches` has the counts.
    fn match_source(&self, cycle: &Cycle<'_>, matches: &PrefixMatch, endpoint: usize) -> Option<MatchSource> {
        let _ = (cycle, matches, endpoint);
        None
    }

    /// The data-parallel rank of an endpoint to which the request is to go.
    fn rank(&self, cycle: &Cycle<'_>, endpoint: usize) -> Option<u32> {
        let _ = (cycle, endpoint);
        None
    }
}

/// The source of the blocks that a producer counts for an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchSource {
    /// The server's KV-cache events, for prompts of this kind.
    Events(PromptKind),
    /// Prompts that the endpoint was sent a short time ago, which its events may not show yet.
    JustSent,
    /// All prompts that the endpoint was sent, because its events, or the prompt in their form, are not
    /// known.
    Approximate,
}

impl MatchSource {
    /// In words, for explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events(PromptKind::Text) => "by its KV-cache events",
            Self::Events(PromptKind::TokenIds) => "by the token ids of its KV-cache events",
            Self::JustSent => "just sent",
            Self::Approximate => "by what it was sent",
        }
    }
}

/// Finds the session of a request.
pub trait SessionProducer: Debug + Send + Sync {
    /// The name of the request's session, not empty, if it has one.
    fn session_id<'a>(&self, headers: Headers<'a>) -> Option<&'a str>;
}

/// Predicts the latency of requests.
pub trait LatencyPredictor: Debug + Send + Sync {
    /// The prediction for each endpoint of the pool, `None` for those that are not candidates; `None`: it
    /// only learns.
    fn predict(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<Vec<Option<Prediction>>>;

    /// Whether the time to the end of the response is predicted, and not the time to the first token.
    fn predicts_whole(&self) -> bool;
}

/// Finds an endpoint that another one may copy KV blocks of the prompt from.
pub trait CacheSourceProducer: Debug + Send + Sync {
    /// The endpoint for a request that these stages have picked endpoints for; `None`: no endpoint has cached
    /// enough. `candidates` are the endpoints before any filter.
    fn source(
        &self,
        cycle: &Cycle<'_>,
        candidates: &[usize],
        stages: &[Stage<'_>],
        primary: &Stage<'_>,
        rng: &mut dyn Rng,
    ) -> Option<CacheSource>;
}
