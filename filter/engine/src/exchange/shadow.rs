//! The steps of a request that another picker has routed: it passes unchanged while the own decision is compared.

use endpoint_picker::decision::shadow::Agreement;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Body, complete};

use super::head::RequestHead;
use super::pick_headers;
use super::shadowed_request::ShadowedRequest;
use super::steps::{Exchange, Flow, Progress};
use super::subset_hint;
use crate::config::UnreadBody;
use crate::metrics::{MetricSink, RequestModels};
use crate::proxy::metadata::Metadata;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::comparison::{Comparison, PickAddresses};
use crate::worker_pool::store::PoolStore;

/// How much of a body is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    Beginning,
}

impl Exchange {
    /// The head of a request has arrived.
    pub(super) fn shadow_head<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        has_body: bool,
    ) -> Flow {
        self.progress = Progress::Decided;
        let result = self.begin_shadow(pool, proxy, has_body);
        pass(pool, result)
    }

    /// A chunk of its body is passing.
    pub(super) fn shadow_chunk<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        is_last: bool,
    ) -> Flow {
        let Some(shadowed) = self.shadowed.take() else { return Flow::Continue };
        let result = self.read_chunk(pool, proxy, shadowed, is_last);
        pass(pool, result)
    }

    /// Its trailers have arrived, and so has its whole body.
    pub(super) fn shadow_trailers<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
    ) -> Flow {
        let Some(ShadowedRequest { pick, body, .. }) = self.shadowed.take() else { return Flow::Continue };
        let result = self.compare_body(pool, proxy, &pick, &body, Extent::Whole);
        pass(pool, result.map(|_| ()))
    }

    /// Requests without a body are not compared: they go to any endpoint.
    fn begin_shadow<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        has_body: bool,
    ) -> Result<()> {
        self.head = RequestHead::read(proxy, &pool.config.explain)?;
        if !has_body {
            return Ok(());
        }
        let Some(pick) = pick_headers::read(self.head.headers()) else {
            pool.metrics.shadow_not_compared.increment();
            return Ok(());
        };
        // A picker of the same pool has recorded the request already, and counts its own.
        if proxy.picked_for()?.is_some_and(|picked| picked == pool.config.pool.as_bytes()) {
            pool.metrics.shadow_not_compared.increment();
            return Ok(());
        }
        let view = pool.view();
        match self.head.find_api(&view.topology().pipeline) {
            Ok(api) if view.policy().needs_body(api, self.head.headers()) => {
                let until = pool.config.limits.peek_bytes;
                self.shadowed = Some(ShadowedRequest { pick, body: Vec::new(), until });
            }
            Ok(_) => self.compare(pool, proxy, &pick, &Body::default())?,
            Err(_) => pool.metrics.count_shadow(Agreement::Rejected),
        }
        Ok(())
    }

    fn read_chunk<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        mut shadowed: ShadowedRequest,
        is_last: bool,
    ) -> Result<()> {
        let most = pool.config.limits.max_held_bytes;
        let chunk = proxy.request_chunk()?;
        let room = most.saturating_sub(shadowed.body.len());
        let fits = chunk.len() <= room;
        shadowed.body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        let ShadowedRequest { pick, body, until } = &mut shadowed;
        if is_last && fits {
            return self.compare_body(pool, proxy, pick, body, Extent::Whole).map(|_| ());
        }
        while let Some(beginning) = body.get(..*until) {
            if self.compare_body(pool, proxy, pick, beginning, Extent::Beginning)? {
                return Ok(());
            }
            if *until >= most {
                match pool.config.limits.unread_body {
                    UnreadBody::Reject => pool.metrics.count_shadow(Agreement::Rejected),
                    UnreadBody::Abstain => pool.metrics.shadow_not_compared.increment(),
                }
                return Ok(());
            }
            // As for a body that is held, all looks together cost no more than two at the whole.
            *until = until.saturating_mul(2).min(most);
        }
        self.shadowed = Some(shadowed);
        Ok(())
    }

    /// Compares by a body or its beginning. False: the beginning does not have enough.
    fn compare_body<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        pick: &PickAddresses,
        bytes: &[u8],
        extent: Extent,
    ) -> Result<bool> {
        let view = pool.view();
        let options = view.body_options(self.head.headers());
        let api = self.head.api;
        let completed;
        let read = match extent {
            Extent::Whole => Body::read_bytes(bytes, api, &options),
            Extent::Beginning => match complete(bytes.to_vec(), api, &options) {
                Some(bytes) => {
                    completed = bytes;
                    Body::read_bytes(&completed, api, &options)
                }
                None => return Ok(false),
            },
        };
        match (read, extent) {
            (Ok(body), _) if body.model.is_some() || !api.names_model() || api.may_lack_model() => {
                self.compare(pool, proxy, pick, &body)?;
            }
            // As the server reads what the picker cannot, it is a request without a model.
            (Err(_), Extent::Whole) if api.may_lack_model() => {
                self.compare(pool, proxy, pick, &Body::default())?;
            }
            (Ok(_) | Err(_), Extent::Beginning) => return Ok(false),
            (Ok(_) | Err(_), Extent::Whole) => pool.metrics.count_shadow(Agreement::Rejected),
        }
        Ok(true)
    }

    /// Compares the other picker's choice with the own decision, and records where the request goes.
    fn compare<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        pick: &PickAddresses,
        body: &Body<'_>,
    ) -> Result<()> {
        let now = proxy.now()?;
        let view = pool.view();
        let headers = self.head.headers();
        let resolution = view.policy().resolve_routed(headers, body.model.as_deref());
        let request = Request::new(body, resolution, headers, subset_hint::read(proxy));
        let Some(comparison) = pool.compare(&view, &request, pick, self.head.explains, now) else {
            pool.metrics.shadow_not_compared.increment();
            return Ok(());
        };
        let Comparison { agreement, explanation, assignment, prompt } = comparison;
        let metrics = &mut pool.metrics;
        metrics.decision.record(proxy.now()?.saturating_sub(now).as_micros());
        metrics.count_shadow(agreement);
        metrics.count_prompt(prompt);
        let asked = body.model.as_deref();
        let models = RequestModels { asked, model: resolution.model, rewrite: None };
        self.response.models = metrics.count_models(&models);
        self.assignment = assignment;
        if let Some(explanation) = explanation {
            if pool.config.explain.access_log {
                proxy.set_metadata(&Metadata::ShadowExplanation(&explanation))?;
            }
            self.explain_to_client(explanation);
        }
        Ok(())
    }
}

/// The request goes on, whatever became of the comparison.
fn pass<S, M: MetricSink>(pool: &WorkerPool<S, M>, result: Result<()>) -> Flow {
    if let Err(error) = result {
        log::warn!("{error}; the request passes, and another picker's choice is not compared");
        pool.metrics.shadow_not_compared.increment();
    }
    Flow::Continue
}
