//! The models that the agent knows, for body-based routing.

use core::time::Duration;
use std::io;
use std::sync::{Arc, LazyLock};

use endpoint_picker_engine::agent::{AgentRequest, RecentErrors};
use endpoint_picker_engine::body_routing::BaseModels;
use parking_lot::RwLock;

use super::POLL;
use super::connection::AgentConnection;
use crate::config::AgentAccess;
use crate::process::clock;
use crate::process::registry::ProcessRegistry;
use crate::process::thread::{Stop, Thread};

/// Time between two polls. Models change with the objects of a cluster, not with requests.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The models of the process, by the way to their agent.
static MODELS: LazyLock<ProcessRegistry<AgentAccess, ModelsHandle>> = LazyLock::new(ProcessRegistry::new);

/// The models that an agent knows, kept up to date by a thread until the last user is gone.
#[derive(Debug)]
pub(crate) struct ModelsHandle {
    current: Arc<RwLock<Arc<BaseModels>>>,
    _thread: Thread,
}

impl ModelsHandle {
    /// The models of these agents. The error is one of the system: no thread can be started.
    pub(crate) fn of(access: &AgentAccess) -> io::Result<Arc<Self>> {
        MODELS.get_or_make(access.clone(), || {
            let current = Arc::<RwLock<Arc<BaseModels>>>::default();
            let (shared, polled) = (Arc::clone(&current), access.clone());
            let thread = Thread::start("epp-models", move |stop| poll(&polled, &shared, stop))?;
            Ok(Self { current, _thread: thread })
        })
    }

    /// The newest models; none before the first poll.
    pub(crate) fn current(&self) -> Arc<BaseModels> {
        Arc::clone(&self.current.read())
    }
}

/// Polls the agents, one of them until a poll fails, then the next.
fn poll(access: &AgentAccess, current: &RwLock<Arc<BaseModels>>, stop: &Arc<Stop>) {
    let mut connection = AgentConnection::new(access, Arc::clone(stop));
    let mut errors = RecentErrors::default();
    let (mut agent, mut has_models) = (0, false);
    while !stop.is_stopped() {
        let request = AgentRequest { path: current.read().path(), body: None, timeout: POLL.timeout };
        let response = connection.send(agent, &request, clock::now()).map_err(|error| error.to_string());
        match response.and_then(|response| BaseModels::newer(response).map_err(|error| error.to_string())) {
            Ok(Some(models)) => {
                *current.write() = Arc::new(models);
                has_models = true;
            }
            Ok(None) => {}
            Err(_) if stop.is_stopped() => return,
            Err(error) => {
                if errors.is_new(error.clone(), clock::now()) {
                    let effect = if has_models { "the last one stays in use" } else { "there is none yet" };
                    log::warn!("no list of base models: {error}; {effect}");
                }
                agent = (agent + 1) % access.addresses.len();
            }
        }
        stop.wait(POLL_EVERY);
    }
}
