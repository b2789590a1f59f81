//! Manifests that are read and refused one by one: an object, a key of a `ConfigMap`, or the files of the
//! flags.

use std::sync::Arc;

use metrics_agent_sources::kubernetes::{ClusterObject, ObjectId};
use metrics_agent_sources::manifests::{File, Origin, Problem, Problems, Source};
use metrics_agent_support::files::{MAX_BYTES, ReadError};
use serde_json::Value as Json;

use super::CatalogueSettings;
use crate::manifests::Scope;
use crate::manifests::base_model::is_labelled;
use crate::manifests::document::{Documents, PARAMETERS};
use crate::manifests::fields::without_nulls_outside;

/// Endings of the keys of a `ConfigMap` that are read.
const KEY_ENDINGS: [&str; 3] = [".yaml", ".yml", ".json"];

/// A manifest that is read by itself.
pub(super) struct Manifest<'a> {
    pub(super) source: Source,
    content: ManifestContent<'a>,
}

enum ManifestContent<'a> {
    Object(&'a Json),
    /// The documents of a key, and the namespace of documents that name none.
    Text(&'a str, &'a str),
    Files(&'a Result<Vec<File>, Problems>),
}

impl<'a> Manifest<'a> {
    /// The manifests of an object: one for each key of a `ConfigMap`, unless the `ConfigMap` is itself one of
    /// a base model.
    pub(super) fn of_object(object: &'a ClusterObject) -> Vec<Self> {
        let id = Arc::new(object.id.clone());
        if !is_config_map(&id) || is_labelled(&object.json) {
            return vec![Self { source: Source::Object(id), content: ManifestContent::Object(&object.json) }];
        }
        let data = object.json.get("data").and_then(Json::as_object);
        let texts = data.into_iter().flatten().filter_map(|(key, text)| Some((key.as_str(), text.as_str()?)));
        let texts = texts.filter(|(key, _)| KEY_ENDINGS.iter().any(|ending| key.ends_with(ending)));
        let namespace = &object.id.namespace;
        texts
            .map(|(key, text)| Self {
                source: Source::ConfigMapKey(Arc::clone(&id), key.into()),
                content: ManifestContent::Text(text, namespace),
            })
            .collect()
    }

    /// The files of the flags, which are valid together or not at all.
    pub(super) fn of_files(source: Source, files: &'a Result<Vec<File>, Problems>) -> Self {
        Self { source, content: ManifestContent::Files(files) }
    }

    /// Reads the manifest.
    pub(super) fn read(&self, settings: &CatalogueSettings) -> Documents {
        let options = &settings.options;
        let mut documents = match self.content {
            ManifestContent::Object(json) => {
                let mut documents = Documents::default();
                let json = without_nulls_outside(PARAMETERS, json.clone());
                documents.read_object(&Origin::of(self.source.clone()), json, &settings.scope(), options);
                documents
            }
            ManifestContent::Text(text, namespace) => self.read_text(text, namespace, settings),
            ManifestContent::Files(Ok(files)) => Documents::of_files(files, &settings.scope(), options),
            ManifestContent::Files(Err(Problems(problems))) => {
                Documents { problems: problems.clone(), ..Documents::default() }
            }
        };
        check_configs(&mut documents, settings);
        documents
    }

    fn read_text(&self, text: &str, namespace: &str, settings: &CatalogueSettings) -> Documents {
        let mut documents = Documents::default();
        if text.len() > MAX_BYTES {
            let problem = ReadError::TooLarge.to_string();
            documents.problems.push(Origin::of(self.source.clone()).problem("", problem));
        } else {
            let scope = Scope::Cluster { namespace: namespace.to_owned() };
            documents.read_text(&self.source, text.as_bytes(), &scope, &settings.options);
        }
        documents
    }
}

pub(super) fn is_config_map(id: &ObjectId) -> bool {
    id.kind == "ConfigMap" && id.api_version == "v1"
}

/// Refuses configurations that the agent cannot serve with its flags, and removes endpoints files, which a
/// cluster's pools do not use.
fn check_configs(documents: &mut Documents, settings: &CatalogueSettings) {
    let Documents { configs, problems, warnings, .. } = documents;
    for config in configs {
        if config.lowered.scraping.has_https() && !settings.has_tls {
            let text = "https to the model servers or exporters requires --scrape-ca or --model-server-metrics-https-insecure-skip-verify";
            problems.push(config.origin.problem("dataLayer", text));
        }
        if config.lowered.endpoints_file.take().is_some() {
            let text = "file-discovery is not used; the endpoints of a cluster's pool are its pods";
            let problem: Problem = config.origin.problem("dataLayer.discovery", text);
            warnings.push(problem);
        }
    }
}
