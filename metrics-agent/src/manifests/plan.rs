//! What the manifests ask for, all together.

use std::collections::HashMap;
use std::path::PathBuf;

use endpoint_picker_wire::v1;

use super::Options;
use super::document::{Config, Documents, Item};
use super::fields::{Metadata, PoolGroup, PoolRef};
use super::members::Members;
use super::picker::Scraping;
use super::policies;
use super::problem::{Fault, Origin, Problem, Problems};
use super::shadows;
use super::source::File;
use crate::dialect::Dialect;
use crate::scrape::{self, How, Scheme};

/// The pools to serve.
#[derive(Clone, Debug)]
pub struct Plan {
    /// At least one.
    pub pools: Vec<PoolPlan>,
    /// The endpoints file that a configuration names.
    pub endpoints_file: Option<PathBuf>,
    /// Documents read.
    pub documents: usize,
    /// What is right but deserves a look.
    pub warnings: Vec<Problem>,
}

/// One pool.
#[derive(Clone, Debug)]
pub struct PoolPlan {
    /// The name by which it is asked for.
    pub name: String,
    /// Who belongs to it.
    pub members: Members,
    /// What its operator wants.
    pub policy: v1::Policy,
    scraping: Scraping,
}

impl PoolPlan {
    /// How its endpoints are scraped, where `flags` say what the manifests do not.
    pub fn scraping(&self, flags: &scrape::Settings) -> How {
        let scraping = &self.scraping;
        let settings = scrape::Settings {
            interval: scraping.interval.unwrap_or(flags.interval),
            path: scraping.path.as_ref().unwrap_or(&flags.path).clone(),
            scheme: if scraping.https { Scheme::Https } else { flags.scheme },
            ..flags.clone()
        };
        How { settings: settings.into(), port: scraping.port, dialects: scraping.dialects.clone() }
    }

    /// What endpoints without an engine label call their metrics.
    pub fn default_dialect(&self) -> &Dialect {
        self.scraping.dialects.default_dialect()
    }
}

impl Plan {
    /// One pool of all endpoints, decided for by the EPP's defaults.
    pub fn without_manifests(options: &Options) -> Self {
        let pool = PoolPlan {
            name: options.default_pool.clone(),
            members: Members::All,
            policy: options.policy(),
            scraping: Scraping::default(),
        };
        Self { pools: vec![pool], endpoints_file: None, documents: 0, warnings: Vec::new() }
    }

    /// Reads and checks the files. All problems of all documents are told; how documents fit together is only looked at
    /// when each is right by itself.
    pub fn read(files: &[File], options: &Options) -> Result<Self, Problems> {
        let mut documents = Documents::read(files, options);
        documents.refuse_second_ones();
        if !documents.problems.is_empty() {
            return Err(Problems(documents.problems));
        }
        let mut pools = pools(&mut documents, options);
        let configs = core::mem::take(&mut documents.configs);
        let (shadows, configs): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.is_shadow);
        let endpoints_file = configure(&mut pools, configs, &mut documents.problems);
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

/// A pool while it is put together.
pub(super) struct Pool {
    pub(super) plan: PoolPlan,
    /// `None`: the flags' pool, for which every object of the right name is.
    id: Option<(PoolGroup, String)>,
}

impl Pool {
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

fn pools(documents: &mut Documents, options: &Options) -> Vec<Pool> {
    if documents.pools.is_empty() {
        let plan = Plan::without_manifests(options).pools.remove(0);
        return vec![Pool { plan, id: None }];
    }
    let mut first: HashMap<String, Origin> = HashMap::new();
    let mut pools = Vec::new();
    for Item { origin, metadata, spec } in documents.pools.drain(..) {
        let (name, namespace) = (metadata.name.0, metadata.namespace.0);
        if let Some(first) = first.get(&name) {
            let text = format!(
                "{name:?} is the name of a pool in {} already; pools are asked for by name alone",
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
        pools.push(Pool { plan, id: Some((spec.group, namespace)) });
    }
    pools
}

/// Gives each pool its configuration; tells the one endpoints file.
fn configure(pools: &mut [Pool], configs: Vec<Config>, problems: &mut Vec<Problem>) -> Option<PathBuf> {
    let mut endpoints_file: Option<(PathBuf, Origin)> = None;
    let mut seen: HashMap<Option<String>, Origin> = HashMap::new();
    let names = pools.iter().map(|pool| pool.plan.name.clone()).collect::<Vec<_>>().join(", ");
    // Those that name their pool come last, and win.
    let (named, unnamed): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.pool.is_some());
    for Config { origin, pool, lowered, .. } in unnamed.into_iter().chain(named) {
        let mut refuse = |at: &str, text: String| problems.push(origin.problem(Fault::new(at, text)));
        if let Some(first) = seen.get(&pool) {
            let of = pool.as_ref().map_or("all pools".to_owned(), |pool| format!("pool {pool:?}"));
            let text = format!("is a second configuration of {of}; the first is {}", first.place());
            refuse("metadata.name", text);
            continue;
        }
        seen.insert(pool.clone(), origin.clone());
        if let Some(name) = &pool
            && !pools.iter().any(|pool| pool.plan.name == *name)
        {
            refuse(
                "metadata.name",
                format!("{name:?} is no pool; allowed are {names}, or no metadata for all pools"),
            );
        }
        match (&endpoints_file, lowered.endpoints_file) {
            (Some((one, first)), Some(other)) if *one != other => {
                let (one, other) = (one.display(), other.display());
                let text = format!("{other} is a second endpoints file beside {one} of {}", first.place());
                refuse("dataLayer.discovery.pluginRef", format!("{text}; an agent reads one"));
            }
            (None, Some(path)) => endpoints_file = Some((path, origin.clone())),
            _ => {}
        }
        let meant = pools.iter_mut().filter(|own| pool.as_ref().is_none_or(|name| own.plan.name == *name));
        for own in meant {
            own.policy().picker_config = Some(lowered.picker.clone());
            own.plan.scraping = lowered.scraping.clone();
        }
    }
    endpoints_file.map(|(path, _)| path)
}

impl Documents {
    /// Refuses objects of the same kind, namespace and name as an earlier one.
    fn refuse_second_ones(&mut self) {
        let Self { pools, objectives, rewrites, models, problems, .. } = self;
        refuse_second_ones(pools, problems);
        refuse_second_ones(objectives, problems);
        refuse_second_ones(rewrites, problems);
        refuse_second_ones(models, problems);
    }
}

fn refuse_second_ones<S>(items: &[Item<S>], problems: &mut Vec<Problem>) {
    let mut first: HashMap<(&str, &str), &Origin> = HashMap::new();
    for Item { origin, metadata, .. } in items {
        let (namespace, name) = (metadata.namespace.0.as_str(), metadata.name.0.as_str());
        if let Some(first) = first.get(&(namespace, name)) {
            let text = format!(
                "\"{namespace}/{name}\" is a second object of its kind; the first is {}",
                first.place()
            );
            problems.push(origin.problem(Fault::new("metadata.name", text)));
        } else {
            first.insert((namespace, name), origin);
        }
    }
}
