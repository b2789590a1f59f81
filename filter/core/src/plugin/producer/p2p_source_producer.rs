//! `p2p-source-producer`: the server that another one may copy KV blocks from.

use std::sync::Arc;

use serde::Deserialize;

use crate::decision::CacheSource;
use crate::input::cycle::Cycle;
use crate::plugin::parameter::{PREFILL, PREFIX_PRODUCER, or_default};
use crate::plugin::{CacheSourceProducer, Need, Plugin, Roles, Stage};
use crate::rng::Rng;

/// One of the endpoints with the most cached tokens of the prompt, up to one block less, is drawn, an
/// endpoint with w waiting requests with the weight 1 / (1 + w). It is named to the endpoint that computes
/// the prompt if it has cached more of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct P2pSourceProducer {
    /// Empty: the default producer.
    prefix_match_info_producer_name: String,
    /// Tokens that the source has cached beyond the computing endpoint, 1 or more.
    min_cached_token_delta: i64,
    /// The profile that picks the computing endpoint; empty: `prefill`. Where it did not run, the primary
    /// profile counts.
    prefill_profile_name: String,
}

impl Default for P2pSourceProducer {
    fn default() -> Self {
        Self {
            prefix_match_info_producer_name: String::new(),
            min_cached_token_delta: 1,
            prefill_profile_name: String::new(),
        }
    }
}

