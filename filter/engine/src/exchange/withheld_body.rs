//! Requests whose bodies the proxy keeps from the filter: bodies above its buffer limit, and all of them where the configuration lacks a flag.

use endpoint_picker::decision::rejection::{Code, Rejection};

use super::head::CONTENT_LENGTH;
use super::steps::{Exchange, Flow, Progress};
use crate::metrics::MetricSink;
use crate::proxy::error_body::error_body;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::store::PoolStore;

/// Envoy's response code details when a body exceeds the buffer limit.
const BUFFER_OVERFLOW: &[u8] = b"request_payload_too_large";

impl Exchange {
    /// The body of a held request will not arrive. The pool's failure mode decides, as without a snapshot.
    pub fn decide_without_body<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
    ) -> Flow {
        self.act_by_failure_mode(pool, proxy)
    }

    /// The proxy answers a held request, because the next chunk of its body did not fit into the proxy's buffer. The client gets the error that
    /// the filter answers. The filter may have done so already: then its details are those of the answer, but the proxy's answer to the same
    /// chunk comes first, and is not JSON.
    pub(super) fn explain_overflow<S, M: MetricSink>(
        &mut self,
        pool: &WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        has_body: bool,
    ) -> Result<()> {
        let (mut is_413, mut is_json) = (false, false);
        proxy.read_response_headers(|name, value| match name {
            b":status" => is_413 = value == b"413",
            b"content-type" => is_json = value == b"application/json",
            _ => {}
        })?;
        let is_overflow = has_body && is_413 && !is_json;
        if !is_overflow || !self.is_answered() && proxy.response_details()? != BUFFER_OVERFLOW {
            return Ok(());
        }
        let rejection = Rejection::body_too_large(pool.config.limits.max_held_bytes);
        if !self.is_answered() {
            self.progress = Progress::Answered;
            pool.metrics.count_rejected(rejection.code);
        }
        let body = error_body(&rejection);
        proxy.set_response_header("content-type", "application/json")?;
        proxy.set_response_header(CONTENT_LENGTH, &body.len().to_string())?;
        self.response.replacement = Some(body);
        Ok(())
    }
}

/// Answers a request that is held in vain, outside of its events: only its head could still pass it on.
pub fn refuse_withheld_body<S: PoolStore, M: MetricSink>(
    pool: &WorkerPool<S, M>,
    proxy: &mut impl Proxy,
) -> Result<()> {
    let rejection = Rejection {
        code: Code::ServiceUnavailable,
        reason: None,
        message: "the proxy does not pass the request's body on to the endpoint picker".into(),
    };
    pool.metrics.count_rejected(rejection.code);
    let headers = [("content-type", "application/json")];
    proxy.send_response(rejection.code.status(), &headers, &error_body(&rejection))
}
