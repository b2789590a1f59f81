//! Manifests that are valid by themselves.

use deserr::{Deserr, deserialize};
use metrics_agent_sources::manifests::{File, MAX_MANIFESTS, Origin, Problem, Source};
use metrics_agent_support::files::yaml_problem;
use serde_json::Value as Json;

use super::base_model::{self, BaseModel};
use super::fault::{Fault, Faults};
use super::fields::{Metadata, MetadataFields, without_nulls_outside};
use super::inference_model::{InferenceModel, InferenceObjective};
use super::inference_model_rewrite::InferenceModelRewrite;
use super::inference_pool::InferencePool;
use super::picker::EndpointPickerConfig;
use super::{GIE_V1ALPHA1, LLM_D_CONFIG, ManifestKind, POOL, Scope, inference_pool, picker};
use crate::Options;
use crate::epp::names::{self, Use};

/// An object and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Item<S> {
    pub origin: Origin,
    pub metadata: Metadata,
    pub spec: S,
}

/// A picker configuration and its origin.
#[derive(Clone, Debug)]
pub(crate) struct PickerDocument {
    pub origin: Origin,
    /// The name in the plan of the configuration's pool; `None`: every pool without a configuration of its
    /// own.
    pub pool: Option<String>,
    /// Whether it is a shadow configuration.
    pub(crate) is_shadow: bool,
    pub(crate) lowered: picker::Lowered,
    /// Names that not every release of the EPP has.
    pub(crate) names: Vec<Use>,
}

/// All manifests that are valid by themselves, and the problems of the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Documents {
    pub count: usize,
    pub pools: Vec<Item<InferencePool>>,
    pub(crate) configs: Vec<PickerDocument>,
    pub objectives: Vec<Item<InferenceObjective>>,
    pub(crate) rewrites: Vec<Item<InferenceModelRewrite>>,
    pub models: Vec<Item<InferenceModel>>,
    pub base_models: Vec<Item<BaseModel>>,
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase)]
struct DocumentHeader {
    api_version: String,
    kind: String,
}

/// The structure of all kinds except the configuration.
#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields, where_predicate = S: Deserr<Faults>)]
struct ManifestResource<S> {
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

    /// Reads an object of the API server, which has no null anywhere. The server has checked it by its own
    /// version of the schema, which may be newer: fields that the agent does not support are left out with a
    /// warning.
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
        if base_model::is_labelled(&manifest) {
            let (metadata, spec) = BaseModel::read(manifest)?;
            let metadata = Metadata::new(metadata, scope);
            self.base_models.push(Item { origin: origin.clone(), metadata, spec });
            return Ok(());
        }
        let DocumentHeader { api_version, kind } = deserialize(manifest.clone())?;
        let Some(kind) = ManifestKind::of(&api_version, &kind)? else {
            let text = format!("{kind} of {api_version} is not read by the agent; the document is skipped");
            self.warnings.push(origin.problem("kind", text));
            return Ok(());
        };
        match kind {
            ManifestKind::InferencePool if api_version == POOL => {
                let pool = resource::<inference_pool::V1>(origin, manifest, scope)?;
                self.pools.push(pool.map(InferencePool::from));
            }
            ManifestKind::InferencePool => {
                let pool = resource::<inference_pool::V1Alpha2>(origin, manifest, scope)?;
                self.pools.push(pool.map(InferencePool::from));
            }
            ManifestKind::EndpointPickerConfig => {
                let names = names::uses(&manifest);
                let unreleased = names.iter().filter_map(|it| Some(Fault::new(&it.at, it.unreleased()?)));
                let unreleased: Vec<_> = unreleased.collect();
                if !unreleased.is_empty() {
                    return Err(Faults(unreleased));
                }
                let config: EndpointPickerConfig = deserialize(manifest)?;
                let (pool, is_shadow) = (config.pool(scope), config.is_shadow());
                let (lowered, warnings) = picker::lower(config, options.allow_experimental_plugins)?;
                if api_version == GIE_V1ALPHA1 {
                    let text = format!("{api_version:?} is deprecated; {LLM_D_CONFIG:?} takes its place");
                    self.warnings.push(origin.problem("apiVersion", text));
                }
                let deprecated = names.iter().filter_map(|it| Some(origin.problem(&it.at, it.warning()?)));
                self.warnings.extend(deprecated);
                self.warnings.extend(warnings.into_iter().map(|it| origin.problem(it.at, it.text)));
                self.configs.push(PickerDocument { origin: origin.clone(), pool, is_shadow, lowered, names });
            }
            ManifestKind::InferenceObjective => self.objectives.push(resource(origin, manifest, scope)?),
            ManifestKind::InferenceModelRewrite => self.rewrites.push(resource(origin, manifest, scope)?),
            ManifestKind::InferenceModel => self.models.push(resource(origin, manifest, scope)?),
        }
        Ok(())
    }

    /// Adds all manifests of `more`, with their problems and warnings.
    pub(crate) fn append(&mut self, more: Self) {
        let Self { count, pools, configs, objectives, rewrites, models, base_models, problems, warnings } =
            more;
        self.count += count;
        self.pools.extend(pools);
        self.configs.extend(configs);
        self.objectives.extend(objectives);
        self.rewrites.extend(rewrites);
        self.models.extend(models);
        self.base_models.extend(base_models);
        self.problems.extend(problems);
        self.warnings.extend(warnings);
    }

    /// Orders the objects, the oldest first; configurations, which have no age, keep their order.
    pub(crate) fn sort_by_age(&mut self) {
        self.pools.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        self.objectives.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        self.rewrites.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        self.models.sort_by(|a, b| a.metadata.by_age(&b.metadata));
        self.base_models.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    }
}

