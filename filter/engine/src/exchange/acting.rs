//! Acts on a decision: sends the request to its endpoint, rejects it, or lets it pass.

use endpoint_picker::decision::rejection::{Code, Rejection};
use endpoint_picker::decision::shadow::Agreement;
use endpoint_picker::fallback::Fallback;
use endpoint_picker::flow_control::Config;
use endpoint_picker::grpc::is_grpc;
use endpoint_picker::headers::{HeaderList, Headers};
use endpoint_picker::response::outcome::ServerOutcome;
use endpoint_picker_wire::statistics::Count;

use super::decider::{Decided, ExpectedResponse};
use super::head::{CONTENT_LENGTH, ResponseHead, subset_hint};
use super::new_body::NewBody;
use super::response::Judged;
use super::served::Served;
use super::{Exchange, Flow, Progress, Turn};
use crate::budget::KeptBytes;
use crate::config::Mode;
use crate::metrics::MetricSink;
use crate::pool_view::PoolView;
use crate::proxy::error_body::{ErrorResponse, further_headers};
use crate::proxy::metadata::Metadata;
use crate::proxy::{Proxy, Result, headers};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::directive::{Action, Directive, Route};
use crate::worker_pool::fallback::OtherResponse;
use crate::worker_pool::store::PoolStore;

/// Envoy's response code details when a body exceeds the buffer limit.
const BUFFER_OVERFLOW: &[u8] = b"request_payload_too_large";

