//! Deciders of disaggregating profile handlers: `always-disagg-pd-decider`,
//! `always-disagg-multimodal-decider`, `prefix-based-pd-decider`.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::allow;
use crate::plugin::{Decider, Plugin, Roles};

/// `always-disagg-pd-decider`: every request gets the stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlwaysDisaggPdDecider {}

impl Plugin for AlwaysDisaggPdDecider {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { decider: Some(self), ..Roles::default() }
    }
}

impl Decider for AlwaysDisaggPdDecider {
    fn agrees(&self, _: &Cycle<'_>, _: Option<usize>) -> bool {
        true
    }
}

/// `always-disagg-multimodal-decider`: requests with images, videos or audio get the stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlwaysDisaggMultimodalDecider {}

impl Plugin for AlwaysDisaggMultimodalDecider {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { decider: Some(self), ..Roles::default() }
    }
}

impl Decider for AlwaysDisaggMultimodalDecider {
    fn agrees(&self, cycle: &Cycle<'_>, _: Option<usize>) -> bool {
        cycle.request.has_media()
    }
}

/// `prefix-based-pd-decider`: requests get the stage if the decode endpoint would have to compute much of
/// their prompt: at least `prompt_tokens` and `non_cached_tokens` tokens of prompt, and at least
/// `non_cached_tokens` beyond the blocks that the endpoint was sent before.
///
/// Without a decode endpoint the stage does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefixBasedPdDecider {
    /// 0 or more; 0: no request gets the stage.
    non_cached_tokens: i64,
    /// 0 or more.
    prompt_tokens: i64,
}

impl Plugin for PrefixBasedPdDecider {
    fn check(&self) -> Result<(), String> {
        allow(self.non_cached_tokens >= 0, "nonCachedTokens", self.non_cached_tokens, "0 and above")?;
        allow(self.prompt_tokens >= 0, "promptTokens", self.prompt_tokens, "0 and above")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { decider: Some(self), ..Roles::default() }
    }
}

impl Decider for PrefixBasedPdDecider {
    fn agrees(&self, cycle: &Cycle<'_>, decode: Option<usize>) -> bool {
        let Some(decode) = decode.filter(|_| self.non_cached_tokens > 0) else { return false };
        let prompt = cycle.request.input_tokens();
        let prefix = cycle.prefix();
        let cached = u64::from(prefix.blocks(decode)) * u64::from(prefix.block_size);
        prompt >= self.prompt_tokens.unsigned_abs()
            && prompt.saturating_sub(cached) >= self.non_cached_tokens.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, prompt_of};
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    fn agrees(non_cached_tokens: i64, prompt_tokens: i64, prompt: u64, blocks_cached: u32) -> bool {
        let mut fixture = Fixture::of(2);
        fixture.request.prompt = Some(prompt_of(prompt));
        fixture.prefix(PrefixMatch {
            matched: vec![0, blocks_cached],
            total: 10,
            block_size: 64,
            ..PrefixMatch::default()
        });
        let decider = PrefixBasedPdDecider { non_cached_tokens, prompt_tokens };
        fixture.with_cycle(|cycle| decider.agrees(cycle, Some(1)))
    }

    #[test]
    fn a_prompt_with_enough_to_compute_is_worth_a_stage() {
        assert!(agrees(100, 0, 100, 0));
        assert!(!agrees(100, 0, 99, 0), "too short altogether");
        assert!(agrees(100, 0, 228, 2));
        assert!(!agrees(100, 0, 227, 2), "128 of it are cached");
        assert!(!agrees(100, 0, 100, 10), "more cached than there is");
    }

    #[test]
    fn a_short_prompt_can_be_left_out_whatever_is_cached() {
        assert!(!agrees(100, 500, 499, 0));
        assert!(agrees(100, 500, 500, 0));
    }

    #[test]
    fn a_threshold_of_zero_turns_the_stage_off() {
        assert!(!agrees(0, 0, 10_000, 0));
    }

    #[test]
    fn without_a_decode_endpoint_there_is_nothing_to_compare() {
        let decider = PrefixBasedPdDecider { non_cached_tokens: 1, prompt_tokens: 0 };
        assert!(!Fixture::of(1).with_cycle(|cycle| decider.agrees(cycle, None)));
    }

    #[test]
    fn negative_thresholds_are_refused() {
        assert!(PrefixBasedPdDecider { non_cached_tokens: -1, prompt_tokens: 0 }.check().is_err());
        assert!(PrefixBasedPdDecider { non_cached_tokens: 0, prompt_tokens: -1 }.check().is_err());
    }

    #[test]
    fn images_are_worth_encoding_elsewhere_and_text_is_not() {
        let mut fixture = Fixture::of(1);
        let agrees = |fixture: &Fixture| {
            fixture.with_cycle(|cycle| AlwaysDisaggMultimodalDecider {}.agrees(cycle, None))
        };
        assert!(!agrees(&fixture), "no prompt");
        fixture.request.prompt = Some(prompt_of(10));
        assert!(!agrees(&fixture));
        fixture.request.prompt = Some(crate::plugin::fixture::image());
        assert!(agrees(&fixture), "also when nothing of the prompt was kept");
        assert!(Fixture::of(1).with_cycle(|cycle| AlwaysDisaggPdDecider {}.agrees(cycle, None)));
    }
}
