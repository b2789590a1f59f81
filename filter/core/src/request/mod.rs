//! A request, as far as a decision depends on it.

pub mod body;
pub mod packed;
pub mod prompt;
pub mod subset;

use crate::headers::Headers;
use crate::policy::ModelResolution;
use crate::request::body::Body;
use crate::request::prompt::Prompt;
use crate::request::subset::Subset;

/// What a decision needs of a request.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The model that will serve it, after any rewrite.
    pub model: &'a str,
    /// Separates prompts of different users in the servers' caches.
    pub cache_salt: Option<&'a str>,
    /// The prompt, if the body has one.
    pub prompt: Option<&'a Prompt<'a>>,
    /// The client's limit on generated tokens.
    pub max_output_tokens: Option<u64>,
    /// The request's headers.
    pub headers: Headers<'a>,
    /// Endpoints the choice is restricted to.
    pub subset: Subset,
    /// Below zero: sheddable while the pool is saturated.
    pub priority: i32,
}

impl<'a> Request<'a> {
    /// A request with this body, whose model is resolved.
    pub fn new(
        body: &'a Body<'_>,
        resolution: ModelResolution<'a>,
        headers: Headers<'a>,
        subset: Subset,
    ) -> Self {
        Self {
            model: resolution.model,
            cache_salt: body.cache_salt.as_deref(),
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            headers,
            subset,
            priority: resolution.priority,
        }
    }

    /// Tokens in the prompt; 0 without one.
    pub fn input_tokens(&self) -> u64 {
        self.prompt.map_or(0, Prompt::token_count)
    }
}
