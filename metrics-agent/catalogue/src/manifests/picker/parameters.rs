//! Reads the parameters of plugins.

use endpoint_picker::plugin::Parameters;
use metrics_agent_support::suggestion::with_suggestion;
use serde::de::DeserializeOwned;
use serde_json::{Error, Value as Json};

/// A problem at a path within a plugin.
#[derive(Debug)]
pub(super) struct Invalid {
    pub(super) path: String,
    pub(super) problem: String,
}

impl Invalid {
    /// A problem of the parameters together.
    pub(super) fn parameters(problem: String) -> Self {
        Self { path: "parameters".to_owned(), problem }
    }
}

/// Reads parameters of one type.
pub(super) fn read_parameters<P: DeserializeOwned>(parameters: Json) -> Result<P, Invalid> {
    read_parameters_with(parameters, |parameters| P::deserialize(parameters))
}

/// Reads parameters with `read`.
pub(super) fn read_parameters_with<P>(
    parameters: Json,
    read: impl FnOnce(serde_path_to_error::Deserializer<'_, '_, Parameters>) -> Result<P, Error>,
) -> Result<P, Invalid> {
    let mut track = serde_path_to_error::Track::new();
    let result = read(serde_path_to_error::Deserializer::new(Parameters(parameters), &mut track));
    result.map_err(|error| {
        let path = match track.path().to_string().as_str() {
            "." => "parameters".to_owned(),
            path => format!("parameters.{path}"),
        };
        Invalid { path, problem: with_suggestion(error.to_string()) }
    })
}
