//! What one decision looks at.

use core::ops::{AddAssign, SubAssign};
use core::time::Duration;

use crate::body::Body;
use crate::decision::PromptBlocks;
use crate::period::Period;
use crate::plugin::InflightLoadProducer;
use crate::plugin_state::{PluginState, PluginStates};
use crate::policy::ModelResolution;
use crate::pool::{Endpoint, Pool};
use crate::prefix::PrefixMatch;
use crate::prompt::Prompt;
use crate::reading::Reading;
use crate::subset::Subset;

/// What a request asks for, as far as a decision needs to know.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The model that will serve it, after any rewrite.
    pub model: &'a str,
    /// Separates prompts of different users in the servers' caches.
    pub cache_salt: Option<&'a str>,
    /// The prompt, if the body has one.
    pub prompt: Option<&'a Prompt<'a>>,
    /// The most tokens the client wants to be generated.
    pub max_output_tokens: Option<u64>,
    /// The request's headers.
    pub headers: Headers<'a>,
    /// Endpoints the choice is restricted to.
    pub subset: Subset,
    /// Below zero: sheddable while the pool is saturated.
    pub priority: i32,
}

impl<'a> Request<'a> {
    /// What a body asks for under these resolution.
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

/// A request's headers, names in lower case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Headers<'a>(pub &'a [(String, Vec<u8>)]);

impl<'a> Headers<'a> {
    /// The first value under this name (in any case) that is text and not empty.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        let named = self.0.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
        named.filter_map(|(_, value)| core::str::from_utf8(value).ok()).find(|value| !value.is_empty())
    }

    /// Whether a `Prefer` header (RFC 7240) has this preference, in any case and whatever its value and parameters.
    pub fn prefers(&self, preference: &str) -> bool {
        let named = self.0.iter().filter(|(header, _)| header.eq_ignore_ascii_case("prefer"));
        let mut preferences = named
            .filter_map(|(_, value)| core::str::from_utf8(value).ok())
            .flat_map(|value| value.split(','));
        preferences.any(|one| {
            let token = one.find(['=', ';']).map_or(one, |end| &one[..end]);
            token.trim().eq_ignore_ascii_case(preference)
        })
    }

    /// The value under the first of two names that has one: a header and its older spelling.
    pub fn get_either(&self, names: [&str; 2]) -> Option<&'a str> {
        names.into_iter().find_map(|name| self.get(name))
    }
}

/// What is in flight at one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Requests sent and not finished.
    pub requests: u64,
    /// The tokens they still cost, as `inflight-load-producer` counts them.
    pub tokens: u64,
}

impl Load {
    /// The smaller of each.
    pub(crate) fn min(self, other: Self) -> Self {
        Self { requests: self.requests.min(other.requests), tokens: self.tokens.min(other.tokens) }
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.saturating_add(other.tokens);
    }
}

impl SubAssign for Load {
    fn sub_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.tokens = self.tokens.saturating_sub(other.tokens);
    }
}

/// What is known of the pool at the time of a decision. Slices by endpoint have the pool's order; those missing at the
/// end count as unknown or idle.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The endpoints.
    pub pool: &'a Pool,
    /// What each endpoint last said.
    pub readings: &'a [Reading],
    /// When the readings arrived, on the shell's clock.
    pub readings_arrived: Duration,
    /// What is in flight at each endpoint.
    pub in_flight: &'a [Load],
    /// When each endpoint is [avoided](crate::avoidance), on the shell's clock.
    pub avoided: &'a [Period],
    /// What the pipeline's plugin instances remember.
    pub states: &'a PluginStates,
}

impl View<'_> {
    /// Whether the endpoint failed a moment ago.
    pub fn avoids(&self, endpoint: usize, now: Duration) -> bool {
        self.avoided.get(endpoint).is_some_and(|period| period.contains(now))
    }

    /// Those of the endpoints that did not fail a moment ago; `None` if that is all of them, or none.
    pub(crate) fn unavoided(&self, endpoints: &[usize], now: Duration) -> Option<Vec<usize>> {
        if self.avoided.is_empty() {
            return None;
        }
        let fine: Vec<usize> =
            endpoints.iter().copied().filter(|&endpoint| !self.avoids(endpoint, now)).collect();
        (!fine.is_empty() && fine.len() < endpoints.len()).then_some(fine)
    }
}