impl<S: PoolStore, M: MetricSink, P: Proxy> Turn<'_, S, M, P> {
    /// Acts on a decision.
    pub(super) fn act(&mut self, decided: Decided) -> Result<Flow> {
        let (directive, response) = match decided {
            Decided::Made { directive, response } => (directive, response),
            Decided::Waits => return Ok(Flow::Wait),
            Decided::Moves { to, reason } => {
                let Self { exchange, pool, .. } = self;
                pool.metrics.fallbacks.increment(reason);
                exchange.fallback = Some(Fallback { from: pool.config.pool.clone(), reason });
                return Ok(Flow::Move(to));
            }
            Decided::Refused(rejection) => return self.refuse(&rejection),
        };
        self.show_wait();
        let Self { exchange, pool, proxy } = self;
        exchange.progress = Progress::Decided;
        let other = exchange.other.take();
        let Directive { action, explanation, agreement, record, .. } = directive;
        if let Some(mut record) = record
            && action.add_to(&mut record, pool.view().pool(), exchange.place.waited())
        {
            exchange.record = Some(record);
        }
        if let Some(agreement) = agreement {
            pool.metrics.count_shadow(agreement);
        }
        if let Some(explanation) = explanation {
            if pool.config.explain.access_log {
                // Where another picker acts, the request's head may have passed already.
                let logged = match other {
                    None => Metadata::Explanation(&explanation),
                    Some(_) => Metadata::ShadowExplanation(&explanation),
                };
                proxy.set_metadata(&logged)?;
            }
            if exchange.head.explains_to_client {
                exchange.response.headers.push((headers::EXPLANATION.to_owned(), explanation));
            }
        }
        match (action, other) {
            (Action::Route(route), _) => self.send(*route, response),
            (Action::Pass(passed), _) => {
                exchange.response.expected = response;
                exchange.assignment = passed.assignment;
                Ok(Flow::Continue)
            }
            (Action::Reject(_), Some(_)) => {
                // The request goes where the other picker sends it.
                exchange.record = None;
                pool.metrics.count_shadow(Agreement::Rejected);
                Ok(Flow::Continue)
            }
            (Action::Abstain { .. }, Some(_)) => {
                pool.metrics.count(Count::ShadowNotCompared);
                Ok(Flow::Continue)
            }
            (Action::Reject(rejection), None) => {
                pool.metrics.rejected.increment(rejection.code);
                if rejection.misses_limits {
                    pool.metrics.count(Count::SloRefused);
                }
                self.reject(&rejection)
            }
            (Action::Abstain { reason, within }, None) => {
                pool.metrics.abstained.increment(reason);
                if let Some(addresses) = within {
                    let list = headers::destination_list(addresses.iter().map(ToString::to_string));
                    self.direct(&list, true)?;
                }
                Ok(Flow::Continue)
            }
        }
    }

    /// Sends the request to its endpoint.
    fn send(&mut self, route: Route, expected: ExpectedResponse) -> Result<Flow> {
        let Self { exchange, proxy, .. } = self;
        exchange.response.headers.extend(route.response_headers);
        exchange.response.expected = expected;
        exchange.assignment = route.assignment;
        let has_limits = exchange.assignment.limits.is_some();
        for (name, value) in route.request_headers {
            proxy.set_request_header(name, &value)?;
        }
        if let Some(scores) = route.scores {
            let scores: Vec<_> = scores.iter().map(|(address, score)| (address.as_str(), *score)).collect();
            proxy.set_metadata(&Metadata::Scores(&scores))?;
        }
        self.direct(&route.destinations, route.is_hint)?;
        if !route.retry_in.is_empty() {
            self.proxy.set_metadata(&Metadata::RetryIn(&route.retry_in))?;
        }
        self.pool.metrics.count(Count::Routed);
        if has_limits {
            self.pool.metrics.count(Count::SloAdmitted);
        }
        if route.is_stale {
            self.pool.metrics.count(Count::RoutedStale);
        }
        Ok(Flow::Continue)
    }

    /// Sends a request to these destinations, and with `is_hint` to no other. Marks it, so that no later
    /// picker picks again.
    fn direct(&mut self, destinations: &str, is_hint: bool) -> Result<()> {
        let Self { exchange, pool, proxy } = self;
        proxy.set_request_header(headers::DESTINATION, destinations)?;
        proxy.set_metadata(&Metadata::Destination(destinations))?;
        if is_hint {
            proxy.set_metadata(&Metadata::NoFallback)?;
        }
        // Envoy may not allow this call to the module. Without the mark, only a second picker for this pool
        // picks again.
        let own = exchange.fallback.as_ref().map_or(&pool.config.pool, |fallback| &fallback.from);
        let _ = proxy.mark_picked(own);
        Ok(())
    }

    /// Replaces the body. A body with a length gets the new one; a chunked body has none.
    #[cold]
    #[inline(never)]
    pub(super) fn replace_body(&mut self, new: NewBody) -> Result<()> {
        let NewBody { body, restore } = new;
        self.proxy.replace_request_body(&body)?;
        if self.exchange.head.has(CONTENT_LENGTH) {
            self.proxy.set_request_header(CONTENT_LENGTH, &body.len().to_string())?;
        }
        self.exchange.response.restore = restore;
        Ok(())
    }

    /// Responds to the request with an error.
    #[cold]
    #[inline(never)]
    pub(super) fn reject(&mut self, rejection: &Rejection) -> Result<Flow> {
        self.exchange.progress = Progress::Rejected;
        let ErrorResponse { header, body } = ErrorResponse::new(rejection, self.exchange.head.is_grpc);
        let more = further_headers(rejection);
        let mut headers: Vec<_> =
            [&header].into_iter().chain(&more).map(|(name, it)| (*name, &**it)).collect();
        let of_response = &self.exchange.response.headers;
        headers.extend(of_response.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        self.proxy.send_response(rejection.code.status(), &headers, &body)?;
        Ok(Flow::Hold)
    }

    /// The flow after an event. After a refused call, the pool's failure mode decides. A request that another
    /// picker has routed passes in any case. Nothing reads the headers of a decided request.
    pub(super) fn settle(&mut self, result: Result<Flow>) -> Flow {
        let flow = self.flow(result);
        let flow = self.account_for_body(flow);
        if !self.exchange.is_undecided() {
            self.exchange.head.forget_headers(&mut self.pool.spare_headers);
        }
        flow
    }

    /// Counts the part of the body that is held after an event, here or by the proxy. Rejects the request if
    /// there is no room for it among all bodies that are held; a request that another picker has routed
    /// passes without a comparison.
    fn account_for_body(&mut self, flow: Flow) -> Flow {
        let Self { exchange, pool, .. } = self;
        let bytes = match (&exchange.other, flow) {
            _ if !exchange.is_undecided() => 0,
            (Some(other), _) => other.body.len(),
            (None, Flow::Hold | Flow::Wait) => exchange.arrived,
            (None, Flow::Continue | Flow::Move(_)) => 0,
        };
        if bytes == 0 {
            exchange.held = None;
            return flow;
        }
        let held = exchange.held.get_or_insert_with(|| KeptBytes::new(&pool.held_bodies));
        if held.set(bytes) {
            return flow;
        }
        exchange.held = None;
        if exchange.other.take().is_some() {
            exchange.progress = Progress::Decided;
            pool.metrics.count(Count::ShadowNotCompared);
            return flow;
        }
        exchange.leave_queue(&pool.store);
        pool.metrics.count(Count::RejectedHeldBodies);
        let refused = self.refuse(&Rejection::too_many_bodies());
        self.flow(refused)
    }

    fn flow(&mut self, result: Result<Flow>) -> Flow {
        match result {
            _ if self.pool.config.mode == Mode::Shadow => {
                if let Err(error) = result {
                    log::warn!("{error}; the request passes, and another picker's choice is not compared");
                    self.exchange.progress = Progress::Decided;
                    self.exchange.other = None;
                    self.pool.metrics.count(Count::ShadowNotCompared);
                }
                Flow::Continue
            }
            Ok(flow) => flow,
            Err(error) => {
                log::error!("{error}; the failure mode decides: {:?}", self.pool.failure_mode());
                self.act_by_failure_mode()
            }
        }
    }

    /// Acts on the decision of the pool's failure mode, as without a snapshot.
    #[cold]
    #[inline(never)]
    pub(super) fn act_by_failure_mode(&mut self) -> Flow {
        let subset = subset_hint(self.proxy);
        let outcome = self.pool.decide_without_snapshot(&subset);
        // If the proxy refuses this too, no response can be sent, and a request that is held would hang.
        self.act(outcome.into()).unwrap_or(Flow::Continue)
    }

    /// Takes the head of a response in: its load, the endpoints that failed before it, and the changes of its
    /// headers.
    pub(super) fn begin_response(&mut self, has_body: bool) -> Result<()> {
        let Self { exchange, pool, proxy } = self;
        let mode = pool.config.mode;
        let head = ResponseHead::take(*proxy, mode)?;
        if exchange.is_held() && (head.status == 413 || head.grpc_status.is_some()) {
            return self.explain_overflow(has_body);
        }
        // The picker has routed nothing, so there is no load to end.
        if exchange.assignment.destinations.is_empty() {
            return Ok(());
        }
        let view = pool.view();
        let kind = exchange.head.kind;
        let mut served = Served::read(*proxy, &view, &exchange.assignment, &head, kind)?;
        // A shadow cannot tell: the request follows the choice of another picker.
        let is_elsewhere =
            mode == Mode::Pick && exchange.assignment.is_served_elsewhere(view.pool(), *proxy, served);
        if is_elsewhere {
            pool.metrics.count(Count::ServedElsewhere);
        }
        if !pool.others.is_empty() && served.endpoint.is_none() {
            served.endpoint = self.hand_over(served, is_elsewhere)?;
        }
        let Self { exchange, pool, proxy } = self;
        if exchange.assignment.handed_over.is_none() {
            let kept = &mut pool.kept_connections;
            exchange.assignment.begin_response(&mut pool.store, kept, *proxy, served, is_elsewhere)?;
        }
        let pipeline = &view.topology().pipeline;
        if mode == Mode::Pick && pipeline.marks_responses() {
            exchange.name_server(&view, served);
        }
        if let Some(record) = &mut exchange.record {
            record.responds(served.by, is_elsewhere, served.outcome);
        }
        let response = &mut exchange.response;
        // Errors and the proxy's own responses do not show how long a model takes to its first output.
        if served.by.is_some() && head.status < 400 && served.outcome != Some(ServerOutcome::Failed) {
            response.awaited_since = Some(exchange.assignment.at);
            response.served_by = served.endpoint;
        }
        let judged = served.endpoint.filter(|_| served.outcome.is_none());
        response.judged = judged.map(|endpoint| Judged { endpoint, is_by_trailers: head.is_grpc });
        response.counts_service = pipeline.flow_control().is_some_and(Config::counts_service);
        response.is_sample = exchange.assignment.learns_from_usage() || exchange.record.is_some();
        if mode == Mode::Pick {
            response.reporters =
                Some(pipeline.reporters()).filter(|reporters| !reporters.is_empty()).cloned();
        }
        response.begin(*proxy, &mut pool.metrics, &head, &exchange.head, has_body)
    }

    /// Hands the load of a request over to the other pool whose server responds. Returns the server's key.
    #[cold]
    #[inline(never)]
    fn hand_over(&mut self, served: Served, is_elsewhere: bool) -> Result<Option<u64>> {
        let Some(address) = served.by else { return Ok(None) };
        let response =
            OtherResponse { address, outcome: served.outcome, is_elsewhere, at: self.proxy.now()? };
        Ok(self.pool.hand_over(&mut self.exchange.assignment, response))
    }

    /// Replaces the proxy's own response to a held request whose next chunk did not fit into the proxy's
    /// buffer: the client gets the error with which the filter rejects such a body. If the filter has
    /// rejected the request at the same chunk, the response code details are those of its rejection, but the
    /// proxy's response comes first; it is not JSON.
    #[cold]
    #[inline(never)]
    pub(super) fn explain_overflow(&mut self, has_body: bool) -> Result<()> {
        let Self { exchange, pool, proxy } = self;
        let (mut is_413, mut is_json, mut is_grpc) = (false, false, false);
        proxy.read_response_headers(|name, value| match name {
            b":status" => is_413 = value == b"413",
            b"content-type" => is_json = value == b"application/json",
            b"grpc-status" => is_grpc = true,
            _ => {}
        })?;
        // The filter's own rejection is JSON, the proxy's response is not. Of two responses of gRPC, the
        // filter's stays.
        let is_overflow = if is_grpc { !exchange.is_rejected() } else { has_body && is_413 && !is_json };
        if !is_overflow || !exchange.is_rejected() && proxy.response_details()? != BUFFER_OVERFLOW {
            return Ok(());
        }
        let rejection = exchange.head.too_large(pool.config.limits.max_held_bytes);
        if !exchange.is_rejected() {
            exchange.progress = Progress::Rejected;
            pool.metrics.rejected.increment(rejection.code);
        }
        let ErrorResponse { header: (name, value), body } = ErrorResponse::new(&rejection, is_grpc);
        proxy.set_response_header(name, &value)?;
        if is_grpc {
            return proxy.set_response_header("grpc-message", &rejection.message);
        }
        proxy.set_response_header(CONTENT_LENGTH, &body.len().to_string())?;
        exchange.response.replacement = Some(body.into());
        Ok(())
    }
}

