//! The pool as the newest good snapshot describes it, compiled.

mod received;
pub mod snapshot;

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::config::ConfigErrors;
use endpoint_picker::headers::Headers;
use endpoint_picker::input::DecisionInput;
use endpoint_picker::input::PrecomputedScores;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pipeline::shadow::Shadow;
use endpoint_picker::policy::{Policy, RECORDED_PROMPT_BYTES};
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::body::Options;
use endpoint_picker::state::{ChangedReadings, PluginStates};
use endpoint_picker_wire::{self as wire, DecodeError, v1};

use self::received::ReceivedReadings;

const fn assert_send_and_sync<T: Send + Sync>() {}
const _: () = assert_send_and_sync::<PoolView>();

/// The pool as the newest good snapshot describes it. It is immutable: a newer snapshot makes a new view.
#[derive(Clone, Debug, Default)]
pub struct PoolView {
    topology: Arc<Topology>,
    received: ReceivedReadings,
    precomputed: PrecomputedScores,
    arrived: Duration,
    versions: Option<Versions>,
}

/// The versions of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The version of the endpoints and the policy.
    pub topology: u64,
    /// The version of the readings.
    pub readings: u64,
}

/// Endpoints and policy, compiled.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    /// The endpoints.
    pub pool: Arc<Endpoints>,
    /// The rules that act.
    pub pipeline: Pipeline,
    /// The rules that decide without acting, if there are any.
    pub shadow: Option<Shadow>,
    /// Models, priorities and options.
    pub policy: Policy,
}

/// Whether requests can wait: only the native module has a queue.
const HAS_QUEUE: bool = cfg!(not(target_family = "wasm"));

/// Why a topology cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub enum TopologyRefusal {
    /// The endpoints do not make a pool.
    Endpoints(wire::TopologyError),
    /// The picker's configuration does not compile; this build may not know a plugin.
    Configuration(ConfigErrors),
    /// The policy has flow control, and this build has no queue.
    NoQueue,
}

impl fmt::Display for TopologyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoints(error) => error.fmt(f),
            Self::Configuration(errors) => errors.fmt(f),
            Self::NoQueue => f.write_str(
                "the feature gate flowControl is on, and only the native module has a queue: run that one, or turn the gate off",
            ),
        }
    }
}

impl core::error::Error for TopologyRefusal {}

impl Topology {
    /// Checks whether [`Self::compile`] succeeds, and whether this build has a queue if the policy needs one.
    pub fn check(message: v1::Topology) -> Result<(), TopologyRefusal> {
        let (_, pipeline, _) = compile(message)?;
        let waits = pipeline.flow_control().is_some();
        if waits && !HAS_QUEUE { Err(TopologyRefusal::NoQueue) } else { Ok(()) }
    }

    /// Compiles endpoints and policy. A shadow configuration that cannot be used is logged and left out,
    /// because a newer agent may have plugins that this build does not know.
    pub fn compile(message: v1::Topology) -> Result<Self, TopologyRefusal> {
        let (pool, pipeline, mut policy) = compile(message)?;
        if !HAS_QUEUE && !policy.fallback.is_empty() {
            let list = policy.fallback.join(", ");
            log::warn!(
                "the pool's list of other pools ({list}) has no effect: only the native module moves requests"
            );
        }
        let shadow = wire::shadow_into_core(&mut policy, &pipeline).unwrap_or_else(|error| {
            log::warn!("the shadow configuration is left out: {error}");
            None
        });
        Ok(Self { pool: Arc::new(pool), pipeline, shadow, policy: wire::policy_into_core(policy) })
    }

    /// Whether decisions depend on the part of a prompt that is in the caches of servers.
    pub fn reads_caches(&self) -> bool {
        self.pipelines().any(Pipeline::reads_caches)
    }

    /// All rules whose plugins keep state.
    pub fn pipelines(&self) -> impl Iterator<Item = &Pipeline> {
        core::iter::once(&self.pipeline).chain(self.shadow.as_ref().map(Shadow::pipeline))
    }
}

/// Compiles endpoints and acting rules, and returns the rest of the policy.
fn compile(mut message: v1::Topology) -> Result<(Endpoints, Pipeline, v1::Policy), TopologyRefusal> {
    let mut policy = message.policy.take().unwrap_or_default();
    let pool = wire::topology_into_core(message).map_err(TopologyRefusal::Endpoints)?;
    let pipeline = wire::pipeline_into_core(&mut policy).map_err(TopologyRefusal::Configuration)?;
    Ok((pool, pipeline, policy))
}

