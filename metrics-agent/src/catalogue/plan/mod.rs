//! Combines all manifests into a plan.

mod configs;
mod duplicates;
pub mod members;
mod policies;
mod pool;
mod shadows;

use std::collections::HashMap;
use std::path::PathBuf;

use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::v1;

use members::Members;
pub use pool::PoolPlan;
use pool::{PoolDraft, PoolId};

use crate::catalogue::manifests::document::{Documents, Item};
use crate::catalogue::manifests::fields::Metadata;
use crate::catalogue::manifests::picker::Scraping;
use crate::catalogue::manifests::scope::Scope;
use crate::catalogue::options::Options;
use crate::sources::endpoints::PORT_OF_POOL;
use crate::sources::manifests::File;
use crate::sources::problem::{Origin, Problem, Problems};

/// The pools to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The pools; of files, at least one.
    pub pools: Vec<PoolPlan>,
    /// The endpoints file that a configuration names.
    pub endpoints_file: Option<PathBuf>,
    /// Number of documents.
    pub documents: usize,
    /// Warnings about valid manifests.
    pub warnings: Vec<Problem>,
}

impl Plan {
    /// One pool of all endpoints with the EPP's default configuration.
    pub fn without_manifests(options: &Options) -> Self {
        let pool = PoolPlan {
            name: options.default_pool.clone(),
            members: Members::All,
            policy: options.policy(),
            scraping: Scraping::default(),
        };
        Self { pools: vec![pool], endpoints_file: None, documents: 0, warnings: Vec::new() }
    }

    /// Refuses endpoints without a port where a pool of the flags has them: only an `InferencePool` has a port for them.
    pub fn check_ports(&self, endpoints: &[Endpoint]) -> Result<(), String> {
        let has_ports = self.pools.iter().all(|pool| pool.members != Members::All);
        let without = endpoints.iter().find(|endpoint| endpoint.address().port() == PORT_OF_POOL);
        match without.filter(|_| !has_ports) {
            Some(endpoint) => Err(format!(
                "the endpoint {} has no port; it is required without an InferencePool in --manifests, whose target port would be used",
                endpoint.name()
            )),
            None => Ok(()),
        }
    }

    /// Reads and checks the files. Returns all problems of all documents; problems between documents are checked only when each
    /// document is valid by itself.
    pub fn read(files: &[File], options: &Options) -> Result<Self, Problems> {
        let mut documents = Documents::of_files(files, &Scope::Files, options);
        duplicates::refuse(&mut documents);
        if !documents.problems.is_empty() {
            return Err(Problems(documents.problems));
        }
        if documents.pools.is_empty() {
            let pool = Self::without_manifests(options).pools.into_iter();
            return Self::combine(documents, pool.map(PoolDraft::of_flags).collect()).into_result();
        }
        let pools = pools(&mut documents, &Scope::Files, options);
        Self::combine(documents, pools).into_result()
    }

    /// Combines valid manifests of a cluster. What contradicts an earlier manifest is refused and left out.
    pub(crate) fn of_cluster(mut documents: Documents, scope: &Scope, options: &Options) -> Combined {
        duplicates::refuse(&mut documents);
        let pools = pools(&mut documents, scope, options);
        Self::combine(documents, pools)
    }

    fn combine(mut documents: Documents, mut pools: Vec<PoolDraft>) -> Combined {
        let configs = core::mem::take(&mut documents.configs);
        let (shadows, configs): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.is_shadow);
        let endpoints_file = configs::apply(&mut pools, configs, &mut documents.problems);
        shadows::apply(&mut pools, shadows, endpoints_file.as_deref(), &mut documents);
        let without_effect = policies::apply(&mut pools, &mut documents);
        let Documents { count, warnings, problems, .. } = documents;
        let pools = pools.into_iter().map(|pool| pool.plan).collect();
        let plan = Self { pools, endpoints_file, documents: count, warnings };
        Combined { plan, refused: problems, without_effect }
    }
}

/// Manifests combined.
pub(crate) struct Combined {
    /// The plan without the refused manifests.
    pub(crate) plan: Plan,
    /// The problems of manifests that contradict another one.
    pub(crate) refused: Vec<Problem>,
    /// Why valid manifests have no effect: an unknown pool, or an older object with the same model.
    pub(crate) without_effect: Vec<Problem>,
}

impl Combined {
    /// The plan, if nothing is refused.
    fn into_result(mut self) -> Result<Plan, Problems> {
        if !self.refused.is_empty() {
            return Err(Problems(self.refused));
        }
        self.plan.warnings.extend(self.without_effect);
        Ok(self.plan)
    }
}

fn pools(documents: &mut Documents, scope: &Scope, options: &Options) -> Vec<PoolDraft> {
    let mut first: HashMap<String, Origin> = HashMap::new();
    let mut pools = Vec::new();
    for Item { origin, metadata, spec } in documents.pools.drain(..) {
        let Metadata { name, namespace, .. } = metadata;
        let plan_name = scope.pool_name(&namespace, &name);
        if let Some(first) = first.get(&plan_name) {
            let text = format!(
                "{name:?} is already the name of a pool in {}; pools are identified by name alone",
                first.place()
            );
            documents.problems.push(origin.problem("metadata.name", text));
            continue;
        }
        first.insert(plan_name.clone(), origin);
        let policy = v1::Policy { failure_mode: spec.failure_mode.into(), ..options.policy() };
        let members = Members::Selected {
            namespace: namespace.clone(),
            labels: spec.selector,
            target_ports: spec.target_ports,
        };
        let plan = PoolPlan { name: plan_name, members, policy, scraping: Scraping::default() };
        pools.push(PoolDraft { plan, id: Some(PoolId { group: spec.group, namespace, name }) });
    }
    pools
}
