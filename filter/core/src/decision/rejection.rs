//! Answers of the picker to requests that it does not route.

use core::fmt;
use core::time::Duration;
use std::borrow::Cow;

use crate::grpc::Status;
use crate::request::body::BodyError;

/// Maximum length of a name that is repeated to the client, in characters; names come from clients and may
/// have the length of a body.
const MAX_NAME_LENGTH: usize = 256;

/// The EPP's error codes that a decision can end in, and one of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request is malformed.
    BadRequest,
    /// The model does not exist.
    NotFound,
    /// The client set a condition that the picked endpoint does not meet.
    PreconditionFailed,
    /// The body is larger than the proxy may hold while the choice waits for it.
    PayloadTooLarge,
    /// The body has an encoding that cannot be read.
    UnsupportedMediaType,
    /// The request was dropped on purpose.
    ResourceExhausted,
    /// No endpoint can serve.
    ServiceUnavailable,
}

impl Code {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::NotFound => 404,
            Self::PreconditionFailed => 412,
            Self::PayloadTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::ResourceExhausted => 429,
            Self::ServiceUnavailable => 503,
        }
    }

    /// The status that clients of gRPC get.
    pub fn grpc_status(self) -> Status {
        match self {
            Self::BadRequest | Self::UnsupportedMediaType => Status::INVALID_ARGUMENT,
            Self::NotFound => Status::NOT_FOUND,
            Self::PreconditionFailed => Status::FAILED_PRECONDITION,
            Self::PayloadTooLarge | Self::ResourceExhausted => Status::RESOURCE_EXHAUSTED,
            Self::ServiceUnavailable => Status::UNAVAILABLE,
        }
    }

    /// The EPP's name of the code.
    pub fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::NotFound => "NotFound",
            Self::PreconditionFailed => "PreconditionFailed",
            Self::PayloadTooLarge => "PayloadTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::ResourceExhausted => "ResourceExhausted",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }
}

/// Value of the `x-llm-d-request-dropped-reason` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedReason {
    /// The profile's filters left no endpoint.
    Saturated,
    /// No endpoint was a candidate.
    NoEndpoints,
    /// The request waited for too long.
    TtlExpired,
    /// The client went away while the request waited.
    ContextCancelled,
    /// The request in flight made room for one of higher priority.
    Evicted,
    /// The bodies that are held leave no room for the body of the request.
    HeldBodies,
}

/// Time after which a client may retry when there is no endpoint: a server takes longer to start than the
/// pause of a second that clients make by themselves.
const RETRY_WITHOUT_ENDPOINTS: Duration = Duration::from_secs(10);

/// Time after which a client may retry when the bodies of others leave no room: most bodies arrive within it.
const RETRY_FOR_ROOM: Duration = Duration::from_secs(1);

impl DroppedReason {
    /// Time after which the client may retry, as far as it follows from the reason alone.
    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::NoEndpoints => Some(RETRY_WITHOUT_ENDPOINTS),
            Self::HeldBodies => Some(RETRY_FOR_ROOM),
            Self::Saturated | Self::TtlExpired | Self::ContextCancelled | Self::Evicted => None,
        }
    }

    /// As it is written in the header.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Saturated => "rejected-saturated",
            Self::NoEndpoints => "rejected-no-endpoints",
            Self::TtlExpired => "rejected-ttl-expired",
            Self::ContextCancelled => "rejected-context-cancelled",
            Self::Evicted => "evicted",
            Self::HeldBodies => "rejected-held-bodies",
        }
    }
}

/// The picker's own response to a request that it does not route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Decides the status.
    pub code: Code,
    /// Sent as a header where the EPP sends it.
    pub reason: Option<DroppedReason>,
    /// The EPP's text where it has one.
    pub message: Cow<'static, str>,
    /// Time after which the client may retry; `None`: not known.
    pub retry_after: Option<Duration>,
    /// Whether no endpoint would keep the client's limits for the latency.
    pub misses_limits: bool,
}

impl From<BodyError> for Rejection {
    /// The rejection of a body that is refused.
    fn from(error: BodyError) -> Self {
        let code = match &error {
            BodyError::Encoded { .. } => Code::UnsupportedMediaType,
            BodyError::NoParser { .. }
            | BodyError::UnsupportedPath { .. }
            | BodyError::NotUtf8 { .. }
            | BodyError::NotAForm { .. }
            | BodyError::NoMessage
            | BodyError::Compressed
            | BodyError::Message { .. }
            | BodyError::NotAnObject { .. }
            | BodyError::Invalid { .. }
            | BodyError::NoModel => Code::BadRequest,
        };
        Self::new(code, error.to_string())
    }
}