impl Exchange {
    /// Adds the headers that name the server of the response to the client.
    #[cold]
    #[inline(never)]
    fn name_server(&mut self, view: &PoolView, served: Served) {
        if let Some(endpoint) = served.by.and_then(|address| view.endpoint_at(address)) {
            // The port that a server's ranks share does not name the rank that has the session.
            let rank = self.assignment.rank_at(endpoint.key()).and_then(|key| view.pool().of_key(key));
            let headers = view.topology().pipeline.response_headers(rank.unwrap_or(endpoint));
            self.response.headers.extend(headers);
        }
    }
}

/// Rejects a request whose body the proxy withholds. Only the event of its head could have let it pass, and
/// that event is over.
pub fn refuse_withheld_body<S: PoolStore, M: MetricSink>(
    pool: &WorkerPool<S, M>,
    proxy: &mut impl Proxy,
) -> Result<()> {
    let message = "the proxy does not pass the request's body on to the endpoint picker";
    let rejection = Rejection::new(Code::ServiceUnavailable, message);
    pool.metrics.rejected.increment(rejection.code);
    let headers = proxy.request_headers(HeaderList::EMPTY)?;
    let content_type = Headers(&headers).get("content-type").unwrap_or_default();
    let ErrorResponse { header: (name, value), body } =
        ErrorResponse::new(&rejection, is_grpc(content_type.as_bytes()));
    proxy.send_response(rejection.code.status(), &[(name, &value)], &body)
}