impl<S> Item<S> {
    fn map<T>(self, change: impl FnOnce(S) -> T) -> Item<T> {
        Item { origin: self.origin, metadata: self.metadata, spec: change(self.spec) }
    }
}

fn resource<S: Deserr<Faults>>(origin: &Origin, manifest: Json, scope: &Scope) -> Result<Item<S>, Faults> {
    let resource: ManifestResource<S> = deserialize(manifest)?;
    let metadata = Metadata::new(resource.metadata, scope);
    Ok(Item { origin: origin.clone(), metadata, spec: resource.spec })
}

#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct ManifestList {
    #[deserr(rename = "apiVersion")]
    _api_version: String,
    #[deserr(rename = "kind")]
    _kind: String,
    /// Written by the cluster; not used.
    #[deserr(default, rename = "metadata")]
    _metadata: Option<Json>,
    #[deserr(default)]
    items: Vec<Json>,
}

/// The objects of a list; `None`: the document is not a list.
///
/// A `List` of `v1` has objects of any kind. In a list of one kind, such as `InferencePoolList`, items may
/// lack version and kind, as the API server writes it.
pub(crate) fn items_of(document: &Json) -> Result<Option<Vec<Json>>, Faults> {
    let kind = match ListKind::of(document) {
        ListKind::NotAList => return Ok(None),
        ListKind::Mixed => None,
        ListKind::Of(kind) => Some(kind),
    };
    let ManifestList { mut items, .. } = deserialize(document.clone())?;
    let mut faults = Faults::default();
    for (index, item) in items.iter_mut().enumerate() {
        if ListKind::of(item) != ListKind::NotAList {
            faults
                .0
                .push(Fault::new(format!("items[{index}]"), "is a list within a list; allowed are objects"));
        }
        if let (Some(kind), Some(fields)) = (kind, item.as_object_mut()) {
            fields.entry("apiVersion").or_insert_with(|| document["apiVersion"].clone());
            fields.entry("kind").or_insert_with(|| kind.name().into());
        }
    }
    if faults.0.is_empty() { Ok(Some(items)) } else { Err(faults) }
}

/// Whether a document is a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListKind {
    NotAList,
    Mixed,
    /// A list of objects of this kind.
    Of(ManifestKind),
}

impl ListKind {
    fn of(document: &Json) -> Self {
        let Some(kind) = document.get("kind").and_then(Json::as_str) else { return Self::NotAList };
        if kind == "List" && document.get("apiVersion").is_some_and(|version| version == "v1") {
            return Self::Mixed;
        }
        kind.strip_suffix("List").and_then(ManifestKind::by_name).map_or(Self::NotAList, Self::Of)
    }
}

/// The field with a plugin's parameters. Its nulls stay, so that unknown names are refused when the plugin is
/// read.
pub(crate) const PARAMETERS: &str = "parameters";

impl Documents {
    pub(crate) fn of_files(files: &[File], scope: &Scope, options: &Options) -> Self {
        let mut documents = Self::default();
        for file in files {
            documents.read_text(&Source::File(file.path.clone()), &file.bytes, scope, options);
        }
        documents
    }

    /// Reads the manifests of one text. Stops at a manifest above the limit on manifests.
    pub(crate) fn read_text(&mut self, source: &Source, mut text: &[u8], scope: &Scope, options: &Options) {
        // As in YAML 1.2, `no` is a string.
        let yaml = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        let read = serde_saphyr::read_with_options::<_, Json>(&mut text, yaml);
        for (index, document) in read.enumerate() {
            let origin = Origin { source: source.clone(), document: Some(index + 1), item: None };
            let document = match document {
                Ok(document) => without_nulls_outside(PARAMETERS, document),
                Err(error) => {
                    self.problems.push(origin.problem("", yaml_problem(&error)));
                    return;
                }
            };
            let items = match items_of(&document) {
                Ok(items) => items,
                Err(faults) => {
                    self.problems.extend(faults.at(&origin));
                    continue;
                }
            };
            let items = match items {
                Some(items) => (1..).map(Some).zip(items).collect(),
                None => vec![(None, document)],
            };
            for (item, manifest) in items {
                let origin = Origin { item, ..origin.clone() };
                if self.count == MAX_MANIFESTS {
                    let text =
                        format!("exceeds the limit of {MAX_MANIFESTS} manifests in all files together");
                    self.problems.push(origin.problem("", text));
                    return;
                }
                self.read(&origin, manifest, scope, options);
            }
        }
    }
}
