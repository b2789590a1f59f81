//! Combines all manifests into a plan.

mod annotations;
pub mod members;
mod policies;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

pub use annotations::share_of;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::models::{BaseModel, Models};
use endpoint_picker_wire::{MODELS_FORMAT, Message as _, epp_rules_from_core, epp_rules_into_core, v1};
use members::Members;
use metrics_agent_sources::endpoints::PORT_OF_POOL;
use metrics_agent_sources::manifests::{File, Origin, Problem, Problems};
use xxhash_rust::xxh64::xxh64;

use super::Options;
use super::dialect::Dialects;
use super::manifests::Scope;
use super::manifests::document::{Documents, Item};
use super::manifests::fault::quoted;
use super::manifests::fields::{Metadata, PoolGroup, PoolRef};
pub use super::manifests::inference_pool::AppProtocol;
use super::manifests::picker::{Scraping, SourceScraping};
use super::scraping::{DataSource, Scheme, ScrapePlan, ScrapeSettings, SourceKind};

/// The pools to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The pools; of files, at least one.
    pub pools: Vec<PoolPlan>,
    /// The base models of adapters, as the API returns them: of several that list an adapter the last one
    /// counts.
    pub base_models: Models,
    /// The endpoints file that a configuration names.
    pub endpoints_file: Option<PathBuf>,
    /// Number of documents.
    pub documents: usize,
    /// Warnings about valid manifests.
    pub warnings: Vec<Problem>,
}

impl Plan {
    /// One pool of all endpoints with the flags' rules.
    pub fn without_manifests(options: &Options) -> Self {
        let pool = PoolPlan {
            name: options.default_pool.clone(),
            members: Members::All,
            policy: options.policy(),
            app_protocol: None,
            record_sample: None,
            scraping: Scraping::default(),
        };
        Self {
            pools: vec![pool],
            base_models: versioned(Vec::new()),
            endpoints_file: None,
            documents: 0,
            warnings: Vec::new(),
        }
    }

    /// Refuses endpoints without a port where a pool of the flags has them: only an `InferencePool` has a
    /// port for them.
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

    /// Reads and checks the files. Returns all problems of all documents; problems between documents are
    /// checked only when each document is valid by itself.
    pub fn read(files: &[File], options: &Options) -> Result<Self, Problems> {
        let mut documents = Documents::of_files(files, &Scope::Files, options);
        refuse(&mut documents);
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

    /// Combines valid manifests of a cluster. A manifest that contradicts an earlier manifest is refused and
    /// left out.
    pub(crate) fn of_cluster(mut documents: Documents, scope: &Scope, options: &Options) -> Combined {
        refuse(&mut documents);
        // Of two that list an adapter, the one that was updated last counts.
        documents.base_models.sort_by_key(|it| it.spec.version());
        let pools = pools(&mut documents, scope, options);
        Self::combine(documents, pools)
    }

    fn combine(mut documents: Documents, mut pools: Vec<PoolDraft>) -> Combined {
        let configs = core::mem::take(&mut documents.configs);
        let (shadows, configs): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.is_shadow);
        let endpoints_file = policies::apply_configs(&mut pools, configs, &mut documents.problems);
        policies::apply_shadows(&mut pools, shadows, endpoints_file.as_deref(), &mut documents);
        let without_effect = policies::apply(&mut pools, &mut documents);
        let Documents { count, base_models, warnings, problems, .. } = documents;
        let pools = pools.into_iter().map(|pool| pool.plan).collect();
        let base_models = versioned(base_models.iter().map(|it| it.spec.on_the_wire()).collect());
        let plan = Self { pools, base_models, endpoints_file, documents: count, warnings };
        Combined { plan, refused: problems, without_effect }
    }
}

/// The message with its version, which is equal for equal models in every agent.
pub fn versioned(base_models: Vec<BaseModel>) -> Models {
    let models = Models { format: MODELS_FORMAT, version: 0, base_models };
    Models { version: xxh64(&models.encode_to_vec(), 0), ..models }
}

/// Manifests combined.
pub(crate) struct Combined {
    /// The plan without the refused manifests.
    pub plan: Plan,
    /// The problems of manifests that contradict another one.
    pub refused: Vec<Problem>,
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
        let Metadata { name, namespace, annotations, .. } = metadata;
        let plan_name = scope.pool_name(&namespace, &name);
        if let Some(first) = first.get(&plan_name) {
            let text = format!(
                "{name:?} is already the name of a pool in {}; pools are identified by name alone",
                first.place()
            );
            documents.problems.push(origin.problem("metadata.name", text));
            continue;
        }
        let at = origin.clone();
        first.insert(plan_name.clone(), origin);
        let mut policy = v1::Policy { failure_mode: spec.failure_mode.into(), ..options.policy() };
        let warning = annotations::former_rules(&annotations).map(|text| at.problem(ANNOTATIONS, text));
        documents.warnings.extend(warning);
        let mut refuse = |text: String| documents.problems.push(at.problem(ANNOTATIONS, text));
        match annotations::epp_rules(&annotations) {
            Ok(None) => {}
            Ok(Some(rules)) => {
                policy.epp_rules = epp_rules_from_core(rules).into();
                policy.picker_config = options.picker_config(rules);
            }
            Err(text) => refuse(text),
        }
        match annotations::fallback(&annotations, &name) {
            Ok(names) => {
                policy.fallback = names.iter().map(|other| scope.pool_name(&namespace, other)).collect();
            }
            Err(text) => refuse(text),
        }
        let record_sample = annotations::record_sample(&annotations).unwrap_or_else(|text| {
            refuse(text);
            None
        });
        let members = Members::Selected {
            namespace: namespace.clone(),
            labels: spec.selector,
            target_ports: spec.target_ports,
        };
        let plan = PoolPlan {
            name: plan_name,
            members,
            policy,
            app_protocol: Some(spec.app_protocol),
            record_sample,
            scraping: Scraping::default(),
        };
        pools.push(PoolDraft { plan, id: Some(PoolId { group: spec.group, namespace, name }) });
    }
    for pool in &mut pools {
        let PoolPlan { name, policy, .. } = &mut pool.plan;
        policy.fallback.retain(|other| {
            let is_known = first.contains_key(other);
            if let (false, Some(origin)) = (is_known, first.get(name)) {
                let text =
                    format!("{:?}: unknown pool {}; it is left out", annotations::FALLBACK, quoted(other));
                documents.warnings.push(origin.problem(ANNOTATIONS, text));
            }
            is_known
        });
    }
    pools
}