impl Plugin for P2pSourceProducer {
    fn check(&self) -> Result<(), String> {
        if self.min_cached_token_delta < 1 {
            return Err(format!("minCachedTokenDelta must be >= 1, got {}", self.min_cached_token_delta));
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { cache_source: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::prefix_producer(self.prefixes())]
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl P2pSourceProducer {
    fn prefixes(&self) -> &str {
        or_default(&self.prefix_match_info_producer_name, PREFIX_PRODUCER)
    }
}

impl CacheSourceProducer for P2pSourceProducer {
    fn source(
        &self,
        cycle: &Cycle<'_>,
        candidates: &[usize],
        stages: &[Stage<'_>],
        primary: &Stage<'_>,
        rng: &mut dyn Rng,
    ) -> Option<CacheSource> {
        let matches = cycle.prefix();
        let block = u64::from(matches.block_size);
        let cached = |endpoint: usize| u64::from(matches.blocks(endpoint)) * block;
        let most = candidates.iter().map(|&endpoint| cached(endpoint)).max().filter(|most| *most > 0)?;
        let has_enough = |endpoint: &usize| {
            let cached = cached(*endpoint);
            cached > 0 && cached + block >= most
        };
        let weight = |endpoint: usize| 1.0 / (1.0 + cycle.reading(endpoint).waiting.unwrap_or(0) as f64);
        let band = || candidates.iter().copied().filter(has_enough);
        // The draw depends on the request alone, so that each attempt of one request names the same source.
        let fraction = cycle.request.headers.get("x-request-id").map_or_else(|| rng.unit(), fraction);
        let mut target = fraction * band().map(weight).sum::<f64>();
        // Rounding may leave something behind the last endpoint.
        let endpoint = band().find(|&endpoint| {
            let is_drawn = target < weight(endpoint);
            target -= weight(endpoint);
            is_drawn
        });
        let endpoint = endpoint.or_else(|| band().next_back())?;
        let profile = or_default(&self.prefill_profile_name, PREFILL);
        let prefill = stages.iter().find(|stage| stage.profile == profile);
        let computing = prefill.and_then(|stage| stage.picked.first()).or(primary.picked.first())?;
        let tokens = cached(endpoint);
        let ahead = tokens.saturating_sub(cached(*computing));
        let is_named = endpoint != *computing && ahead >= self.min_cached_token_delta.unsigned_abs();
        is_named.then_some(CacheSource { endpoint, tokens, ahead })
    }
}

/// FNV-1a of the text, as a fraction of the whole range of 32 bits: 0 or more, below 1.
fn fraction(text: &str) -> f64 {
    let hash =
        text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    f64::from(hash) / 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, headers, waiting};
    use crate::rng::SplitMix64;
    use crate::state::prefix::PrefixMatch;
    use crate::test;
    use serde_json::json;

    /// A with 10 blocks and nothing waiting, B with 9 blocks and 3 waiting, C with nothing.
    fn fixture(id: &str) -> Fixture {
        let mut fixture = Fixture::with_readings(&[waiting(0), waiting(3), waiting(0)]);
        fixture.prefix(PrefixMatch {
            matched: vec![10, 9, 0],
            total: 12,
            block_size: 64,
            ..PrefixMatch::default()
        });
        fixture.request.headers = headers(&[("x-request-id", id)]);
        fixture
    }

    fn source(
        fixture: &Fixture,
        parameters: serde_json::Value,
        runs: &[(&str, usize)],
    ) -> Option<CacheSource> {
        let plugin: P2pSourceProducer = serde_json::from_value(parameters).unwrap();
        let picked: Vec<[usize; 1]> = runs.iter().map(|&(_, endpoint)| [endpoint]).collect();
        let stages = runs.iter().zip(&picked).map(|(&(profile, _), picked)| Stage { profile, picked });
        let stages: Vec<_> = stages.collect();
        let rng = &mut SplitMix64::new(1);
        fixture.with_cycle(|cycle| plugin.source(cycle, &[0, 1, 2], &stages, &stages[0], rng))
    }

    fn named(fixture: &Fixture, parameters: serde_json::Value, runs: &[(&str, usize)]) -> Option<usize> {
        source(fixture, parameters, runs).map(|source| source.endpoint)
    }

    #[test]
    fn ids_are_drawn_by_their_hash() {
        let digits = |id: &str| format!("{:.6}", fraction(id));
        let ids = ["req-1", "a", "4bf92f3577b34da6a3ce929d0e0e4736"];
        assert_eq!(ids.map(digits), ["0.855805", "0.890811", "0.543284"]);
    }

    #[test]
    fn an_endpoint_of_the_band_is_drawn_by_its_waiting_requests() {
        let runs = [("default", 2)];
        assert_eq!(
            source(&fixture("req-1"), json!({}), &runs),
            Some(CacheSource { endpoint: 1, tokens: 576, ahead: 576 })
        );
        assert_eq!(named(&fixture("a"), json!({}), &runs), Some(1));
        assert_eq!(named(&fixture("4bf92f3577b34da6a3ce929d0e0e4736"), json!({}), &runs), Some(0));
    }

    #[test]
    fn the_source_has_cached_more_than_the_computing_endpoint() {
        assert_eq!(named(&fixture("a"), json!({}), &[("default", 0)]), None, "B has less than A");
        assert_eq!(named(&fixture("a"), json!({}), &[("default", 1)]), None, "it is B itself");
        let first = fixture("4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(named(&first, json!({"minCachedTokenDelta": 64}), &[("default", 1)]), Some(0));
        assert_eq!(named(&first, json!({"minCachedTokenDelta": 65}), &[("default", 1)]), None);
    }

    #[test]
    fn the_prefill_profile_computes_where_it_ran() {
        let runs = [("decode", 1), ("prefill", 2)];
        assert_eq!(named(&fixture("a"), json!({}), &runs), Some(1));
        assert_eq!(named(&fixture("a"), json!({"prefillProfileName": "decode"}), &runs), None);
        assert_eq!(named(&fixture("a"), json!({"prefillProfileName": "x"}), &runs), None);
    }

    #[test]
    fn nothing_is_named_where_nothing_is_cached() {
        let mut cold = fixture("a");
        cold.prefix(PrefixMatch {
            matched: vec![0, 0, 0],
            total: 12,
            block_size: 64,
            ..PrefixMatch::default()
        });
        assert_eq!(named(&cold, json!({}), &[("default", 2)]), None);
        let mut far = fixture("a");
        far.prefix(PrefixMatch {
            matched: vec![10, 8, 0],
            total: 12,
            block_size: 64,
            ..PrefixMatch::default()
        });
        assert_eq!(named(&far, json!({}), &[("default", 2)]), Some(0), "B is more than a block behind");
    }

    #[test]
    fn a_delta_below_one_is_refused() {
        for delta in [0, -1] {
            let plugin: P2pSourceProducer =
                serde_json::from_value(json!({"minCachedTokenDelta": delta})).unwrap();
            assert_eq!(plugin.check(), Err(format!("minCachedTokenDelta must be >= 1, got {delta}")));
        }
    }
}
