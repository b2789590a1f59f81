//! Which pools the filter picks for.

use std::collections::BTreeSet;

/// Namespace and name of an object of Kubernetes.
pub type ObjectName = (String, String);

/// Which pools the filter picks for. All others keep their picker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// These pools, whatever their `endpointPickerRef` names.
    pub pools: BTreeSet<ObjectName>,
    /// Pools whose `endpointPickerRef` names one of these Services.
    pub services: BTreeSet<ObjectName>,
    /// All pools, as in the conformance tests.
    pub all: bool,
}

/// The `endpointPickerRef` of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    /// There is none.
    Absent,
    /// To a Service in the pool's namespace.
    Service(&'a str),
    /// To an object of another kind.
    Other,
}

impl Ownership {
    /// Whether the filter picks for a pool.
    pub fn is_own(&self, namespace: &str, name: &str, picker: Reference<'_>) -> bool {
        let is_by_reference = match picker {
            Reference::Absent => true,
            Reference::Service(service) => has(&self.services, namespace, service),
            Reference::Other => false,
        };
        self.all || is_by_reference || self.is_named(namespace, name)
    }

    /// Whether the pool is an own one whatever its `endpointPickerRef` names, which then has no meaning.
    pub fn is_named(&self, namespace: &str, name: &str) -> bool {
        has(&self.pools, namespace, name)
    }
}

fn has(set: &BTreeSet<ObjectName>, namespace: &str, name: &str) -> bool {
    set.iter().any(|(own_namespace, own_name)| own_namespace == namespace && own_name == name)
}
