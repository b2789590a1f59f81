//! Endpoints and policy, ready to decide by.

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Pool;
use endpoint_picker_wire as wire;

/// A topology that this filter can use.
pub(crate) struct Compiled {
    pub(crate) pool: Pool,
    pub(crate) pipeline: Pipeline,
    /// What the pipeline leaves of it.
    pub(crate) policy: wire::v1::Policy,
}

impl Compiled {
    /// Refuses endpoints that are not a pool, and plugins that this filter does not know.
    pub(crate) fn new(mut topology: wire::v1::Topology) -> Result<Self, String> {
        let mut policy = topology.policy.take().unwrap_or_default();
        let pool = wire::topology_into_core(topology).map_err(|error| error.to_string())?;
        let pipeline = wire::pipeline_into_core(&mut policy).map_err(|error| error.to_string())?;
        Ok(Self { pool, pipeline, policy })
    }
}