/// A decision in progress: what plugins may look at.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The pool.
    pub pool: &'a Pool,
    /// The time, on the shell's clock.
    pub now: Duration,
    pub(crate) readings: &'a [Reading],
    pub(crate) in_flight: &'a [Load],
    pub(crate) states: &'a PluginStates,
    /// Of all plugin instances, in their order.
    pub(crate) keys: &'a [u64],
    pub(crate) prefixes: &'a [Prefix],
    pub(crate) sessions: &'a [Session<'a>],
    pub(crate) load_producer: &'a InflightLoadProducer,
    /// Age from which readings give no opinion; `None`: they always do.
    pub(crate) neutral_score_after: Option<Duration>,
    /// The plugin instance at work.
    pub(crate) own: usize,
}

/// How much of the prompt the endpoints have seen, according to one prefix producer.
#[derive(Clone, Debug)]
pub struct Prefix {
    /// The producer's name in the configuration.
    pub producer: String,
    /// What it found.
    pub matches: PrefixMatch,
}

/// Which session the request belongs to, according to one session producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session<'a> {
    /// The producer's name in the configuration.
    pub(crate) producer: &'a str,
    /// What the client calls the session; not empty.
    pub(crate) id: &'a str,
}

impl<'a> Cycle<'a> {
    /// The same decision, seen by another plugin instance.
    pub(crate) fn of(self, plugin: usize) -> Self {
        Self { own: plugin, ..self }
    }

    /// The endpoint of this index.
    pub fn endpoint(&self, endpoint: usize) -> &'a Endpoint {
        &self.pool.endpoints()[endpoint]
    }

    /// What the endpoint last said; nothing, if it was never scraped or the readings are too old to be used.
    pub fn reading(&self, endpoint: usize) -> &'a Reading {
        self.readings.get(endpoint).unwrap_or(&NOTHING_SAID)
    }

    /// Whether a scorer that goes by readings has an opinion of the endpoint.
    pub(crate) fn is_known(&self, endpoint: usize) -> bool {
        self.neutral_score_after
            .is_none_or(|limit| self.reading(endpoint).age(self.now).is_some_and(|age| age <= limit))
    }

    /// What is in flight at the endpoint.
    pub fn load(&self, endpoint: usize) -> Load {
        self.in_flight.get(endpoint).copied().unwrap_or_default()
    }

    /// What the plugin instance at work remembers.
    pub fn state(&self) -> &'a PluginState {
        self.keys.get(self.own).map_or(&PluginState::None, |&key| self.states.of(key))
    }

    /// What of the prompt an endpoint was sent before, by the first prefix producer.
    pub(crate) fn prompt_blocks(&self, endpoint: usize) -> PromptBlocks {
        let seen = |Prefix { matches, .. }: &Prefix| PromptBlocks {
            matched: matches.blocks(endpoint),
            total: matches.total,
        };
        self.prefixes.first().map(seen).unwrap_or_default()
    }

    /// What the prefix producer of this name found.
    pub fn prefix(&self, producer: &str) -> &'a PrefixMatch {
        self.prefixes
            .iter()
            .find(|prefix| prefix.producer == producer)
            .map_or(&NO_MATCH, |prefix| &prefix.matches)
    }

    /// The session that the session producer of this name found.
    pub fn session(&self, producer: &str) -> Option<&'a str> {
        self.sessions.iter().find(|session| session.producer == producer).map(|session| session.id)
    }

    /// Tokens the request would add to the endpoint's load, as `inflight-load-producer` counts them.
    pub fn request_tokens(&self, endpoint: usize) -> u64 {
        self.load_producer.request_tokens(self, endpoint)
    }
}

/// An endpoint that said nothing.
pub(crate) static NOTHING_SAID: Reading = Reading {
    ready: false,
    updated: None,
    waiting: None,
    running: None,
    kv_usage: None,
    lora: None,
    block_size: None,
    num_blocks: None,
    cached_since: None,
    attributes: Vec::new(),
};

static NO_MATCH: PrefixMatch = PrefixMatch { matched: Vec::new(), total: 0, block_size: 0 };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn the_first_header_is_found_in_any_case_and_skips_empty_and_unreadable_values() {
        let headers = [("a", &b""[..]), ("a", &[0xff]), ("a", b"1"), ("b", b"2"), ("a", b"3")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_vec()));
        assert_eq!(Headers(&headers).get("A"), Some("1"));
        assert_eq!(Headers(&headers).get("b"), Some("2"));
        assert_eq!(Headers(&headers).get("c"), None);
    }
}
