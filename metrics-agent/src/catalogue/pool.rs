//! One pool of the plan.

use endpoint_picker_wire::v1;

use super::dialect::Dialect;
use super::manifests::fields::{Metadata, PoolGroup, PoolRef};
use super::manifests::picker::Scraping;
use super::members::Members;
use super::scraping::{Scheme, ScrapePlan, ScrapeSettings};

/// One pool.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// The name by which it is asked for.
    pub name: String,
    /// Who belongs to it.
    pub members: Members,
    /// What its operator wants.
    pub policy: v1::Policy,
    pub(super) scraping: Scraping,
}

impl PoolPlan {
    /// How its endpoints are scraped, where `flags` say what the manifests do not.
    pub fn scraping(&self, flags: &ScrapeSettings) -> ScrapePlan {
        let scraping = &self.scraping;
        let settings = ScrapeSettings {
            interval: scraping.interval.unwrap_or(flags.interval),
            path: scraping.path.as_ref().unwrap_or(&flags.path).clone(),
            scheme: if scraping.https { Scheme::Https } else { flags.scheme },
            ..flags.clone()
        };
        ScrapePlan { settings: settings.into(), port: scraping.port, dialects: scraping.dialects.clone() }
    }

    /// What endpoints without an engine label call their metrics.
    pub fn default_dialect(&self) -> &Dialect {
        self.scraping.dialects.default_dialect()
    }
}

/// A pool while it is put together.
pub(super) struct PoolDraft {
    pub(super) plan: PoolPlan,
    /// `None`: the flags' pool, for which every object of the right name is.
    pub(super) id: Option<(PoolGroup, String)>,
}

impl PoolDraft {
    pub(super) fn is_meant(&self, object: &Metadata, reference: &PoolRef) -> bool {
        let right = |(group, namespace): &(PoolGroup, String)| {
            *namespace == object.namespace.0 && reference.group.is_none_or(|given| given == *group)
        };
        self.plan.name == reference.name.0 && self.id.as_ref().is_none_or(right)
    }

    /// Whether its endpoints are scraped so.
    pub(super) fn is_scraped(&self, scraping: &Scraping) -> bool {
        self.plan.scraping == *scraping
    }

    pub(super) fn policy(&mut self) -> &mut v1::Policy {
        &mut self.plan.policy
    }
}
