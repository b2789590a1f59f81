//! Manifests that are valid by themselves.

use deserr::{Deserr, deserialize};
use serde_json::Value as Json;

use super::fault::Faults;
use super::fields::{Metadata, MetadataFields};
use super::inference_model::InferenceModel;
use super::inference_model_rewrite::InferenceModelRewrite;
use super::inference_objective::InferenceObjective;
use super::inference_pool::{self, InferencePool};
use super::kinds::{GIE_V1ALPHA1, Kind, LLM_D_CONFIG, POOL};
use super::picker::{self, EndpointPickerConfig};
use super::scope::Scope;
use crate::catalogue::options::Options;
use crate::sources::problem::{Origin, Problem};

/// An object and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Item<S> {
    pub(crate) origin: Origin,
    pub(crate) metadata: Metadata,
    pub(crate) spec: S,
}

/// A picker configuration and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) origin: Origin,
    /// The name in the plan of the configuration's pool; `None`: every pool without a configuration of its own.
    pub(crate) pool: Option<String>,
    /// Whether it is a shadow configuration.
    pub(crate) is_shadow: bool,
    pub(crate) lowered: picker::Lowered,
}

/// All manifests that are valid by themselves, and the problems of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Documents {
    pub(crate) count: usize,
    pub(crate) pools: Vec<Item<InferencePool>>,
    pub(crate) configs: Vec<Config>,
    pub(crate) objectives: Vec<Item<InferenceObjective>>,
    pub(crate) rewrites: Vec<Item<InferenceModelRewrite>>,
    pub(crate) models: Vec<Item<InferenceModel>>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
}

#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase)]
struct Header {
    api_version: String,
    kind: String,
}

/// The structure of all kinds except the configuration.
#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields, where_predicate = S: Deserr<Faults>)]
struct Resource<S> {
    #[deserr(rename = "apiVersion")]
    _api_version: String,
    #[deserr(rename = "kind")]
    _kind: String,
    metadata: MetadataFields,
    spec: S,
    /// Written by the cluster; not used.
    #[deserr(default, rename = "status")]
    _status: Option<Json>,
}

impl Documents {
    /// Reads one manifest, which is neither a list nor null anywhere.
    pub(crate) fn read(&mut self, origin: &Origin, manifest: Json, scope: &Scope, options: &Options) {
        self.count += 1;
        if let Err(faults) = self.add(origin, manifest, scope, options) {
            self.problems.extend(faults.at(origin));
        }
    }

    /// Reads an object of the API server, which has no null anywhere. The server has checked it by its own version of the schema, which may be
    /// newer: fields that the agent does not support are left out with a warning.
    pub(crate) fn read_object(
        &mut self,
        origin: &Origin,
        mut object: Json,
        scope: &Scope,
        options: &Options,
    ) {
        self.count += 1;
        let Err(mut faults) = self.add(origin, object.clone(), scope, options) else { return };
        if faults.0.iter().all(|fault| fault.remove_unknown_field(&mut object)) {
            self.warnings.extend(faults.at(origin));
            match self.add(origin, object, scope, options) {
                Ok(()) => return,
                Err(others) => faults = others,
            }
        }
        self.problems.extend(faults.at(origin));
    }

    fn add(
        &mut self,
        origin: &Origin,
        manifest: Json,
        scope: &Scope,
        options: &Options,
    ) -> Result<(), Faults> {
        let Header { api_version, kind } = deserialize(manifest.clone())?;
        let Some(kind) = Kind::of(&api_version, &kind)? else {
            let text = format!("{kind} of {api_version} is not read by the agent; the document is skipped");
            self.warnings.push(origin.problem("kind", text));
            return Ok(());
        };
        match kind {
            Kind::InferencePool if api_version == POOL => {
                let pool = resource::<inference_pool::V1>(origin, manifest, scope)?;
                self.pools.push(pool.map(InferencePool::from));
            }
            Kind::InferencePool => {
                let pool = resource::<inference_pool::V1Alpha2>(origin, manifest, scope)?;
                self.pools.push(pool.map(InferencePool::from));
            }
            Kind::EndpointPickerConfig => {
                let config: EndpointPickerConfig = deserialize(manifest)?;
                let (pool, is_shadow) = (config.pool(scope), config.is_shadow());
                let (lowered, warnings) = picker::lower(config, options.allow_experimental_plugins)?;
                if api_version == GIE_V1ALPHA1 {
                    let text = format!("{api_version:?} is deprecated; {LLM_D_CONFIG:?} takes its place");
                    self.warnings.push(origin.problem("apiVersion", text));
                }
                self.warnings.extend(warnings.into_iter().map(|it| origin.problem(it.at, it.text)));
                self.configs.push(Config { origin: origin.clone(), pool, is_shadow, lowered });
            }
            Kind::InferenceObjective => self.objectives.push(resource(origin, manifest, scope)?),
            Kind::InferenceModelRewrite => self.rewrites.push(resource(origin, manifest, scope)?),
            Kind::InferenceModel => self.models.push(resource(origin, manifest, scope)?),
        }
        Ok(())
    }

    /// Adds all manifests of `more`, with their problems and warnings.
    pub(crate) fn append(&mut self, more: Self) {
        let Self { count, pools, configs, objectives, rewrites, models, problems, warnings } = more;
        self.count += count;
        self.pools.extend(pools);
        self.configs.extend(configs);
        self.objectives.extend(objectives);
        self.rewrites.extend(rewrites);
        self.models.extend(models);
        self.problems.extend(problems);
        self.warnings.extend(warnings);
    }

    /// Orders the objects, the oldest first; configurations, which have no age, keep their order.
    pub(crate) fn sort_by_age(&mut self) {
        self.pools.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        self.objectives.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        self.rewrites.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        self.models.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    }
}

impl<S> Item<S> {
    fn map<T>(self, change: impl FnOnce(S) -> T) -> Item<T> {
        Item { origin: self.origin, metadata: self.metadata, spec: change(self.spec) }
    }
}

fn resource<S: Deserr<Faults>>(origin: &Origin, manifest: Json, scope: &Scope) -> Result<Item<S>, Faults> {
    let resource: Resource<S> = deserialize(manifest)?;
    let metadata = Metadata::new(resource.metadata, scope);
    Ok(Item { origin: origin.clone(), metadata, spec: resource.spec })
}
