//! Combines all manifests into a plan.

mod configs;
mod duplicates;
pub mod members;
mod policies;
mod pool;
mod shadows;

use std::collections::HashMap;
use std::path::PathBuf;

use endpoint_picker_wire::v1;

use members::Members;
use pool::PoolDraft;
pub use pool::PoolPlan;

use crate::catalogue::manifests::document::{Documents, Item};
use crate::catalogue::manifests::fault::{Fault, Origin};
use crate::catalogue::manifests::picker::Scraping;
use crate::catalogue::options::Options;
use crate::sources::manifests::File;
use crate::sources::problem::{Problem, Problems};

/// The pools to serve.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The pools, at least one.
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

    /// Reads and checks the files. Returns all problems of all documents; problems between documents are checked only when each
    /// document is valid by itself.
    pub fn read(files: &[File], options: &Options) -> Result<Self, Problems> {
        let mut documents = Documents::read(files, options);
        duplicates::refuse(&mut documents);
        if !documents.problems.is_empty() {
            return Err(Problems(documents.problems));
        }
        let mut pools = pools(&mut documents, options);
        let configs = core::mem::take(&mut documents.configs);
        let (shadows, configs): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.is_shadow);
        let endpoints_file = configs::apply(&mut pools, configs, &mut documents.problems);
        shadows::apply(&mut pools, shadows, endpoints_file.as_deref(), &mut documents);
        policies::apply(&mut pools, &mut documents);
        if !documents.problems.is_empty() {
            return Err(Problems(documents.problems));
        }
        let Documents { count, warnings, .. } = documents;
        let pools = pools.into_iter().map(|pool| pool.plan).collect();
        Ok(Self { pools, endpoints_file, documents: count, warnings })
    }
}

fn pools(documents: &mut Documents, options: &Options) -> Vec<PoolDraft> {
    if documents.pools.is_empty() {
        let plan = Plan::without_manifests(options).pools.remove(0);
        return vec![PoolDraft { plan, id: None }];
    }
    let mut first: HashMap<String, Origin> = HashMap::new();
    let mut pools = Vec::new();
    for Item { origin, metadata, spec } in documents.pools.drain(..) {
        let (name, namespace) = (metadata.name.0, metadata.namespace.0);
        if let Some(first) = first.get(&name) {
            let text = format!(
                "{name:?} is already the name of a pool in {}; pools are identified by name alone",
                first.place()
            );
            documents.problems.push(origin.problem(Fault::new("metadata.name", text)));
        }
        first.entry(name.clone()).or_insert(origin);
        let policy = v1::Policy { failure_mode: spec.failure_mode.into(), ..options.policy() };
        let members = Members::Selected {
            namespace: namespace.clone(),
            labels: spec.selector,
            target_ports: spec.target_ports,
        };
        let plan = PoolPlan { name, members, policy, scraping: Scraping::default() };
        pools.push(PoolDraft { plan, id: Some((spec.group, namespace)) });
    }
    pools
}
