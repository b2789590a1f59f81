//! `inflight-load-producer`: the load that a request adds to the endpoints that work on it.

use serde::Deserialize;

use crate::input::load_estimator::{LoadEstimator, OutputEstimate, OutputRule};
use crate::plugin::parameter::{PREFIX_PRODUCER, allow, or_default};
use crate::plugin::{Need, Plugin, Roles};
use std::sync::Arc;

/// A request adds one request, and these tokens, to the first endpoint of every profile that ran:
///
/// (total − matched blocks) · block size, and the prompt's tokens beyond the blocks looked up; the whole
/// prompt without prefix matches. With `add_estimated_output_tokens` also min(round(prompt · `output_ratio`),
/// what the client allows, `max_estimated_output_tokens`); by the rules of the EPP's v0.11 (#2309) 1000 in
/// place of the first.
///
/// The prompt's tokens, and everything that the profile named `prefill` added, are released with the first
/// output of the response; the rest when it ends. With `add_estimated_output_tokens` the other profiles'
/// tokens are all released at the end. The EPP releases abandoned requests after five minutes; here every
/// stream has an end.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct InflightLoadProducer {
    /// Whether the response's tokens are counted.
    add_estimated_output_tokens: bool,
    /// Tokens of the response for one of the prompt, 0 or more; 1.5 if not given.
    output_ratio: Option<f64>,
    /// Maximum number of tokens of a response that are counted, 0 or more; no bound if not given.
    max_estimated_output_tokens: Option<i64>,
    /// The prefix producer whose matches count as cached; empty: the approximate one.
    prefix_match_info_producer_name: String,
    /// Accepted, without effect: counts are not shared between proxies.
    sync_cross_replica_state: Option<bool>,
}

/// The EPP's default of `outputRatio`.
const OUTPUT_RATIO: f64 = 1.5;

