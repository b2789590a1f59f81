//! The documents of the files, each checked by itself.

use std::sync::Arc;

use deserr::{Deserr, deserialize};
use serde_json::Value as Json;

use super::Options;
use super::fields::Metadata;
use super::inference_model::InferenceModel;
use super::inference_model_rewrite::InferenceModelRewrite;
use super::inference_objective::InferenceObjective;
use super::inference_pool::{self, InferencePool};
use super::list;
use super::picker::{self, EndpointPickerConfig};
use super::problem::{Fault, Faults, Origin, Problem, quoted};
use super::source::File;
use crate::file_limits::yaml_problem;

const POOL: &str = "inference.networking.k8s.io/v1";
const LLM_D_CONFIG: &str = "llm-d.ai/v1alpha1";
const LLM_D: &str = "llm-d.ai/v1alpha2";
const GIE_V1ALPHA1: &str = "inference.networking.x-k8s.io/v1alpha1";
const GIE: &str = "inference.networking.x-k8s.io/v1alpha2";

/// The kinds there are, each with the versions it is read in.
pub(super) const KINDS: [(&str, &[&str]); 5] = [
    ("InferencePool", &[POOL, GIE]),
    ("EndpointPickerConfig", &[LLM_D_CONFIG, GIE_V1ALPHA1]),
    ("InferenceObjective", &[LLM_D, GIE]),
    // The proposal of the rewrite shows v1alpha1.
    ("InferenceModelRewrite", &[LLM_D, GIE, GIE_V1ALPHA1]),
    ("InferenceModel", &[GIE]),
];

/// The groups whose every kind must be known.
const GROUPS: [&str; 3] = ["inference.networking.k8s.io/", "inference.networking.x-k8s.io/", "llm-d.ai/"];

/// One object and where it stands.
#[derive(Debug)]
pub(super) struct Item<S> {
    pub(super) origin: Origin,
    pub(super) metadata: Metadata,
    pub(super) spec: S,
}

/// A configuration and where it stands.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) origin: Origin,
    /// The pool it is for; `None`: every pool that has none of its own.
    pub(super) pool: Option<String>,
    /// Whether it is only tried on the pool's requests.
    pub(super) is_shadow: bool,
    pub(super) lowered: picker::Lowered,
}

/// All documents that are right by themselves, and what is wrong with the others.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) count: usize,
    pub(super) pools: Vec<Item<InferencePool>>,
    pub(super) configs: Vec<Config>,
    pub(super) objectives: Vec<Item<InferenceObjective>>,
    pub(super) rewrites: Vec<Item<InferenceModelRewrite>>,
    pub(super) models: Vec<Item<InferenceModel>>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}

#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase)]
struct Header {
    api_version: String,
    kind: String,
}

/// The shape that all kinds but the configuration have.
#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields, where_predicate = S: Deserr<Faults>)]
struct Resource<S> {
    #[deserr(rename = "apiVersion")]
    _api_version: String,
    #[deserr(rename = "kind")]
    _kind: String,
    metadata: Metadata,
    spec: S,
    /// The cluster's own; not looked at.
    #[deserr(default, rename = "status")]
    _status: Option<Json>,
}

impl Documents {
    pub(super) fn read(files: &[File], options: &Options) -> Self {
        let mut documents = Self::default();
        for file in files {
            documents.read_file(file, options);
        }
        documents
    }

    fn read_file(&mut self, file: &File, given: &Options) {
        // YAML 1.2: `no` is a text.
        let budget = Some(given.file_limits.yaml());
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false, budget: budget };
        let mut bytes = &file.bytes[..];
        let read = serde_saphyr::read_with_options::<_, Json>(&mut bytes, options);
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
                let most = given.file_limits.manifests;
                if self.count > most {
                    let text = format!(
                        "is one too many; allowed are {most} in all files together (--max-manifests)"
                    );
                    self.problems.push(origin.problem(Fault::new("", text)));
                    return;
                }
                if let Err(faults) = self.add(&origin, document, given.allow_experimental_plugins) {
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
        if !is_ours(&api_version, &kind)? {
            let text = format!("{kind} of {api_version} is none of the agent's and passed over");
            self.warn(origin, Fault::new("kind", text));
            return Ok(());
        }
        match kind.as_str() {
            "InferencePool" if api_version == POOL => {
                self.pools.push(resource::<inference_pool::V1>(origin, document)?.map(InferencePool::from));
            }
            "InferencePool" => {
                self.pools
                    .push(resource::<inference_pool::V1Alpha2>(origin, document)?.map(InferencePool::from));
            }
            "EndpointPickerConfig" => {
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
            "InferenceObjective" => self.objectives.push(resource(origin, document)?),
            "InferenceModelRewrite" => self.rewrites.push(resource(origin, document)?),
            _ => self.models.push(resource(origin, document)?),
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

/// Whether a document is one of ours. Files often hold Deployments and Services beside ours, and these are passed over; but
/// a group or a kind of ours with the other part misspelt is refused.
fn is_ours(api_version: &str, kind: &str) -> Result<bool, Faults> {
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    let fault = match known {
        Some((_, versions)) if versions.contains(&api_version) => return Ok(true),
        Some((_, versions)) => {
            let text = format!(
                "{} is no version of {kind}; allowed are {}",
                quoted(api_version),
                versions.join(", ")
            );
            Fault::new("apiVersion", text)
        }
        None if GROUPS.iter().any(|group| api_version.starts_with(group)) => {
            let kinds = KINDS.map(|(name, _)| name).join(", ");
            Fault::new("kind", format!("{} is no known kind; allowed are {kinds}", quoted(kind)))
        }
        None => return Ok(false),
    };
    Err(Faults(vec![fault]))
}

/// The field with a plugin's parameters, whose names are checked when they are read.
const PARAMETERS: &str = "parameters";

/// As for Kubernetes, a field that is null is a field that is not there.
pub(super) fn without_nulls(value: Json) -> Json {
    without_nulls_outside("", value)
}

/// The same, but fields called `kept` stay as they are unless they are null themselves.
fn without_nulls_outside(kept: &str, value: Json) -> Json {
    match value {
        Json::Object(fields) => {
            let given = fields.into_iter().filter(|(_, value)| !value.is_null());
            let each = |(key, value): (String, Json)| {
                let value = if key == kept { value } else { without_nulls_outside(kept, value) };
                (key, value)
            };
            Json::Object(given.map(each).collect())
        }
        Json::Array(items) => {
            Json::Array(items.into_iter().map(|item| without_nulls_outside(kept, item)).collect())
        }
        plain => plain,
    }
}
