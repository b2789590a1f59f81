//! A configuration that is tried beside the acting one.

use core::time::Duration;

use endpoint_picker::cycle::{Request, View};
use endpoint_picker::decision::Decision;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::shadow::{Shadow, ShadowDecision};
use endpoint_picker_wire as wire;

/// The shadow, if there is one.
#[derive(Debug)]
pub(crate) struct Trial {
    shadow: Option<Shadow>,
    /// Its own, so that what is done is the same with and without it.
    rng: SplitMix64,
}

impl Trial {
    /// Nothing is tried yet.
    pub(crate) fn new(seed: u64) -> Self {
        Self { shadow: None, rng: SplitMix64::new(!seed) }
    }

    /// Takes over the policy's shadow. One that this filter cannot use is left out, as a version of the agent may know more.
    pub(crate) fn adopt(&mut self, policy: &mut wire::v1::Policy, acting: &Pipeline) {
        self.shadow = wire::shadow_into_core(policy, acting).unwrap_or_else(|error| {
            log::warn!("the shadow configuration is left out: {error}");
            None
        });
    }

    /// What is tried.
    pub(crate) fn pipeline(&self) -> Option<&Pipeline> {
        self.shadow.as_ref().map(Shadow::pipeline)
    }

    /// What it would have done in the place of the acting pipeline, which has decided.
    pub(crate) fn opinion(
        &mut self,
        acted: (&Pipeline, &Decision),
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
    ) -> Option<ShadowDecision> {
        let Self { shadow, rng } = self;
        Some(shadow.as_ref()?.decide(acted, request, view, now, rng))
    }
}
