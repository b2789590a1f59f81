//! Responses and conversations that a server stores, which later requests name by their ids.
//!
//! A server of OpenAI's responses API keeps them in its own memory, so only the server that made one knows
//! its id (for vLLM see <https://docs.vllm.ai/en/latest/serving/openai_compatible_server/>).

use core::num::NonZeroU64;
use core::time::Duration;

use smallvec::smallvec;
use xxhash_rust::xxh64::xxh64;

use crate::state::StateChange;

/// The key of the [bindings](crate::state::SessionBindings) of stored responses to the endpoints that store
/// them. Instances of plugins have hashes of their types and names as keys.
pub(crate) const STORED_RESPONSES: u64 = 0x5354_4f52_4544_0001;

/// The time for which an id is remembered, unless 65 536 newer ones come before: servers keep responses until
/// they end, and clients continue them for a day at most.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// The longest id that counts, in bytes. Servers make ids of 40 to 60.
pub(crate) const MAX_ID_LENGTH: usize = 256;

/// The segments of paths that are followed by an id.
const COLLECTIONS: [&str; 2] = ["responses", "conversations"];

/// The hash of the id of a stored response or conversation. Two ids of one hash would share an endpoint; the
/// response to requests for one of them would be 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredId(NonZeroU64);

impl StoredId {
    /// `None` for an id that is empty, or longer than 256 bytes.
    pub fn of(id: &str) -> Option<Self> {
        let is_id = (1..=MAX_ID_LENGTH).contains(&id.len());
        is_id.then(|| Self(NonZeroU64::new(xxh64(id.as_bytes(), 0)).unwrap_or(NonZeroU64::MAX)))
    }

    /// The id that a path names, such as `/v1/responses/{id}` or `/v1/conversations/{id}/items`. The path has
    /// no query.
    pub fn in_path(path: &str) -> Option<Self> {
        let mut segments = path.split('/');
        segments.find(|segment| COLLECTIONS.contains(segment))?;
        Self::of(segments.next()?)
    }

    /// The hash.
    pub(crate) fn hash(self) -> u64 {
        self.0.get()
    }

    /// The change by which this endpoint, given by its key, stores it. `at` is the time of the request.
    pub fn stored_at(self, endpoint: u64, at: Duration) -> StateChange {
        StateChange { plugin: STORED_RESPONSES, endpoint, at, words: smallvec![self.hash()] }
    }
}

/// The state at a server that a request needs or leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerState {
    /// The stored response or conversation that the request continues.
    pub continues: Option<StoredId>,
    /// Whether the server may store the response, so that later requests continue it.
    pub is_stored: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn a_path_names_the_id_behind_its_collection() {
        let id = StoredId::of("resp_1");
        for path in [
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/cancel",
            "/openai/v1/responses/resp_1/input_items",
            "/v1/conversations/resp_1",
            "/v1/conversations/resp_1/items/responses",
        ] {
            assert_eq!(StoredId::in_path(path), id, "{path}");
        }
        for path in ["/v1/responses", "/v1/responses/", "/v1/models/resp_1", "/v1/myresponses/resp_1", ""] {
            assert_eq!(StoredId::in_path(path), None, "{path}");
        }
    }

    #[test]
    fn an_id_without_end_does_not_count() {
        let longest = "x".repeat(MAX_ID_LENGTH);
        assert!(StoredId::of(&longest).is_some());
        assert_eq!(StoredId::of(&format!("{longest}x")), None);
    }
}