/// The place of annotations in an object.
const ANNOTATIONS: &str = "metadata.annotations";

/// Removes objects of the same kind, namespace and name as an earlier one, and adds their problems.
fn refuse(documents: &mut Documents) {
    let Documents { pools, objectives, rewrites, models, base_models, problems, .. } = documents;
    refuse_among(pools, problems);
    refuse_among(objectives, problems);
    refuse_among(rewrites, problems);
    refuse_among(models, problems);
    refuse_among(base_models, problems);
}

fn refuse_among<S>(items: &mut Vec<Item<S>>, problems: &mut Vec<Problem>) {
    let mut first: HashMap<(String, String), Origin> = HashMap::new();
    items.retain(|Item { origin, metadata: Metadata { namespace, name, .. }, .. }| {
        let id = (namespace.clone(), name.clone());
        if let Some(first) = first.get(&id) {
            let place = first.place();
            let text = format!("\"{namespace}/{name}\" is a second object of its kind; the first is {place}");
            problems.push(origin.problem("metadata.name", text));
            return false;
        }
        first.insert(id, origin.clone());
        true
    });
}

/// One pool to serve.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolPlan {
    /// The pool's name in requests of filters; of a cluster's pool, `namespace/name`.
    pub name: String,
    /// The pool's endpoints.
    pub members: Members,
    /// The pool's policy.
    pub policy: v1::Policy,
    /// The protocol of gateways to the servers; `None`: no `InferencePool` has one.
    pub app_protocol: Option<AppProtocol>,
    /// The share of sessions that is recorded; `None`: the agent's flag decides.
    pub record_sample: Option<f64>,
    scraping: Scraping,
}

impl PoolPlan {
    /// The name of the pool unique among all agents: `namespace/name`, or the name alone for a pool of the
    /// flags.
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
            as_epp: !self.rules().is_own(),
            ..flags.clone()
        };
        let dialects = self.dialects().into();
        let source = |(kind, source): (SourceKind, &SourceScraping)| DataSource {
            kind,
            settings: Arc::new(ScrapeSettings {
                interval: source.interval.unwrap_or(flags.interval),
                path: source.path.clone(),
                scheme: if source.https { Scheme::Https } else { Scheme::Http },
                ..flags.clone()
            }),
            port: source.port,
            is_on_node: source.is_on_node,
        };
        let gpu = scraping.gpu.iter().map(|gpu| (SourceKind::Gpu, gpu));
        let models = scraping.models.iter().map(|models| (SourceKind::Models, models));
        let sources = gpu.chain(models).map(source).collect();
        ScrapePlan { settings: settings.into(), port: scraping.port, dialects, sources }
    }

    /// Whether endpoints are scraped at their own port.
    pub fn is_scraped_at_own_port(&self) -> bool {
        self.scraping.port.is_none()
    }

    /// The metrics of each engine.
    pub fn dialects(&self) -> Dialects {
        self.scraping.dialects.by(self.rules())
    }

    /// The rules that decide.
    pub fn rules(&self) -> EppRules {
        epp_rules_into_core(self.policy.epp_rules())
    }
}

/// A pool while the manifests are combined.
struct PoolDraft {
    plan: PoolPlan,
    /// `None`: the flags' pool, which matches every reference with its name.
    id: Option<PoolId>,
}

/// Name of a pool in references to it.
struct PoolId {
    group: PoolGroup,
    namespace: String,
    name: String,
}

impl PoolDraft {
    /// The pool of the flags.
    fn of_flags(plan: PoolPlan) -> Self {
        Self { plan, id: None }
    }

    /// Whether an object's reference names this pool.
    fn is_target_of(&self, object: &Metadata, reference: &PoolRef) -> bool {
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
    fn is_scraped_by(&self, scraping: &Scraping) -> bool {
        self.plan.scraping == *scraping
    }

    fn policy(&mut self) -> &mut v1::Policy {
        &mut self.plan.policy
    }
}

/// A message about a pool that does not exist, with the pools of the same namespace.
fn unknown_pool(pools: &[PoolDraft], name: &str) -> String {
    let namespace = |name: &str| name.split_once('/').map(|(namespace, _)| namespace.to_owned());
    let names = pools.iter().map(|pool| pool.plan.name.as_str());
    let names: Vec<_> = names.filter(|other| namespace(other) == namespace(name)).collect();
    let allowed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("unknown pool {name:?}; allowed are {allowed}")
}
