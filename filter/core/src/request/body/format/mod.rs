//! The APIs whose requests are picked for: a file for each, and the table of them.
//!
//! To add one, see `docs/design/adding-an-api.md`.

pub(super) mod anthropic;
pub(super) mod chat;
pub(super) mod chat_batch;
pub(super) mod completions;
pub(super) mod generate;
mod given;
pub(super) mod invocations;
pub(super) mod items;
mod messages;
pub(super) mod model_only;
pub(super) mod vertex;
pub(super) mod vllm_grpc;

use super::object::{Format, Model, Refusal, Rules};
use super::{Body, BodyError, Options};
use crate::request::body::ResponseMessage;

/// Declares the APIs, one a line: the name and the type that reads its bodies.
macro_rules! apis {
    ($($(#[$doc:meta])* $api:ident = $format:ty,)*) => {
        /// The API that a request body belongs to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Api {
            $($(#[$doc])* $api,)*
        }

        impl Api {
            /// Every API. Of several with a segment of a path, `passthrough-parser` takes the first.
            pub const ALL: &'static [Self] = &[$(Self::$api),*];

            pub(super) fn rules(self) -> &'static Rules {
                match self { $(Self::$api => &<$format>::RULES,)* }
            }

            /// Reads the body of a request to this API, which is JSON.
            pub(super) fn read<'a>(self, text: &'a str, options: &Options<'_>) -> Result<Body<'a>, BodyError> {
                let read = match self { $(Self::$api => <$format>::read(text, options),)* };
                read.map_err(|refusal| match refusal {
                    Refusal::NotAnObject(cause) => BodyError::NotAnObject { api: self, cause },
                    Refusal::Invalid(fault) => BodyError::Invalid { api: self, fault },
                })
            }
        }
    };
}

apis! {
    /// OpenAI chat completions, and their rendering.
    Chat = chat::Chat<'_>,
    /// OpenAI completions, and their rendering.
    Completions = completions::Completions<'_>,
    /// OpenAI embeddings.
    Embeddings = completions::Embeddings<'_>,
    /// OpenAI responses.
    Responses = items::Responses<'_>,
    /// OpenAI conversations.
    Conversations = items::Conversations<'_>,
    /// OpenAI image generation; has no prompt tokens.
    Images = completions::Images,
    /// Anthropic messages.
    Messages = anthropic::Messages<'_>,
    /// Anthropic token counting; only its model is read.
    CountTokens = model_only::CountTokens,
    /// vLLM's own generation from token ids.
    Generate = generate::Generate,
    /// SGLang's own generation from token ids.
    SglangGenerate = generate::SglangGenerate<'_>,
    /// vLLM's `Generate` over gRPC.
    GrpcGenerate = vllm_grpc::GrpcGenerate,
    /// vLLM's `Embed` over gRPC.
    GrpcEmbed = vllm_grpc::GrpcEmbed,
    /// Vertex AI's chats over gRPC.
    VertexChat = vertex::VertexChat,
    /// Vertex AI's raw predictions over gRPC.
    VertexRawPredict = vertex::VertexRawPredict,
    /// Vertex AI's raw predictions over gRPC, streamed.
    VertexStreamRawPredict = vertex::VertexStreamRawPredict,
    /// `/invocations`, as on Amazon's platform for models, whose bodies are chats, completions, embeddings,
    /// or others.
    Invocations = invocations::Invocations,
    /// vLLM's batches of chats.
    ChatBatch = chat_batch::ChatBatch<'_>,
    /// Any other path; of a body that is JSON or a form, only the model is read.
    ModelOnly = model_only::ModelOnly,
    /// No API: the body is passed on unread.
    Raw = model_only::Raw,
}

impl Api {
    /// Whether the decision depends on a model named in the body, which a policy may replace.
    pub fn names_model(self) -> bool {
        matches!(self.rules().model, Model::Required | Model::Optional | Model::Only)
    }

    /// Whether only a header names the model that serves.
    pub fn takes_model_from_header(self) -> bool {
        self.rules().model == Model::InHeader
    }

    /// Whether the request is the first message of the body, in the framing of gRPC, and the rest of the body
    /// may follow later.
    pub fn reads_first_message(self) -> bool {
        self.rules().messages.is_some()
    }

    /// The message with the usage in responses, where they are messages of gRPC.
    pub fn response_message(self) -> Option<ResponseMessage> {
        self.rules().messages.as_ref().map(|messages| messages.response)
    }

    /// Whether a server's engine works for the response.
    pub fn is_generation(self) -> bool {
        self.rules().is_generation
    }

    /// Whether servers read the request's priority in the body, if it is JSON.
    pub fn has_priority(self) -> bool {
        matches!(self.rules().model, Model::Required | Model::Optional)
    }

    /// Whether only the model of the body is read.
    pub fn reads_only_model(self) -> bool {
        self.rules().model == Model::Only
    }

    /// Whether a body without a model is passed on as it is.
    pub fn may_lack_model(self) -> bool {
        matches!(self.rules().model, Model::Only | Model::Optional)
    }
}
