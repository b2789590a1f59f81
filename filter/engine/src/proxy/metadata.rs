//! Values that the picker leaves in the request's metadata.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use endpoint_picker::plugin::AttributeReport;
use endpoint_picker_wire::endpoint_scores;

use crate::proxy::headers::{DESTINATION, EXPLANATION, FALLBACK, LONGEST_VALUE, NO_FALLBACK, SCORES, SERVED};

/// The namespace of the metadata that Envoy's balancers read, of requests and of endpoints.
pub const LB: &str = "envoy.lb";

/// The key in [`LB`] of [`Metadata::NoFallback`].
pub const FALLBACK_KEY: &str = "endpoint-picker-fallback";

/// The picker's keys in [`LB`]. A label of an endpoint under one of them would match requests.
pub const LB_KEYS: [&str; 4] = [DESTINATION, FALLBACK_KEY, SCORES, SERVED];

/// Bytes of scores that fit into a header value: four letters of base64 carry three bytes.
const MAX_SCORES_BYTES: usize = LONGEST_VALUE / 4 * 3;

/// A value for the cluster or the access log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metadata<'a> {
    /// The list of destinations, as in the header [`DESTINATION`].
    Destination(&'a str),
    /// The proxy must not balance when every destination has failed.
    NoFallback,
    /// The names of other pools whose endpoints the proxy may try when every destination has failed.
    RetryIn(&'a [Arc<str>]),
    /// The explanation of the decision.
    Explanation(&'a str),
    /// The explanation of a decision that does not act, when the request's headers may have passed already.
    ShadowExplanation(&'a str),
    /// The weighted total of every endpoint that the primary profile rated, with the endpoint's `ip:port`.
    Scores(&'a [(&'a str, f64)]),
    /// A number of the response.
    Attribute(AttributeReport<'a>),
}

impl Metadata<'_> {
    /// A request header with the value, for a proxy that cannot write metadata: its `header_to_metadata`
    /// filter copies the header into metadata. `None` for the destination, whose own header is copied, for a
    /// shadow, which sets no header, for other pools, which such a proxy does not have, and for numbers of
    /// responses, which come too late for a request header.
    pub fn as_header(&self) -> Option<(&'static str, Cow<'_, str>)> {
        match *self {
            Self::Destination(_) | Self::RetryIn(_) | Self::ShadowExplanation(_) | Self::Attribute(_) => None,
            Self::NoFallback => Some((FALLBACK, NO_FALLBACK.into())),
            Self::Explanation(text) => Some((EXPLANATION, text.into())),
            Self::Scores(scores) => {
                let value = endpoint_scores(scores.to_vec(), MAX_SCORES_BYTES);
                Some((SCORES, BASE64_STANDARD.encode(value).into()))
            }
        }
    }
}
