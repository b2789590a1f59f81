//! `InferenceObjective`: the priority of requests that name the objective.

use deserr::Deserr;

use super::fault::Faults;
use super::fields::PoolRef;

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(crate) struct InferenceObjective {
    #[deserr(default)]
    pub(crate) priority: Priority,
    pub(crate) pool_ref: PoolRef,
}

/// A priority, 0 by default. Requests below zero may be shed.
#[derive(Clone, Copy, Debug, Default, Deserr)]
#[deserr(error = Faults, try_from(i64) = Self::new -> String)]
pub(crate) struct Priority(pub(crate) i32);

impl Priority {
    fn new(priority: i64) -> Result<Self, String> {
        let number = i32::try_from(priority).map(Self);
        number.map_err(|_| format!("{priority} is out of range; allowed is {} to {}", i32::MIN, i32::MAX))
    }
}
