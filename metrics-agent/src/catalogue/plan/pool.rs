//! One pool of the plan.

use endpoint_picker_wire::v1;

use super::members::Members;
use crate::catalogue::dialect::Dialect;
use crate::catalogue::manifests::fields::{Metadata, PoolGroup, PoolRef};
use crate::catalogue::manifests::picker::Scraping;
use crate::catalogue::scraping::{Scheme, ScrapePlan, ScrapeSettings};

/// One pool to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPlan {
    /// The pool's name in requests of filters; of a cluster's pool, `namespace/name`.
    pub name: String,
    /// The pool's endpoints.
    pub members: Members,
    /// The pool's policy.
    pub policy: v1::Policy,
    pub(super) scraping: Scraping,
}

impl PoolPlan {
    /// The name of the pool among those of all agents: `namespace/name`, or the name alone for a pool of the flags.
    pub fn qualified_name(&self) -> String {
        match &self.members {
            Members::Selected { namespace, .. } if !self.name.contains('/') => {
                format!("{namespace}/{}", self.name)
            }
            Members::Selected { .. } | Members::All => self.name.clone(),
        }
    }

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
    /// `None`: the flags' pool, which matches every reference with its name.
    pub(super) id: Option<PoolId>,
}

/// What references to a pool name.
pub(super) struct PoolId {
    pub(super) group: PoolGroup,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl PoolDraft {
    /// The pool of the flags.
    pub(super) fn of_flags(plan: PoolPlan) -> Self {
        Self { plan, id: None }
    }

    /// Whether an object's reference names this pool.
    pub(super) fn is_target_of(&self, object: &Metadata, reference: &PoolRef) -> bool {
        match &self.id {
            None => self.plan.name == reference.name.0,
            Some(PoolId { group, namespace, name }) => {
                *name == reference.name.0
                    && *namespace == object.namespace
                    && reference.group.is_none_or(|referenced| referenced == *group)
            }
        }
    }

    /// Whether its endpoints are scraped in this way.
    pub(super) fn is_scraped_by(&self, scraping: &Scraping) -> bool {
        self.plan.scraping == *scraping
    }

    pub(super) fn policy(&mut self) -> &mut v1::Policy {
        &mut self.plan.policy
    }
}

/// A message about a pool that does not exist, with the pools of the same namespace.
pub(super) fn unknown_pool(pools: &[PoolDraft], name: &str) -> String {
    let namespace = |name: &str| name.split_once('/').map(|(namespace, _)| namespace.to_owned());
    let names = pools.iter().map(|pool| pool.plan.name.as_str());
    let names: Vec<_> = names.filter(|other| namespace(other) == namespace(name)).collect();
    let allowed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("unknown pool {name:?}; allowed are {allowed}")
}
