//! The models of a server, from its response to `GET /v1/models`.

use std::sync::Arc;

use endpoint_picker::pool::reading::ServedModel;
use hyper::header::HeaderValue;
use serde::Deserialize;

use super::download::BodyReader;

/// Maximum number of models of a server; others are not read.
const MAX_MODELS: usize = 1024;

/// Maximum length of a model's name in bytes; a longer one is not read.
const MAX_NAME: usize = 256;

/// Reads the lists of one server, one after the other.
#[derive(Debug, Default)]
pub struct ModelListReader {
    body: Vec<u8>,
}

#[derive(Deserialize)]
struct ServerModels {
    data: Vec<ListedModel>,
}

/// An entry of OpenAI's list.
#[derive(Clone, Debug, Deserialize)]
pub struct ListedModel {
    /// The name under which it is served.
    pub id: String,
    /// The folder or the name from which the server has it, in the lists of vLLM and SGLang.
    #[serde(default)]
    pub root: Option<String>,
    /// The base model of an adapter, in vLLM's list.
    #[serde(default)]
    parent: Option<String>,
}

impl ListedModel {
    /// Whether it is an adapter of another model.
    pub fn is_adapter(&self) -> bool {
        self.parent.as_ref().is_some_and(|parent| !parent.is_empty())
    }
}

impl BodyReader for ModelListReader {
    fn accept(&self) -> HeaderValue {
        HeaderValue::from_static("application/json")
    }

    fn start(&mut self) {
        self.body.clear();
    }

    /// Reads the next chunk. The client limits the length of the body.
    fn feed(&mut self, chunk: &[u8]) {
        self.body.extend_from_slice(chunk);
    }

    /// A list has none.
    fn series(&self) -> usize {
        0
    }
}

impl ModelListReader {
    /// The models; `None`: the body is not such a list.
    pub fn finish(&self) -> Option<Arc<[ServedModel]>> {
        read(&self.body)
    }
}

/// The models of a list in JSON, as [`entries`].
pub fn read(json: &[u8]) -> Option<Arc<[ServedModel]>> {
    let served = |model: ListedModel| ServedModel { is_adapter: model.is_adapter(), id: model.id };
    Some(entries(json)?.into_iter().map(served).collect())
}

/// The entries of a list in JSON: at most 1024, with names of at most 256 bytes. `None`: it is not such a
/// list.
pub fn entries(json: &[u8]) -> Option<Vec<ListedModel>> {
    let list: ServerModels = serde_json::from_slice(json).ok()?;
    let models = list.data.into_iter().filter(|model| model.id.len() <= MAX_NAME).take(MAX_MODELS);
    Some(models.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_chunks(body: &str) -> Option<Vec<(String, bool)>> {
        let mut reader = ModelListReader::default();
        reader.feed(b"the last body");
        reader.start();
        body.as_bytes().chunks(7).for_each(|chunk| reader.feed(chunk));
        Some(reader.finish()?.iter().map(|model| (model.id.clone(), model.is_adapter)).collect())
    }

    /// Example of `models-data-extractor`.
    #[test]
    fn adapters_have_a_parent() {
        let body = r#"{"object": "list", "data": [
            {"id": "llama", "object": "model", "root": "/models/llama", "parent": null, "max_model_len": 8192},
            {"id": "tune", "object": "model", "root": "/adapters/tune", "parent": "llama"}, {"id": "x", "parent": ""}]}"#;
        let expected = [("llama", false), ("tune", true), ("x", false)];
        assert_eq!(
            in_chunks(body),
            Some(expected.map(|(id, is_adapter)| (id.to_owned(), is_adapter)).to_vec())
        );
        assert_eq!(in_chunks(r#"{"data": []}"#), Some(vec![]));
    }

    #[test]
    fn other_bodies_have_no_list() {
        for body in
            ["", "{}", "[]", r#"{"data": {}}"#, r#"{"data": [{"id": 1}]}"#, r#"{"data": [{"id": "a"}]"#]
        {
            assert_eq!(in_chunks(body), None, "{body}");
        }
    }

    #[test]
    fn names_and_their_number_are_bounded() {
        let entry = |id: String| format!(r#"{{"id": "{id}"}}"#);
        let many: Vec<_> = (0..3000).map(|n| entry(n.to_string())).collect();
        assert_eq!(in_chunks(&format!(r#"{{"data": [{}]}}"#, many.join(","))).unwrap().len(), MAX_MODELS);
        let long = format!(r#"{{"data": [{}, {}]}}"#, entry("x".repeat(MAX_NAME + 1)), entry("a".to_owned()));
        assert_eq!(in_chunks(&long), Some(vec![("a".to_owned(), false)]));
    }
}
