//! The configurations of the filter and of routes.

use std::sync::Arc;

use endpoint_picker_engine::agent::{AUTHORITY, AgentAnswer, AgentRequest, CONTENT_TYPE, CallError, CallId};
use endpoint_picker_engine::proxy::ProxyError;
use parking_lot::Mutex;

use crate::abi::{CalloutAnswer, CalloutRefused, ConfigHandle, concurrency};
use crate::attachment::Attachment;
use crate::config::{AgentAccess, ModuleConfig};
use crate::metrics::Flusher;
use crate::picker::{Picker, Worker};
use crate::proxy_name::proxy_name;

/// The event of all wakes.
const WAKE: u64 = 0;

/// A filter's configuration in use.
#[derive(Debug)]
pub(crate) struct FilterConfig {
    picker: Arc<Picker>,
    flusher: Arc<Flusher>,
    /// Only the main thread locks it.
    attachment: Mutex<Attachment>,
}

impl FilterConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(handle: &mut ConfigHandle<'_>, json: &[u8]) -> Result<Self, String> {
        let config = ModuleConfig::parse(json).map_err(|error| error.to_string())?;
        let scheduler = handle.scheduler().ok_or("Envoy has no scheduler for the configuration")?;
        let wake = Box::new(move || scheduler.commit(WAKE));
        let attachment = attach(&config, wake)?;
        Picker::register_metrics(&config.engine.pool);
        let flusher = Flusher::new(handle);
        let picker = Picker::new(&config, &attachment, concurrency(), Some(&flusher));
        Ok(Self { picker, flusher, attachment: Mutex::new(attachment) })
    }

    /// The pool of a worker.
    pub(crate) fn worker(&self, index: u32) -> &Arc<Worker> {
        self.picker.worker(index)
    }

    /// A wake has reached the main thread.
    pub(crate) fn on_scheduled(&self, handle: &mut ConfigHandle<'_>) {
        self.flusher.tick(handle);
        self.call_agent(handle);
    }

    /// The answer to a call has arrived; `None` if there was none.
    pub(crate) fn on_answer(&self, handle: &mut ConfigHandle<'_>, id: u64, answer: Option<CalloutAnswer>) {
        let answer = answer.ok_or(CallError::NoAnswer(String::new()));
        let answer = answer.and_then(|CalloutAnswer { status, is_dated, body }| {
            AgentAnswer { status, body }.of_agent(is_dated)
        });
        self.attachment.lock().take_answer(id, answer);
        self.call_agent(handle);
    }

    fn call_agent(&self, handle: &mut ConfigHandle<'_>) {
        self.attachment.lock().tick(|cluster, request| call(handle, cluster, request));
    }
}

/// Sends a request to the agent.
fn call(handle: &mut ConfigHandle<'_>, cluster: &str, request: &AgentRequest) -> Result<CallId, CallError> {
    let method = if request.body.is_some() { "POST" } else { "GET" };
    let headers = [
        (":method", method),
        (":path", request.path.as_str()),
        ("host", AUTHORITY),
        ("content-type", CONTENT_TYPE),
    ];
    // A GET has no content.
    let headers = if request.body.is_some() { &headers[..] } else { &headers[..3] };
    let body = request.body.as_deref().unwrap_or_default();
    handle.call(cluster, headers, body, request.timeout).map_err(|reason| match reason {
        CalloutRefused::ClusterNotFound => CallError::NoCluster(cluster.to_owned()),
        CalloutRefused::Other(number) => {
            ProxyError { call: "http_filter_config_http_callout", status: number.to_string() }.into()
        }
    })
}

/// The configuration of a route in use.
#[derive(Debug)]
pub(crate) struct RouteConfig {
    picker: Arc<Picker>,
    _attachment: Attachment,
}

impl RouteConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(json: &[u8]) -> Result<Self, String> {
        let config = ModuleConfig::parse(json).map_err(|error| error.to_string())?;
        if let AgentAccess::Cluster(_) = config.agent {
            return Err(
                "a route's configuration needs agent.addresses: agentCluster is for the filter's".to_owned()
            );
        }
        let attachment = attach(&config, Box::new(|| {}))?;
        let picker = Picker::new(&config, &attachment, concurrency(), None);
        Ok(Self { picker, _attachment: attachment })
    }

    /// The pool of a worker.
    pub(crate) fn worker(&self, index: u32) -> &Arc<Worker> {
        self.picker.worker(index)
    }
}

fn attach(config: &ModuleConfig, wake: crate::users::Wake) -> Result<Attachment, String> {
    let attached = Attachment::new(&config.engine.pool, &config.agent, &proxy_name(), wake);
    attached.map_err(|error| format!("no thread for the agent: {error}"))
}
