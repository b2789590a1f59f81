//! The base models of adapters, as the agent knows them.

use core::fmt;
use std::collections::HashMap;

use endpoint_picker_wire::models::Models;
use endpoint_picker_wire::{DecodeError, MODELS_FORMAT, Message as _};

use crate::agent::AgentResponse;

/// Base models by the names of their adapters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseModels {
    version: u64,
    bases: HashMap<String, String>,
}

/// Why the agent's response cannot be used.
#[derive(Debug)]
pub enum BaseModelsError {
    /// The agent responded with another status than 200 and 204.
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// It is not protobuf.
    Malformed(DecodeError),
    /// It has another format.
    UnknownFormat(u32),
}

impl fmt::Display for BaseModelsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { status, body } => write!(f, "the agent answered {status}: {body:?}"),
            Self::Malformed(error) => write!(f, "the list of models is malformed: {error}"),
            Self::UnknownFormat(found) => write!(
                f,
                "the list of models has format {found}, this filter reads format {MODELS_FORMAT}: update the older side"
            ),
        }
    }
}

impl core::error::Error for BaseModelsError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            Self::Status { .. } | Self::UnknownFormat(_) => None,
        }
    }
}

impl BaseModels {
    /// The path of the agent's list, which responds with 204 while its version is that of these models.
    pub fn path(&self) -> String {
        format!("/v1/models?version={}", self.version)
    }

    /// Reads the agent's response to a request for [its list](Self::path); `None`: the models have not
    /// changed.
    ///
    /// # Errors
    /// The agent refuses the request, or its list is not one that this build reads.
    pub fn newer(response: AgentResponse) -> Result<Option<Self>, BaseModelsError> {
        match response.status {
            200 => Self::decode(&response.body).map(Some),
            204 => Ok(None),
            status => Err(BaseModelsError::Status { status, body: response.reason() }),
        }
    }

    /// Reads the agent's list.
    ///
    /// # Errors
    /// It is not a list that this build reads.
    pub fn decode(bytes: &[u8]) -> Result<Self, BaseModelsError> {
        let Models { format, version, base_models } =
            Models::decode(bytes).map_err(BaseModelsError::Malformed)?;
        if format != MODELS_FORMAT {
            return Err(BaseModelsError::UnknownFormat(format));
        }
        let mut bases = HashMap::new();
        for base in base_models {
            // A base model is its own base, unless it is an adapter too.
            bases.entry(base.name.clone()).or_insert_with(|| base.name.clone());
            for adapter in base.adapters {
                bases.insert(adapter, base.name.clone());
            }
        }
        Ok(Self { version, bases })
    }

    /// The base model of an adapter, or of a base model itself.
    pub fn base_of(&self, model: &str) -> Option<&str> {
        self.bases.get(model).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::models::BaseModel;

    use super::*;

    fn base_model(name: &str, adapters: &[&str]) -> BaseModel {
        BaseModel { name: name.to_owned(), adapters: adapters.iter().map(|&name| name.to_owned()).collect() }
    }

    #[test]
    fn the_last_base_of_an_adapter_counts_and_a_base_model_is_its_own() {
        let base_models =
            vec![base_model("llama", &["a", "b"]), base_model("qwen", &["b"]), base_model("llama", &["c"])];
        let message = Models { format: MODELS_FORMAT, version: 7, base_models };
        let models = BaseModels::decode(&message.encode_to_vec()).unwrap();
        for (model, base) in [
            ("a", Some("llama")),
            ("b", Some("qwen")),
            ("c", Some("llama")),
            ("qwen", Some("qwen")),
            ("d", None),
        ] {
            assert_eq!(models.base_of(model), base, "{model}");
        }
        assert_eq!(models.path(), "/v1/models?version=7");
    }

    #[test]
    fn only_a_list_or_no_change_is_a_good_response() {
        let newer = |status, body: &[u8]| BaseModels::newer(AgentResponse { status, body: body.to_vec() });
        let message = Models { format: MODELS_FORMAT, version: 3, base_models: vec![] }.encode_to_vec();
        assert_eq!(newer(200, &message).unwrap(), Some(BaseModels { version: 3, ..BaseModels::default() }));
        assert_eq!(newer(204, b"").unwrap(), None);
        let refused = newer(401, &[b'x'; 300]).unwrap_err().to_string();
        assert_eq!(refused, format!("the agent answered 401: \"{}\"", "x".repeat(256)));
    }

    #[test]
    fn another_format_is_refused() {
        let message = Models { format: MODELS_FORMAT + 1, ..Models::default() };
        let error = BaseModels::decode(&message.encode_to_vec()).unwrap_err();
        assert!(error.to_string().contains("this filter reads format 1"), "{error}");
        assert!(matches!(BaseModels::decode(b"x"), Err(BaseModelsError::Malformed(_))));
    }
}
