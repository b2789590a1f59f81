//! Refuses valid plans that the agent cannot serve with its flags.

use std::path::Path;

use crate::catalogue::scraping::{Scheme, ScrapeSettings};
use crate::catalogue::{Plan, PoolPlan, Problem, Problems};
use crate::publish::eds;

/// The flags that plans depend on.
#[derive(Debug)]
pub(super) struct Acceptance {
    pub(super) eds: Option<eds::Target>,
    pub(super) scrape: ScrapeSettings,
    /// Whether the flags set up TLS to model servers.
    pub(super) has_tls: bool,
    /// Whether the flags name endpoints, or a file of them.
    pub(super) has_endpoints: bool,
}

impl Acceptance {
    /// Refuses a plan of the manifests at `path` that the agent cannot serve.
    pub(super) fn check(&self, path: &Path, plan: &Plan) -> Result<(), Problems> {
        let refuse = |text: String| Err(Problem::of_file(path, text).into());
        let https = |pool: &&PoolPlan| pool.scraping(&self.scrape).settings.scheme == Scheme::Https;
        if let Some(pool) = plan.pools.iter().find(https).filter(|_| !self.has_tls) {
            return refuse(format!(
                "has https to the model servers of pool {:?}, which requires --scrape-ca or \
                 --model-server-metrics-https-insecure-skip-verify",
                pool.name
            ));
        }
        let pools = plan.pools.len();
        if pools > 1 && self.eds.as_ref().is_some_and(|eds| !eds.has_file_per_pool()) {
            return refuse(format!("has {pools} pools; allowed is one, unless --eds-file contains {{pool}}"));
        }
        if !self.has_endpoints && plan.endpoints_file.is_none() {
            let text = "has no source of endpoints; one is required: --endpoint, --endpoints-file or a file-discovery plugin";
            return refuse(text.to_owned());
        }
        Ok(())
    }
}