impl Plugin for InflightLoadProducer {
    fn check(&self) -> Result<(), String> {
        let ratio = self.output_ratio.unwrap_or(OUTPUT_RATIO);
        allow(ratio >= 0.0 && ratio.is_finite(), "outputRatio", ratio, "0 and above")?;
        let most = self.max_estimated_output_tokens.unwrap_or(0);
        allow(most >= 0, "maxEstimatedOutputTokens", most, "0 and above")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { load_estimator: Some(self.estimator()), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let need = Need::prefix_producer(&self.prefix_match_info_producer_name);
        Some(need).filter(|need| !need.name.is_empty()).into_iter().collect()
    }
}

impl InflightLoadProducer {
    /// The rule with these parameters.
    pub(crate) fn estimator(&self) -> LoadEstimator {
        let most = self.max_estimated_output_tokens.and_then(|most| u64::try_from(most).ok());
        let output = OutputEstimate {
            rule: OutputRule::Ratio(self.output_ratio.unwrap_or(OUTPUT_RATIO)),
            max: most.unwrap_or(u64::MAX),
        };
        LoadEstimator {
            prefix_producer: or_default(&self.prefix_match_info_producer_name, PREFIX_PRODUCER).to_owned(),
            output: self.add_estimated_output_tokens.then_some(output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epp_rules::EppRules;
    use crate::plugin::fixture::{Fixture, prompt_of};
    use crate::pool::reading::Reading;
    use crate::request::body::{Api, Body, Options};
    use crate::request::prompt::Prompt;
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    fn with_output() -> InflightLoadProducer {
        InflightLoadProducer { add_estimated_output_tokens: true, ..InflightLoadProducer::default() }
    }

    fn fixture(input_tokens: u64) -> Fixture {
        let mut fixture = Fixture::of(2);
        fixture.request.prompt = Some(prompt_of(input_tokens));
        fixture
    }

    #[test]
    fn tokens_that_are_cached_cost_nothing() {
        let mut fixture = fixture(300);
        fixture.prefix(PrefixMatch {
            matched: vec![3, 0],
            total: 4,
            block_size: 64,
            ..PrefixMatch::default()
        });
        let tokens = fixture.with_cycle(|cycle| [0, 1].map(|endpoint| cycle.request_tokens(endpoint)));
        assert_eq!(tokens, [64 + 300 - 256, 256 + 300 - 256], "what is beyond the four blocks costs too");
    }

    #[test]
    fn a_prompt_of_which_nothing_is_known_costs_all_its_tokens() {
        assert_eq!(fixture(300).with_cycle(|cycle| cycle.request_tokens(0)), 300);
    }

    #[test]
    fn the_answer_is_estimated_from_the_whole_prompt_within_the_bounds() {
        let tokens = |producer: &InflightLoadProducer, client: Option<u64>| {
            let mut fixture = fixture(101);
            fixture.request.max_output_tokens = client;
            fixture.load_estimator = producer.estimator();
            fixture.with_cycle(|cycle| cycle.request_tokens(0)) - 101
        };
        assert_eq!(tokens(&with_output(), None), 152, "101 times 1.5, rounded half up");
        assert_eq!(tokens(&with_output(), Some(50)), 50);
        let capped = InflightLoadProducer { max_estimated_output_tokens: Some(20), ..with_output() };
        assert_eq!(tokens(&capped, Some(50)), 20);
        assert_eq!(tokens(&capped, Some(5)), 5);
    }

    /// Compares with the facts of #2309: the EPP v0.11 itself was not run.
    #[test]
    fn since_v0_11_an_answer_of_unknown_length_counts_as_a_thousand_tokens() {
        let tokens = |producer: &InflightLoadProducer, client: Option<u64>| {
            let mut fixture = fixture(101);
            fixture.request.max_output_tokens = client;
            fixture.load_estimator = producer.estimator().by(EppRules::V011);
            fixture.with_cycle(|cycle| cycle.request_tokens(0)) - 101
        };
        assert_eq!(tokens(&with_output(), None), 1_000);
        assert_eq!(tokens(&with_output(), Some(50)), 50);
        assert_eq!(tokens(&with_output(), Some(0)), 1_000, "no limit; before it was one");
        let capped = |most| InflightLoadProducer { max_estimated_output_tokens: Some(most), ..with_output() };
        assert_eq!(tokens(&capped(20), Some(50)), 20);
        assert_eq!(tokens(&capped(0), None), 0);
        assert_eq!(tokens(&InflightLoadProducer::default(), None), 0, "it is off by default");
    }

    #[test]
    fn a_request_has_no_more_tokens_than_the_kv_cache_of_its_endpoint_or_than_any_context() {
        let mut fixture = fixture(3_000_000);
        fixture.readings[1] =
            Reading { num_blocks: Some(1_000), block_size: Some(16), ..fixture.readings[1].clone() };
        let tokens = |fixture: &Fixture| {
            fixture.with_cycle(|cycle| [0, 1].map(|endpoint| cycle.request_tokens(endpoint)))
        };
        assert_eq!(tokens(&fixture), [1 << 20, 16_000]);
        fixture.load_estimator = with_output().estimator();
        assert_eq!(tokens(&fixture), [1 << 20, 16_000], "with those of its response");
    }

    #[test]
    fn tokens_that_a_request_only_claims_cost_nothing_but_its_own_choice() {
        let huge = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUoAAAACAAAAACAIAAAA=";
        let image = format!(r#"{{"type":"image_url","image_url":{{"url":"{huge}"}}}}"#);
        let text = format!(r#"{{"type":"text","text":"{}"}}"#, "word".repeat(100));
        let json = format!(r#"{{"messages":[{{"content":[{image},{text}]}}]}}"#);
        let body = Body::read(&json, Api::Chat, &Options::default()).unwrap();
        let prompt: &Prompt<'_> = Box::leak(Box::new(body.prompt.into_owned()));
        let mut fixture = fixture(0);
        fixture.request.prompt = Some(prompt);
        fixture.load_estimator = with_output().estimator();
        let tokens = |fixture: &Fixture| fixture.with_cycle(|cycle| cycle.request_tokens(0));
        assert_eq!(prompt.token_count(), 16_384 + 100);
        assert_eq!(tokens(&fixture), 116 + 174, "one and a half times as many in the response");
        // Its text is missing, and all that it claims is cached.
        fixture.prefix(PrefixMatch {
            matched: vec![256, 0],
            total: 257,
            block_size: 64,
            ..PrefixMatch::default()
        });
        fixture.load_estimator = InflightLoadProducer::default().estimator();
        assert_eq!(tokens(&fixture), 64 + 16_484 - 257 * 64);
    }

    #[test]
    fn each_part_of_a_reservation_is_held_until_its_work_is_done() {
        let reservation = |producer: &InflightLoadProducer, is_prefill| {
            let tokens = if producer.add_estimated_output_tokens { 25 } else { 10 };
            let reservation = producer.estimator().reservation(1, tokens, is_prefill);
            assert_eq!(reservation.endpoint, 1);
            [reservation.prefill, reservation.response].map(|load| (load.requests, load.tokens))
        };
        assert_eq!(reservation(&InflightLoadProducer::default(), false), [(0, 10), (1, 0)]);
        assert_eq!(reservation(&InflightLoadProducer::default(), true), [(1, 10), (0, 0)]);
        assert_eq!(reservation(&with_output(), false), [(0, 0), (1, 25)]);
        assert_eq!(reservation(&with_output(), true), [(1, 25), (0, 0)]);
    }

    #[test]
    fn negative_bounds_are_refused() {
        let ratio = InflightLoadProducer { output_ratio: Some(-0.5), ..with_output() };
        assert_eq!(ratio.check().unwrap_err(), "outputRatio is -0.5; allowed is 0 and above");
        let most = InflightLoadProducer { max_estimated_output_tokens: Some(-1), ..with_output() };
        assert_eq!(most.check().unwrap_err(), "maxEstimatedOutputTokens is -1; allowed is 0 and above");
    }
}
