//! Requests whose streams cannot be resumed.

use serde_json::value::RawValue;

/// Why a stream cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresumable {
    /// The request's body is not a JSON object without repeated members, or has an unexpected value where the
    /// text continues.
    Unreadable,
    /// The request asks for several responses.
    SeveralChoices,
    /// The request asks for log probabilities or tokens, which the continuation would count from its own
    /// beginning.
    TokenDetails,
    /// The request names a response or conversation, which only its server stores.
    StoredState,
    /// Another field of the request that a continuation would not keep, such as `echo` or `suffix`.
    OtherField,
    /// A completion without a limit on its tokens: a server's own default, 16 in vLLM and SGLang, would count
    /// again in the continuation.
    NoLimit,
    /// Request and text are larger than a stream may keep, or all streams together.
    TooLarge,
    /// The response is not streamed.
    NotStreamed,
}

impl Unresumable {
    /// The value of the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::SeveralChoices => "several_choices",
            Self::TokenDetails => "token_details",
            Self::StoredState => "stored_state",
            Self::OtherField => "other_field",
            Self::NoLimit => "no_limit",
            Self::TooLarge => "too_large",
            Self::NotStreamed => "not_streamed",
        }
    }

    /// The reasons that streams have, in the order of their declaration.
    pub(super) const OF_STREAMS: [Self; 7] = [
        Self::Unreadable,
        Self::SeveralChoices,
        Self::TokenDetails,
        Self::StoredState,
        Self::OtherField,
        Self::NoLimit,
        Self::TooLarge,
    ];
}

/// The reason why a request with this member is not resumed, if it is one.
pub(super) fn obstacle(name: &str, value: &RawValue) -> Option<Unresumable> {
    let is_off = |value: &RawValue| matches!(value.get(), "null" | "false" | "0");
    match name {
        "n" | "best_of" if !matches!(value.get(), "null" | "1") => Some(Unresumable::SeveralChoices),
        "use_beam_search" if !is_off(value) => Some(Unresumable::SeveralChoices),
        "logprobs" if !matches!(value.get(), "null" | "false") => Some(Unresumable::TokenDetails),
        "top_logprobs" | "prompt_logprobs" | "return_token_ids" | "return_tokens_as_token_ids"
            if !is_off(value) =>
        {
            Some(Unresumable::TokenDetails)
        }
        "include" if value.get().contains("logprobs") => Some(Unresumable::TokenDetails),
        "previous_response_id" | "conversation" if value.get() != "null" => Some(Unresumable::StoredState),
        "background" if !is_off(value) => Some(Unresumable::StoredState),
        "echo" if !is_off(value) => Some(Unresumable::OtherField),
        "suffix" | "prompt_embeds" | "audio" | "modalities" | "kv_transfer_params"
            if value.get() != "null" =>
        {
            Some(Unresumable::OtherField)
        }
        _ => None,
    }
}
