//! The proof that a response gives about its server.
//!
//! One definition for avoidance, prompts that count as cached, resumption, sharing and statistics. A server
//! proves that it works only by generating: a health check or a list of models is answered by a server whose
//! engine has died. It fails when it sends no response, a 5xx, or an error in place of the output that its
//! status announces. Everything else depends on the client, and proves nothing.

use crate::grpc::Status;
use crate::request::body::Api;
use crate::response::reader::ResponseError;

/// The proof that a response gives about the server that it came from, or should have come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOutcome {
    /// The server has generated: it works.
    Served,
    /// The server has failed the request.
    Failed,
    /// The response proves nothing.
    Neutral,
}

/// The kind of a request, which decides what its response proves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestKind {
    /// The server's engine has to work for the response.
    Generation,
    /// A request with a body to which a server may respond without its engine: it counts tokens, or renders a
    /// template.
    OtherWork,
    /// A request without a body, such as one for the list of models.
    #[default]
    WithoutBody,
}

/// Segments of paths at which an engine works, of APIs of whose bodies only the model is read: OpenAI's for
/// audio and images.
const GENERATING: [&str; 2] = ["/audio/", "/images/"];

impl RequestKind {
    /// The kind of a request to this API at this path, which is without its query.
    pub fn of(api: Api, path: &str, has_body: bool) -> Self {
        let is_rendering = path.trim_end_matches('/').ends_with("/render");
        let is_generation = api.is_generation()
            || api == Api::ModelOnly && GENERATING.iter().any(|segment| path.contains(segment));
        match has_body {
            true if is_generation && !is_rendering => Self::Generation,
            true => Self::OtherWork,
            false => Self::WithoutBody,
        }
    }
}

impl ServerOutcome {
    /// The server has sent no response, for a reason of its own: it refuses connections, resets the request
    /// or sends nothing in time.
    pub const NO_RESPONSE: Self = Self::Failed;

    /// The server has ended a response before its end.
    pub const CUT: Self = Self::Failed;

    /// The outcome of a response with this status of HTTP. Of a 2xx it holds unless [its body has an
    /// error](Self::of_error), and from the body's first output on.
    pub fn of_status(status: u16, kind: RequestKind) -> Self {
        match (status, kind) {
            (200..=299, RequestKind::Generation) => Self::Served,
            // Clients choose the paths of such requests, and a server may have none for them.
            (500.., RequestKind::Generation | RequestKind::OtherWork) => Self::Failed,
            (_, RequestKind::Generation | RequestKind::OtherWork | RequestKind::WithoutBody) => Self::Neutral,
        }
    }

    /// The outcome of a call of gRPC that ends with this status.
    pub fn of_call(status: Status, kind: RequestKind) -> Self {
        match kind {
            RequestKind::Generation if status == Status::OK => Self::Served,
            RequestKind::Generation | RequestKind::OtherWork if status.is_server_failure() => Self::Failed,
            RequestKind::Generation | RequestKind::OtherWork | RequestKind::WithoutBody => Self::Neutral,
        }
    }

    /// The outcome of a response with status 2xx whose body has this error.
    pub fn of_error(error: ResponseError, kind: RequestKind) -> Self {
        match (error, kind) {
            (ResponseError::Server, RequestKind::Generation | RequestKind::OtherWork) => Self::Failed,
            (ResponseError::Client, _) | (ResponseError::Server, RequestKind::WithoutBody) => Self::Neutral,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    const KINDS: [RequestKind; 3] =
        [RequestKind::Generation, RequestKind::OtherWork, RequestKind::WithoutBody];

    #[test]
    fn only_a_2xx_to_a_generation_proves_that_a_server_works() {
        for status in 100..600 {
            let outcomes = KINDS.map(|kind| ServerOutcome::of_status(status, kind));
            let expected = match status {
                200..=299 => [ServerOutcome::Served, ServerOutcome::Neutral, ServerOutcome::Neutral],
                500..=599 => [ServerOutcome::Failed, ServerOutcome::Failed, ServerOutcome::Neutral],
                _ => [ServerOutcome::Neutral; 3],
            };
            assert_eq!(outcomes, expected, "{status}");
        }
    }

    #[test]
    fn a_call_of_grpc_counts_by_its_status() {
        for code in 0..=16 {
            let outcomes = KINDS.map(|kind| ServerOutcome::of_call(Status(code), kind));
            let expected = match code {
                0 => [ServerOutcome::Served, ServerOutcome::Neutral, ServerOutcome::Neutral],
                2 | 13 | 14 | 15 => [ServerOutcome::Failed, ServerOutcome::Failed, ServerOutcome::Neutral],
                _ => [ServerOutcome::Neutral; 3],
            };
            assert_eq!(outcomes, expected, "{code}");
        }
    }

    #[test]
    fn an_error_of_the_client_in_a_body_proves_nothing() {
        let outcomes = |error| KINDS.map(|kind| ServerOutcome::of_error(error, kind));
        let failed = [ServerOutcome::Failed, ServerOutcome::Failed, ServerOutcome::Neutral];
        assert_eq!(outcomes(ResponseError::Server), failed);
        assert_eq!(outcomes(ResponseError::Client), [ServerOutcome::Neutral; 3]);
    }

    #[test]
    fn a_generation_needs_a_body_and_the_engine() {
        let kind = |api, path, has_body| RequestKind::of(api, path, has_body);
        for (api, path, expected) in [
            (Api::Chat, "/v1/chat/completions", RequestKind::Generation),
            (Api::Chat, "/v1/chat/completions/render/", RequestKind::OtherWork),
            (Api::Completions, "/v1/completions", RequestKind::Generation),
            (Api::Responses, "/v1/responses", RequestKind::Generation),
            (Api::Messages, "/v1/messages", RequestKind::Generation),
            (Api::SglangGenerate, "/generate", RequestKind::Generation),
            (Api::GrpcGenerate, "/vllm.grpc.engine.VllmEngine/Generate", RequestKind::Generation),
            (Api::ModelOnly, "/v1/audio/transcriptions", RequestKind::Generation),
            (Api::CountTokens, "/v1/messages/count_tokens", RequestKind::OtherWork),
            (Api::ModelOnly, "/tokenize", RequestKind::OtherWork),
            (Api::Conversations, "/v1/conversations", RequestKind::OtherWork),
            (Api::Raw, "/v1/files", RequestKind::OtherWork),
        ] {
            assert_eq!(kind(api, path, true), expected, "{path}");
            assert_eq!(kind(api, path, false), RequestKind::WithoutBody, "{path}");
        }
    }
}
