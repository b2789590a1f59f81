//! One pool of the plan.

use endpoint_picker_wire::v1;

use super::members::Members;
use crate::catalogue::dialect::Dialect;
use crate::catalogue::manifests::fields::{Metadata, PoolGroup, PoolRef};
use crate::catalogue::manifests::picker::Scraping;
use crate::catalogue::scraping::{Scheme, ScrapePlan, ScrapeSettings};

/// One pool to serve.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// The pool's name in requests of filters.
    pub name: String,
    /// The pool's endpoints.
    pub members: Members,
    /// The pool's policy.
    pub policy: v1::Policy,
    pub(super) scraping: Scraping,
}

impl PoolPlan {
    /// How the pool's endpoints are scraped: by the manifests, otherwise by `flags`.
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

    /// The dialect of endpoints without an engine label.
    pub fn default_dialect(&self) -> &Dialect {
        self.scraping.dialects.default_dialect()
    }
}

/// A pool while the manifests are combined.
pub(super) struct PoolDraft {
    pub(super) plan: PoolPlan,
    /// The pool's API and namespace; `None`: the flags' pool, which matches every reference with its name.
    pub(super) id: Option<(PoolGroup, String)>,
}

impl PoolDraft {
    /// Whether an object's reference names this pool.
    pub(super) fn is_target_of(&self, object: &Metadata, reference: &PoolRef) -> bool {
        let matches = |(group, namespace): &(PoolGroup, String)| {
            *namespace == object.namespace.0 && reference.group.is_none_or(|referenced| referenced == *group)
        };
        self.plan.name == reference.name.0 && self.id.as_ref().is_none_or(matches)
    }

    /// Whether its endpoints are scraped in this way.
    pub(super) fn is_scraped_by(&self, scraping: &Scraping) -> bool {
        self.plan.scraping == *scraping
    }

    pub(super) fn policy(&mut self) -> &mut v1::Policy {
        &mut self.plan.policy
    }
}
