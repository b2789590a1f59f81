//! The parsers: which request bodies are read, and how. What they read is in [`crate::request::body`].

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
    /// `openai-parser`: chat, completions, embeddings, responses, conversations, images.
    OpenaiParser => OpenAi,
    /// `anthropic-parser`: messages.
    AnthropicParser => Anthropic,
    /// `vllmhttp-parser`: vLLM's own generate API, with token ids.
    VllmhttpParser => VllmHttp,
    /// `sglanghttp-parser`: SGLang's own generate API, with token ids.
    SglanghttpParser => SglangHttp,
    /// `passthrough-parser`: any other path; the body is not read.
    PassthroughParser => Passthrough,
}
