//! `InferenceModel`, from early versions of the API: a model, its criticality and its targets.

use deserr::Deserr;
use endpoint_picker_wire::v1;

use super::fault::Faults;
use super::fields::{Model, PoolRef, Weight};

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(crate) struct InferenceModel {
    pub(crate) model_name: Model,
    #[deserr(default = Criticality::Standard)]
    criticality: Criticality,
    #[deserr(default)]
    target_models: TargetModels,
    pub(crate) pool_ref: PoolRef,
}

#[derive(Clone, Copy, Debug, Deserr)]
#[deserr(error = Faults)]
enum Criticality {
    Critical,
    Standard,
    Sheddable,
}

#[derive(Clone, Debug, Default, Deserr)]
#[deserr(error = Faults, try_from(Vec<TargetModel>) = Self::new -> String)]
struct TargetModels(Vec<TargetModel>);

impl TargetModels {
    fn new(targets: Vec<TargetModel>) -> Result<Self, String> {
        let weighted = targets.iter().filter(|target| target.weight.is_some()).count();
        if targets.len() > 10 {
            return Err(format!("has {} models; allowed are up to 10", targets.len()));
        }
        if weighted > 0 && weighted < targets.len() {
            return Err(
                "some models have a weight; allowed is one for each of them or none at all".to_owned()
            );
        }
        Ok(Self(targets))
    }
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, deny_unknown_fields)]
struct TargetModel {
    name: Model,
    #[deserr(default)]
    weight: Option<Weight>,
}

impl InferenceModel {
    pub(crate) fn on_the_wire(&self) -> v1::InferenceModel {
        let targets = self.target_models.0.iter().map(|target| v1::Target {
            model: target.name.0.clone(),
            weight: target.weight.map(|weight| weight.0),
        });
        let priority = match self.criticality {
            Criticality::Critical => 1,
            Criticality::Standard => 0,
            Criticality::Sheddable => -1,
        };
        v1::InferenceModel { name: self.model_name.0.clone(), priority, targets: targets.collect() }
    }
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(crate) struct InferenceObjective {
    #[deserr(default)]
    pub priority: Priority,
    pub(crate) pool_ref: PoolRef,
}

/// A priority, 0 by default. Requests below zero may be shed.
#[derive(Clone, Copy, Debug, Default, Deserr)]
#[deserr(error = Faults, try_from(i64) = Self::new -> String)]
pub(crate) struct Priority(pub i32);

impl Priority {
    fn new(priority: i64) -> Result<Self, String> {
        let number = i32::try_from(priority).map(Self);
        number.map_err(|_| format!("{priority} is out of range; allowed is {} to {}", i32::MIN, i32::MAX))
    }
}
