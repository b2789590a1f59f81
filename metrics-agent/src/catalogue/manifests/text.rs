//! Reads all manifests of texts in YAML or JSON.

use serde_json::Value as Json;

use super::document::Documents;
use super::list;
use super::nulls::{PARAMETERS, without_nulls_outside};
use super::scope::Scope;
use crate::catalogue::options::Options;
use crate::files::yaml_problem;
use crate::sources::manifests::File;
use crate::sources::problem::{Origin, Source};

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
        let budget = Some(options.file_limits.yaml());
        let yaml = serde_saphyr::options! { strict_booleans: true, with_snippet: false, budget: budget };
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
            let items = match list::items(&document) {
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
                let max = options.file_limits.manifests;
                if self.count == max {
                    let text = format!(
                        "exceeds the limit of {max} manifests in all files together (--max-manifests)"
                    );
                    self.problems.push(origin.problem("", text));
                    return;
                }
                self.read(&origin, manifest, scope, options);
            }
        }
    }
}