impl PoolView {
    /// The view of a snapshot, which arrived at this time.
    pub fn new(topology: Arc<Topology>, snapshot: v1::Snapshot, arrived: Duration) -> Self {
        let versions = Versions { topology: snapshot.topology_version, readings: snapshot.readings_version };
        let readings = snapshot.readings.into_iter();
        let readings = readings.map(|reading| wire::reading_into_core(reading, arrived)).collect();
        Self::of(topology, ReceivedReadings::unencoded(readings), versions, arrived)
    }

    /// The view of a snapshot of this topology, which arrived at this time. Of its readings, those that
    /// `older` does not have are decoded.
    fn after(
        older: &Arc<Self>,
        topology: Arc<Topology>,
        snapshot: v1::EncodedSnapshot,
        arrived: Duration,
    ) -> Result<Self, DecodeError> {
        let versions = Versions { topology: snapshot.topology_version, readings: snapshot.readings_version };
        let older = Some(older).filter(|older| Arc::ptr_eq(&older.topology, &topology));
        let received = ReceivedReadings::decode(snapshot.readings, older, arrived)?;
        Ok(Self::of(topology, received, versions, arrived))
    }

    fn of(
        topology: Arc<Topology>,
        received: ReceivedReadings,
        versions: Versions,
        arrived: Duration,
    ) -> Self {
        let view = DecisionInput {
            pool: &topology.pool,
            readings: &received.readings,
            readings_arrived: arrived,
            in_flight: &[],
            deferred: &[],
            avoided: &[],
            states: &PluginStates::none(),
            precomputed: None,
        };
        Self {
            precomputed: Pipeline::precompute(&view, topology.pipelines()),
            topology,
            received,
            arrived,
            versions: Some(versions),
        }
    }

    /// Endpoints and policy. Before the first snapshot there are no endpoints, and the policy is the default.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// The endpoints.
    pub fn pool(&self) -> &Arc<Endpoints> {
        &self.topology.pool
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.topology.policy
    }

    /// The versions of the snapshot; `None` before the first one.
    pub fn versions(&self) -> Option<Versions> {
        self.versions
    }

    /// Readings of the endpoints, in the pool's order.
    pub fn readings(&self) -> &[Reading] {
        &self.received.readings
    }

    /// The readings that differ from the last view's; [`ChangedReadings::All`] if `older` is not that view.
    pub fn changed_since(&self, older: &Arc<Self>) -> ChangedReadings<'_> {
        self.received.changed_since(older)
    }

    /// Scores that depend on the readings only.
    pub(crate) fn precomputed(&self) -> &PrecomputedScores {
        &self.precomputed
    }

    /// Whether topology and cache marks equal those of `older`, so that no endpoint has restarted.
    pub fn has_marks_of(&self, older: &Arc<Self>) -> bool {
        let mark = |reading: &Reading| (reading.cached_since, reading.updated.is_some());
        let has_same = |(place, reading): (usize, &Reading)| {
            older.readings().get(place).map(mark) == Some(mark(reading))
        };
        Arc::ptr_eq(&self.topology, &older.topology)
            && self.readings().len() == older.readings().len()
            && self.changed_since(older).of(self.readings()).all(has_same)
    }

    /// The time at which the snapshot arrived.
    pub fn arrived(&self) -> Duration {
        self.arrived
    }

    /// The endpoint that listens on an address.
    pub(crate) fn endpoint_at(&self, address: SocketAddr) -> Option<&Endpoint> {
        let pool = self.pool();
        pool.as_slice().get(pool.index_at(address)?)
    }

    /// Options for the body of a request with these headers.
    pub fn body_options<'h>(&self, headers: Headers<'h>) -> Options<'h> {
        let options = self.topology.pipeline.body_options(headers);
        let shadow = self.topology.shadow.as_ref();
        let for_shadow = shadow.map_or(0, |shadow| shadow.pipeline().max_prompt_bytes());
        let for_record = if self.policy().record.is_some() { RECORDED_PROMPT_BYTES } else { 0 };
        Options { keep_bytes: options.keep_bytes.max(for_shadow).max(for_record), ..options }
    }
}
