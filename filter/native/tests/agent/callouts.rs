//! Polls and reports as calls of Envoy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use endpoint_picker_engine::agent::{AgentAnswer, AgentRequest, CallError, CallId};
use endpoint_picker_engine::pool_view::Versions;
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_native::attachment::Attachment;
use endpoint_picker_native::config::AgentAccess;
use endpoint_picker_wire::Message;

use crate::fixture::{eventually, snapshot, unique_pool};

/// A configuration, as Envoy's main thread calls it.
struct Configuration {
    attachment: Attachment,
    woken: Arc<AtomicU64>,
}

impl Configuration {
    fn new(pool: &str) -> Self {
        let woken = Arc::<AtomicU64>::default();
        let wake = {
            let woken = Arc::clone(&woken);
            move || {
                woken.fetch_add(1, Ordering::SeqCst);
            }
        };
        let access = AgentAccess::Cluster("agents".to_owned());
        let attachment = Attachment::new(pool, &access, "envoy-1", Box::new(wake)).unwrap();
        Self { attachment, woken }
    }

    /// Waits for the next call of the thread and lets the configuration send requests. They get the numbers from 1 on.
    fn tick(&mut self) -> Vec<AgentRequest> {
        let before = self.woken.load(Ordering::SeqCst);
        eventually("the next tick", || self.woken.load(Ordering::SeqCst) > before);
        let mut requests: Vec<AgentRequest> = Vec::new();
        self.attachment.tick(|cluster, request| {
            assert_eq!(cluster, "agents");
            requests.push(request.clone());
            Ok(requests.len() as CallId)
        });
        requests
    }

    /// Waits for the next poll.
    fn next_poll(&mut self) -> AgentRequest {
        let mut poll = None;
        eventually("a poll", || {
            poll = self.tick().into_iter().find(|request| request.body.is_none());
            poll.is_some()
        });
        poll.unwrap()
    }

    fn take(&mut self, status: u16, body: Vec<u8>) {
        self.attachment.take_answer(1, Ok(AgentAnswer { status, body }));
    }

    fn versions(&self) -> Option<Versions> {
        self.attachment.pool().view().versions()
    }
}

#[test]
fn the_first_configuration_polls_for_all_and_the_next_one_takes_over() {
    let pool = unique_pool();
    let mut first = Configuration::new(&pool);
    let mut second = Configuration::new(&pool);
    assert_eq!(first.next_poll().path, format!("/v1/pools/{pool}/snapshot?wait_ms=250"));
    first.take(200, snapshot(2, 1).encode_to_vec());
    assert_eq!(second.versions(), Some(Versions { topology: 2, readings: 1 }));
    // Only once a second are others called, and they send nothing.
    assert!(second.tick().is_empty());
    drop(first);
    let next = second.next_poll();
    assert_eq!(next.path, format!("/v1/pools/{pool}/snapshot?wait_ms=250&topology=2&readings=1"));
    second.take(200, snapshot(3, 1).encode_to_vec());
    assert_eq!(second.versions(), Some(Versions { topology: 3, readings: 1 }));
}

#[test]
fn a_call_that_is_refused_or_has_no_answer_is_a_failed_poll() {
    let mut configuration = Configuration::new(&unique_pool());
    let refused = || Err(ProxyError { call: "http_callout", status: "ClusterNotFound".to_owned() });
    configuration.attachment.tick(|_, _| refused().map_err(Into::into));
    assert_eq!(configuration.attachment.pool().take_polls().failed, 1);
    configuration.next_poll();
    configuration.attachment.take_answer(1, Err(CallError::NoAnswer(String::new())));
    assert_eq!(configuration.attachment.pool().take_polls().failed, 1);
    configuration.next_poll();
    configuration.take(200, snapshot(2, 1).encode_to_vec());
    assert_eq!(configuration.attachment.pool().take_polls().published, 1);
    assert!(configuration.tick().iter().chain(&configuration.tick()).any(|request| {
        let is_report = request.body.is_some();
        is_report && request.path.ends_with("/report")
    }));
}