impl Rejection {
    /// A response with this status and text, and nothing else.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, reason: None, message: message.into(), retry_after: None, misses_limits: false }
    }

    /// The same with a reason in its header, and with the time to retry that follows from it.
    #[must_use]
    pub fn with_reason(self, reason: DroppedReason) -> Self {
        Self { reason: Some(reason), retry_after: self.retry_after.or(reason.retry_after()), ..self }
    }

    /// A malformed request, with a message for the client.
    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    /// As much of the body has arrived as can be held, and it lacks a part that the decision needs.
    pub fn body_too_large(most: usize) -> Self {
        let message = format!(
            "the request body is too large: its model must be within the first {most} bytes, and a body in which the \
             model is replaced must not be longer"
        );
        Self::new(Code::PayloadTooLarge, message)
    }

    /// As much of a message has arrived as can be held, and it lacks the input that the decision needs.
    pub fn message_too_large(most: usize) -> Self {
        let message = format!("the message is too large: its input must begin within the first {most} bytes");
        Self::new(Code::PayloadTooLarge, message)
    }

    /// No `InferenceModel` has this name.
    pub(crate) fn unknown_model(name: &str) -> Self {
        Self::not_found("error finding a model object in InferenceModel for input", name)
    }

    /// The targets of the `InferenceModel` of this name give no model.
    pub(crate) fn no_target_model(name: &str) -> Self {
        Self::not_found("error getting target model name for model", name)
    }

    fn not_found(what: &str, name: &str) -> Self {
        let mut shown: String = name.chars().take(MAX_NAME_LENGTH).collect();
        if shown.len() < name.len() {
            shown.push('…');
        }
        Self::new(Code::NotFound, format!("{what} {shown}"))
    }

    /// A sheddable request while the pool is saturated.
    pub(crate) fn shed() -> Self {
        Self::new(Code::ResourceExhausted, "system saturated, sheddable request dropped")
    }

    /// No endpoint was a candidate.
    pub fn no_candidates() -> Self {
        Self::new(Code::ServiceUnavailable, "failed to find endpoint candidates for serving the request")
            .with_reason(DroppedReason::NoEndpoints)
    }

    /// The pool is refused, for this reason.
    pub(crate) fn pool_refused(reason: &str) -> Self {
        Self::new(Code::ServiceUnavailable, format!("the pool serves no requests: {reason}"))
    }

    /// The client accepts only an endpoint with some of its prompt in the cache, and the picked one has none.
    pub(crate) fn not_cached() -> Self {
        Self::new(Code::PreconditionFailed, "no decode worker has the requested KV cache")
    }

    /// An admitter turned the request away. It gets a 429; the EPP turns it into a 500.
    pub(crate) fn not_admitted(reason: &str, retry_after: Option<Duration>) -> Self {
        let message = format!("request cannot be admitted: {reason}");
        Self { retry_after, ..Self::new(Code::ResourceExhausted, message) }
    }

    /// The profile handler found no destination, for another reason than filters.
    pub(crate) fn not_scheduled(reason: &str) -> Self {
        Self::new(Code::ResourceExhausted, format!("failed to find target endpoint: {reason}"))
    }

    /// The request was in flight, and made room for one of higher priority.
    pub fn evicted() -> Self {
        Self::new(Code::ResourceExhausted, "request evicted by flow control")
            .with_reason(DroppedReason::Evicted)
    }

    /// The bodies of other requests that the proxy holds leave no room for another one, until some of them
    /// have arrived.
    pub fn too_many_bodies() -> Self {
        let message = "the proxy holds too many request bodies at the same time";
        Self::new(Code::ServiceUnavailable, message).with_reason(DroppedReason::HeldBodies)
    }

    /// The profile's filters dropped every candidate.
    pub(crate) fn filtered_out() -> Self {
        Self::new(Code::ResourceExhausted, "no endpoints available for the given request")
            .with_reason(DroppedReason::Saturated)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.code.status(), self.code.name(), self.message)
    }
}
