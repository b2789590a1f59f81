//! Priorities that requests name in a header.

use hashbrown::HashMap;

use crate::headers::Headers;

/// The header that names an objective, and its older spelling.
const HEADERS: [&str; 2] = ["x-llm-d-inference-objective", "x-gateway-inference-objective"];

/// The `InferenceObjective`s of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objectives(HashMap<String, i32>);

impl Objectives {
    /// From names and priorities; the first of several with one name counts.
    pub fn new(objectives: impl IntoIterator<Item = (String, i32)>) -> Self {
        let mut by_name = HashMap::new();
        for (name, priority) in objectives {
            by_name.entry(name).or_insert(priority);
        }
        Self(by_name)
    }

    /// The priorities of all objectives.
    pub(super) fn priorities(&self) -> impl Iterator<Item = i32> {
        self.0.values().copied()
    }

    /// The priority of the objective that the headers name; `None` if they name none, or an unknown one.
    pub(super) fn priority(&self, headers: Headers<'_>) -> Option<i32> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(headers.get_either(HEADERS)?).copied()
    }
}
