//! A request, as far as a decision depends on it.

pub mod body;
pub mod cached_prompt;
pub mod packed;
pub mod prompt;
pub mod session;
pub mod stored;
pub mod subset;

use core::net::SocketAddr;

use crate::headers::Headers;
use crate::request::body::Body;
use crate::request::cached_prompt::CachedPrompt;
use crate::request::prompt::Prompt;
use crate::request::session::SessionName;
use crate::request::stored::StoredId;
use crate::request::subset::Subset;

/// The model and priority that an operator's policy gives a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelResolution<'a> {
    /// The model that is to serve it; empty if the server is to serve its own.
    pub model: &'a str,
    /// Below zero: sheddable while the pool is saturated.
    pub priority: i32,
    /// The object with the [rule](crate::policy::RewriteRule) that named the model, if one did.
    pub rewrite: Option<&'a str>,
}

/// A request, as far as a decision depends on it.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The model that will serve it, after any rewrite.
    pub model: &'a str,
    /// Separates prompts of different users in the servers' caches.
    pub cache_salt: Option<&'a str>,
    /// The prompt, if the body has one.
    pub prompt: Option<&'a Prompt<'a>>,
    /// The part of the prompt that is in the caches of servers; `None`: it is not known.
    pub cached: Option<&'a CachedPrompt>,
    /// The client's limit on generated tokens.
    pub max_output_tokens: Option<u64>,
    /// The stored response or conversation that it names.
    pub stored: Option<StoredId>,
    /// The name of its session in its body.
    pub session: Option<SessionName>,
    /// The request's headers.
    pub headers: Headers<'a>,
    /// Endpoints the choice is restricted to.
    pub subset: Subset,
    /// Endpoints that have failed this request: they are picked only where no other candidate is left.
    pub failed: &'a [SocketAddr],
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
            cached: None,
            max_output_tokens: body.max_output_tokens,
            stored: body.state.continues,
            session: body.session,
            headers,
            subset,
            failed: &[],
            priority: resolution.priority,
        }
    }

    /// The hashes of its images, videos and audio, each once.
    pub fn media_items(&self) -> Vec<u64> {
        let mut items = self.prompt.map(|prompt| prompt.items().to_vec()).unwrap_or_default();
        items.sort_unstable();
        items.dedup();
        items
    }

    /// Tokens in the prompt; 0 without one.
    pub fn input_tokens(&self) -> u64 {
        self.prompt.map_or(0, Prompt::token_count)
    }

    /// Tokens in the prompt without those that its images and videos only claim; 0 without a prompt.
    pub fn carried_tokens(&self) -> u64 {
        self.prompt.map_or(0, Prompt::carried_tokens)
    }

    /// Whether the prompt has images, videos or audio.
    pub fn has_media(&self) -> bool {
        self.prompt.is_some_and(Prompt::has_media)
    }
}
