//! `ConfigMap`s of body-based routing: a base model, and the adapters that servers load onto it.

use deserr::{Deserr, deserialize};
use endpoint_picker_wire::models;
use metrics_agent_sources::kubernetes::BASE_MODEL_LABEL;
use serde_json::Value as Json;

use super::fault::{Faults, quoted};
use super::fields::{MetadataFields, Model};

/// A base model, and its adapters in a `ConfigMap`.
#[derive(Clone, Debug)]
pub(crate) struct BaseModel {
    name: String,
    adapters: Vec<String>,
    /// The version of the object, which grows with its updates; 0 in a file.
    version: u64,
}

/// Fields of a `ConfigMap`. It may have others, of which none is used.
#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase)]
struct ConfigMap {
    metadata: MetadataFields,
    data: Data,
}

#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase)]
struct Data {
    base_model: TrimmedModel,
    #[deserr(default)]
    adapters: AdapterNames,
}

/// The name of a model, without the blanks around it.
#[derive(Deserr)]
#[deserr(error = Faults, try_from(&String) = Self::new -> String)]
struct TrimmedModel(String);

impl TrimmedModel {
    fn new(name: &str) -> Result<Self, String> {
        Model::new(name.trim().to_owned()).map(|Model(name)| Self(name))
    }
}

/// A YAML list of names; blank ones are skipped.
#[derive(Default, Deserr)]
#[deserr(error = Faults, try_from(&String) = Self::new -> String)]
struct AdapterNames(Vec<String>);

impl AdapterNames {
    fn new(text: &str) -> Result<Self, String> {
        let listed = match text.trim() {
            "" => Vec::new(),
            _ => serde_saphyr::from_str::<Vec<String>>(text)
                .map_err(|_| format!("{} is not a list; allowed is a YAML list of names", quoted(text)))?,
        };
        let names = listed.iter().filter(|name| !name.trim().is_empty());
        let names = names.map(|name| TrimmedModel::new(name).map(|TrimmedModel(name)| name));
        names.collect::<Result<Vec<_>, _>>().map(Self)
    }
}

/// Whether a document is such a `ConfigMap`.
pub(crate) fn is_labelled(document: &Json) -> bool {
    let is = |field: &str, value: &str| document.get(field).is_some_and(|found| found == value);
    let label = document.pointer("/metadata/labels").and_then(|labels| labels.get(BASE_MODEL_LABEL));
    is("apiVersion", "v1") && is("kind", "ConfigMap") && label.is_some_and(|label| label == "true")
}

impl BaseModel {
    pub(super) fn read(document: Json) -> Result<(MetadataFields, Self), Faults> {
        let version = document.pointer("/metadata/resourceVersion").and_then(Json::as_str);
        let version = version.and_then(|version| version.parse().ok()).unwrap_or(0);
        let ConfigMap { metadata, data } = deserialize(document)?;
        let Data { base_model: TrimmedModel(name), adapters: AdapterNames(adapters) } = data;
        Ok((metadata, Self { name, adapters, version }))
    }

    /// The number by which updates are ordered: of two objects that name an adapter the last one counts.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn on_the_wire(&self) -> models::BaseModel {
        models::BaseModel { name: self.name.clone(), adapters: self.adapters.clone() }
    }
}
