//! The APIs whose streams can be resumed.

use super::lines;

/// An API whose streams can be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamApi {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Messages,
}

impl StreamApi {
    /// The API of a request with this method and path, which may have a prefix and a query.
    pub fn of(method: &[u8], path: &[u8]) -> Option<Self> {
        let path = path.split(|&byte| byte == b'?').next()?;
        match () {
            () if method != b"POST" => None,
            () if path.ends_with(b"/chat/completions") => Some(Self::Chat),
            () if path.ends_with(b"/completions") => Some(Self::Completions),
            () if path.ends_with(b"/v1/responses") => Some(Self::Responses),
            () if path.ends_with(b"/v1/messages") => Some(Self::Messages),
            () => None,
        }
    }

    /// Whether its events have types.
    pub(super) fn has_types(self) -> bool {
        match self {
            Self::Chat | Self::Completions => false,
            Self::Responses | Self::Messages => true,
        }
    }

    /// The member of a request that has the prompt.
    pub(super) fn prompt(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Completions => "prompt",
            Self::Responses => "input",
        }
    }

    /// The event that reports an error to the client. `number` is the last event's.
    pub(super) fn error(self, message: &str, number: Option<u64>) -> Vec<u8> {
        match self {
            Self::Chat | Self::Completions => {
                let error = serde_json::json!({
                    "message": message, "type": "server_error", "param": null, "code": 502,
                });
                lines::event(&serde_json::json!({ "error": error }).to_string())
            }
            Self::Messages => {
                let error = serde_json::json!({"type": "api_error", "message": message});
                lines::typed_event("error", &serde_json::json!({"type": "error", "error": error}))
            }
            Self::Responses => {
                let number = number.map_or(0, |number| number.saturating_add(1));
                let error = serde_json::json!({"type": "error", "code": "server_error", "message": message,
                    "param": null, "sequence_number": number});
                lines::typed_event("error", &error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_is_that_of_the_path() {
        for (method, path, api) in [
            ("POST", "/v1/chat/completions", Some(StreamApi::Chat)),
            ("POST", "/openai/v1/completions?a=/chat/completions", Some(StreamApi::Completions)),
            ("POST", "/v1/responses", Some(StreamApi::Responses)),
            ("POST", "/anthropic/v1/messages?beta=true", Some(StreamApi::Messages)),
            ("GET", "/v1/chat/completions", None),
            ("POST", "/v1/chat/completions/x", None),
            ("POST", "/v1/responses/resp_1/cancel", None),
            ("POST", "/v1/messages/count_tokens", None),
            ("POST", "/v1/embeddings", None),
        ] {
            assert_eq!(StreamApi::of(method.as_bytes(), path.as_bytes()), api, "{method} {path}");
        }
    }
}
