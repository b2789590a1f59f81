//! Reads all documents of the files.

use std::sync::Arc;

use deserr::{Deserr, deserialize};
use serde_json::Value as Json;

use super::fault::{Fault, Faults, Origin};
use super::fields::Metadata;
use super::inference_model::InferenceModel;
use super::inference_model_rewrite::InferenceModelRewrite;
use super::inference_objective::InferenceObjective;
use super::inference_pool::{self, InferencePool};
use super::kinds::{GIE_V1ALPHA1, Kind, LLM_D_CONFIG, POOL};
use super::list;
use super::nulls::{PARAMETERS, without_nulls_outside};
use super::picker::{self, EndpointPickerConfig};
use crate::catalogue::options::Options;
use crate::files::yaml_problem;
use crate::sources::manifests::File;
use crate::sources::problem::Problem;

/// An object and its origin.
#[derive(Debug)]
pub(crate) struct Item<S> {
    pub(crate) origin: Origin,
    pub(crate) metadata: Metadata,
    pub(crate) spec: S,
}

/// A picker configuration and its origin.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) origin: Origin,
    /// The pool of the configuration; `None`: every pool without a configuration of its own.
    pub(crate) pool: Option<String>,
    /// Whether it is a shadow configuration.
    pub(crate) is_shadow: bool,
    pub(crate) lowered: picker::Lowered,
}

/// All documents that are valid by themselves, and the problems of the others.
#[derive(Debug, Default)]
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
    metadata: Metadata,
    spec: S,
    /// Written by the cluster; not used.
    #[deserr(default, rename = "status")]
    _status: Option<Json>,
}

impl Documents {
    pub(crate) fn read(files: &[File], options: &Options) -> Self {
        let mut documents = Self::default();
        for file in files {
            documents.read_file(file, options);
        }
        documents
    }

    fn read_file(&mut self, file: &File, options: &Options) {
        // As in YAML 1.2, `no` is a string.
        let budget = Some(options.file_limits.yaml());
        let yaml = serde_saphyr::options! { strict_booleans: true, with_snippet: false, budget: budget };
        let mut bytes = &file.bytes[..];
        let read = serde_saphyr::read_with_options::<_, Json>(&mut bytes, yaml);
        for (index, document) in read.enumerate() {
            let origin = Origin { file: Arc::clone(&file.path), document: index + 1, item: None };
            let document = match document {
                Ok(document) => without_nulls_outside(PARAMETERS, document),
                Err(error) => {
                    self.problems.push(origin.problem(Fault::new("", yaml_problem(&error))));
                    return;
                }
            };
            let items = match list::items(&document) {
                Ok(items) => items,
                Err(faults) => {
                    self.problems.extend(faults.0.into_iter().map(|fault| origin.problem(fault)));
                    continue;
                }
            };
            let items = match items {
                Some(items) => (1..).map(Some).zip(items).collect(),
                None => vec![(None, document)],
            };
            for (item, document) in items {
                let origin = Origin { item, ..origin.clone() };
                self.count += 1;
                let max = options.file_limits.manifests;
                if self.count > max {
                    let text = format!(
                        "exceeds the limit of {max} manifests in all files together (--max-manifests)"
                    );
                    self.problems.push(origin.problem(Fault::new("", text)));
                    return;
                }
                if let Err(faults) = self.add(&origin, document, options.allow_experimental_plugins) {
                    self.problems.extend(faults.0.into_iter().map(|fault| origin.problem(fault)));
                }
            }
        }
    }

    fn add(
        &mut self,
        origin: &Origin,
        document: Json,
        allow_experimental_plugins: bool,
    ) -> Result<(), Faults> {
        let Header { api_version, kind } = deserialize(document.clone())?;
        let Some(kind) = Kind::of(&api_version, &kind)? else {
            let text = format!("{kind} of {api_version} is not read by the agent; the document is skipped");
            self.warn(origin, Fault::new("kind", text));
            return Ok(());
        };
        match kind {
            Kind::InferencePool if api_version == POOL => {
                self.pools.push(resource::<inference_pool::V1>(origin, document)?.map(InferencePool::from));
            }
            Kind::InferencePool => {
                self.pools
                    .push(resource::<inference_pool::V1Alpha2>(origin, document)?.map(InferencePool::from));
            }
            Kind::EndpointPickerConfig => {
                let config: EndpointPickerConfig = deserialize(document)?;
                let (pool, is_shadow) = (config.pool(), config.is_shadow());
                let (lowered, warnings) = picker::lower(config, allow_experimental_plugins)?;
                if api_version == GIE_V1ALPHA1 {
                    let text = format!("{api_version:?} is deprecated; {LLM_D_CONFIG:?} takes its place");
                    self.warn(origin, Fault::new("apiVersion", text));
                }
                for warning in warnings {
                    self.warn(origin, warning);
                }
                self.configs.push(Config { origin: origin.clone(), pool, is_shadow, lowered });
            }
            Kind::InferenceObjective => self.objectives.push(resource(origin, document)?),
            Kind::InferenceModelRewrite => self.rewrites.push(resource(origin, document)?),
            Kind::InferenceModel => self.models.push(resource(origin, document)?),
        }
        Ok(())
    }

    fn warn(&mut self, origin: &Origin, fault: Fault) {
        self.warnings.push(origin.problem(fault));
    }
}

impl<S> Item<S> {
    fn map<T>(self, change: impl FnOnce(S) -> T) -> Item<T> {
        Item { origin: self.origin, metadata: self.metadata, spec: change(self.spec) }
    }
}

fn resource<S: Deserr<Faults>>(origin: &Origin, document: Json) -> Result<Item<S>, Faults> {
    let resource: Resource<S> = deserialize(document)?;
    Ok(Item { origin: origin.clone(), metadata: resource.metadata, spec: resource.spec })
}
