//! The parsers, each of which reads the bodies of some APIs. The APIs are in [`crate::request::body`].

use std::sync::Arc;

use serde::Deserialize;

use crate::plugin::{Plugin, Roles};
use crate::request::body::Parser;

macro_rules! parsers {
    ($($(#[$doc:meta])* $name:ident => $parser:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {}

        impl Plugin for $name {
            fn roles(self: Arc<Self>) -> Roles {
                Roles { parser: Some(Parser::$parser), ..Roles::default() }
            }
        }
    )*};
}

parsers! {
    /// `openai-parser`: OpenAI's APIs.
    OpenaiParser => OpenAi,
    /// `anthropic-parser`: Anthropic's APIs.
    AnthropicParser => Anthropic,
    /// `vllmhttp-parser`: vLLM's own APIs.
    VllmhttpParser => VllmHttp,
    /// `sglanghttp-parser`: SGLang's own APIs.
    SglanghttpParser => SglangHttp,
    /// `vllmgrpc-parser`: vLLM's own service of gRPC.
    VllmgrpcParser => VllmGrpc,
    /// `vertexai-parser`: Vertex AI's service of predictions.
    VertexaiParser => VertexAi,
    /// `passthrough-parser`: any other path; the body is not read.
    PassthroughParser => Passthrough,
}
