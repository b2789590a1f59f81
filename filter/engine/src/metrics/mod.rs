//! The metrics of a pool.
//!
//! Counts are kept in the worker and flushed once a second, so that they cost a request no call to the proxy.

mod limits;
mod plugins;
mod series;
mod sharing;
mod sink;
mod tokens;
mod totals;

use core::time::Duration;

use endpoint_picker::decision::rejection::Code;
use endpoint_picker::decision::shadow::Agreement;
use endpoint_picker::decision::{Abstention, MediaCount, PromptBlocks, ServedModelRun};
use endpoint_picker::fallback::FallbackReason;
use endpoint_picker::input::prediction::ResponseLimits;
use endpoint_picker::period::Period;
use endpoint_picker::plugin::{AttributeReport, NotReported};
use endpoint_picker::pool::load::Load;
use endpoint_picker::response::reader::ResponseError;
use endpoint_picker::state::latency::{CompleteResponse, Expectation};
use endpoint_picker::state::prefix::CachedTokens;

use limits::LimitMetrics;
use plugins::PluginMetrics;
use series::{EndpointCounter, LabelledCounter, LabelledGauge};
use sharing::SharingMetrics;
use tokens::TokenMetrics;

use crate::form::{Form, VERSION};
use crate::worker_pool::directive::{Assignment, FirstToken};

pub use series::MAX_SERIES;
pub use sharing::SharingCounts;
pub(crate) use sink::{Counter, Gauge, Histogram, SampledHistogram};
pub use sink::{Labels, Metric, MetricKind, MetricSink, OTHER};
pub(crate) use tokens::ResponseUsage;
pub use totals::Totals;

/// The label with an endpoint's `ip:port`.
pub const ENDPOINT: &str = "endpoint";

/// The label with the model that serves.
pub const TARGET_MODEL: &str = "target_model";

/// The labels with the client's model and the serving model.
const MODELS: &[&str] = &["model_name", TARGET_MODEL];

/// The value for a request without a model.
const NO_MODEL: &str = "none";

/// Time between two steps of the age of models. The third step without a request forgets a model, after 60 to
/// 90 minutes.
const MODELS_STEP: Duration = Duration::from_secs(30 * 60);

/// All metrics of one pool, as one worker counts them.
#[derive(Debug)]
pub struct Metrics<M: MetricSink> {
    pub(crate) routed: Counter<M>,
    /// Routed requests for which no readings were used, because they were too old.
    pub(crate) routed_stale: Counter<M>,
    /// Routed requests whose first attempt went to a server that is not among their destinations.
    pub(crate) served_elsewhere: Counter<M>,
    /// Requests that another pool of the list took, by the reason; none in the wasm filter, where no request moves.
    fallbacks: Vec<(FallbackReason, Counter<M>)>,
    abstained_no_snapshot: Counter<M>,
    abstained_body_too_large: Counter<M>,
    abstained_body_compressed: Counter<M>,
    rejected: [(Code, Counter<M>); 7],
    /// Requests, among those that were rejected, whose bodies had no room among all that are held.
    pub(crate) rejected_held_bodies: Counter<M>,
    /// Snapshots that arrived and can be used.
    snapshots: Counter<M>,
    snapshot_failures: Counter<M>,
    /// Changes of the pool's endpoints or policy.
    topology_changes: Counter<M>,
    pub(crate) shadow_agreed: Counter<M>,
    /// Agreements with another pick of the same score.
    shadow_equal_score: Counter<M>,
    pub(crate) shadow_disagreed: Counter<M>,
    /// Disagreements in which the shadow rejects.
    shadow_rejected: Counter<M>,
    /// Disagreements on an endpoint that the pool lacks.
    shadow_unknown_endpoint: Counter<M>,
    /// Requests that could not be compared with another picker's choice.
    pub(crate) shadow_not_compared: Counter<M>,
    /// Requests in flight at the pool's endpoints, of all workers.
    pub(crate) in_flight: Gauge<M>,
    /// Requests that wait in the queue, of all workers.
    pub(crate) queued: Gauge<M>,
    /// Milliseconds since the newest snapshot arrived.
    pub(crate) snapshot_age: Gauge<M>,
    /// Microseconds that decisions took.
    pub(crate) decision: SampledHistogram<M>,
    /// Milliseconds from the decision to the first output in the response's body.
    pub(crate) first_byte: Histogram<M>,
    /// Responses with status 2xx whose body has an error, by the side whose fault it is.
    response_errors: [(ResponseError, Counter<M>); 2],
    /// Times to the first output of streams, as percentages of what was expected.
    first_chunk_of_expected: Histogram<M>,
    limits: LimitMetrics<M>,
    plugins: PluginMetrics<M>,
    /// Requests and stages of them, by endpoint.
    picks: EndpointCounter<M>,
    /// Routed requests, by the client's model and the serving model: of models to which a server has
    /// responded without an error.
    requests: LabelledCounter<M>,
    /// Pause before models are [aged](Self::age_models).
    models_pause: Period,
    /// Models that a rewrite rule named, by the rule's object and the model.
    rewrites: LabelledCounter<M>,
    /// Requests in flight, by endpoint.
    in_flight_requests: LabelledGauge<M>,
    /// Their tokens, by endpoint.
    in_flight_tokens: LabelledGauge<M>,
    prompt_blocks: Counter<M>,
    prompt_blocks_matched: Counter<M>,
    /// Images, videos and audio of requests.
    encoder_cache_queries: Counter<M>,
    /// Images, videos and audio of requests that the endpoint had been sent before.
    encoder_cache_hits: Counter<M>,
    /// Share of hits among the queries of each request, in percent.
    encoder_cache_hit_percent: Histogram<M>,
    sharing: SharingMetrics<M>,
    /// `None` if tokens of responses are not counted.
    tokens: Option<TokenMetrics<M>>,
}

/// The models of a routed request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestModels<'a> {
    /// The client's model; `None` if it named none, or its API has none.
    pub(crate) asked: Option<&'a str>,
    /// The model that serves.
    pub(crate) model: &'a str,
    /// The object with the rule that named it.
    pub(crate) rewrite: Option<&'a str>,
}

/// The labels of a request's models.
#[derive(Debug, Default)]
pub(crate) struct RequestLabels {
    /// Labels of new models: the request is counted under them when a server responds without an error.
    pub(crate) new: Option<Labels>,
    /// Labels for the tokens of its response, if they are counted.
    pub(crate) tokens: Option<Labels>,
}

impl<M: MetricSink> Metrics<M> {
    /// The metrics of a pool, none of them counted yet.
    pub fn new(sink: &M, pool: &str, form: Form, count_tokens: bool) -> Self {
        let family = |kind, name, labels| sink.family(&Metric { kind, pool, name, labels });
        let no_labels = Labels::default();
        let counter = |name| Counter::new(sink, &family(MetricKind::Counter, name, &[]), &no_labels);
        let gauge = |name| Gauge::new(sink, &family(MetricKind::Gauge, name, &[]), &no_labels);
        let histogram = |name| Histogram::new(sink, &family(MetricKind::Histogram, name, &[]), &no_labels);
        let labelled = |name, labels| LabelledCounter::new(sink, family(MetricKind::Counter, name, labels));
        let of_endpoints = |name| LabelledGauge::new(sink, family(MetricKind::Gauge, name, &[ENDPOINT]));
        let rejected = family(MetricKind::Counter, "rejected", &["status"]);
        let rejected =
            |code: Code| (code, Counter::new(sink, &rejected, &Labels::new(&[&code.status().to_string()])));
        let abstained = family(MetricKind::Counter, "abstained", &["reason"]);
        let abstained = |reason| Counter::new(sink, &abstained, &Labels::new(&[reason]));
        let fallback = |reason: FallbackReason| {
            let family = family(MetricKind::Counter, "fallbacks", &["reason"]);
            (reason, Counter::new(sink, &family, &Labels::new(&[reason.as_str()])))
        };
        let response_errors = family(MetricKind::Counter, "response_errors", &["side"]);
        let response_errors = [(ResponseError::Server, "server"), (ResponseError::Client, "client")]
            .map(|(error, side)| (error, Counter::new(sink, &response_errors, &Labels::new(&[side]))));
        let reasons = [FallbackReason::NoEndpoints, FallbackReason::Saturated, FallbackReason::Failed];
        let fallbacks = reasons.into_iter().filter(|_| form == Form::Native).map(fallback).collect();
        let build_info = family(MetricKind::Gauge, "build_info", &["version", "form"]);
        Gauge::new(sink, &build_info, &Labels::new(&[VERSION, form.name()])).set(1);
        Self {
            routed: counter("routed"),
            routed_stale: counter("routed_stale"),
            served_elsewhere: counter("served_elsewhere"),
            fallbacks,
            abstained_no_snapshot: abstained("no_snapshot"),
            abstained_body_too_large: abstained("body_too_large"),
            abstained_body_compressed: abstained("body_compressed"),
            rejected: [
                Code::BadRequest,
                Code::NotFound,
                Code::PreconditionFailed,
                Code::PayloadTooLarge,
                Code::UnsupportedMediaType,
                Code::ResourceExhausted,
                Code::ServiceUnavailable,
            ]
            .map(rejected),
            rejected_held_bodies: counter("rejected_held_bodies"),
            snapshots: counter("snapshots"),
            snapshot_failures: counter("snapshot_failures"),
            topology_changes: counter("topology_changes"),
            shadow_agreed: counter("shadow_agreed"),
            shadow_equal_score: counter("shadow_equal_score"),
            shadow_disagreed: counter("shadow_disagreed"),
            shadow_rejected: counter("shadow_rejected"),
            shadow_unknown_endpoint: counter("shadow_unknown_endpoint"),
            shadow_not_compared: counter("shadow_not_compared"),
            in_flight: gauge("in_flight"),
            queued: gauge("queued"),
            snapshot_age: gauge("snapshot_age_ms"),
            decision: SampledHistogram::new(histogram("decision_us")),
            first_byte: histogram("first_byte_ms"),
            response_errors,
            first_chunk_of_expected: histogram("first_chunk_of_expected_percent"),
            limits: LimitMetrics::new(sink, pool),
            plugins: PluginMetrics::new(sink, pool),
            picks: EndpointCounter::new(sink, family(MetricKind::Counter, "picks", &[ENDPOINT])),
            requests: labelled("model_requests", MODELS),
            models_pause: Period::default(),
            rewrites: labelled("rewrites", &["model_rewrite_name", TARGET_MODEL]),
            in_flight_requests: of_endpoints("endpoint_in_flight"),
            in_flight_tokens: of_endpoints("endpoint_in_flight_tokens"),
            prompt_blocks: counter("prompt_blocks"),
            prompt_blocks_matched: counter("prompt_blocks_matched"),
            encoder_cache_queries: counter("encoder_cache_queries"),
            encoder_cache_hits: counter("encoder_cache_hits"),
            encoder_cache_hit_percent: histogram("encoder_cache_hit_percent"),
            sharing: SharingMetrics::new(sink, pool),
            tokens: count_tokens.then(|| TokenMetrics::new(sink, pool)),
        }
    }

    /// Counts an error in the body of a response with status 2xx.
    pub(crate) fn count_response_error(&self, error: ResponseError) {
        if let Some((_, counter)) = self.response_errors.iter().find(|(counted, _)| *counted == error) {
            counter.increment();
        }
    }

    /// Records the time to the first output of a response.
    pub(crate) fn record_first_token(&self, assignment: &Assignment, first: &FirstToken) {
        if let Some(limits) = &assignment.limits {
            self.limits.count_first_chunk(limits, first.at.saturating_sub(assignment.at));
        }
        if let (Some(took), Some(expected)) = (first.took, assignment.expectations.first()) {
            self.record_share_of_expected(took, expected);
        }
    }

    /// Counts a complete response by its limits.
    pub(crate) fn count_limits(&self, limits: &ResponseLimits, response: &CompleteResponse) {
        self.limits.count_complete(limits, response);
    }

    /// Counts a routed request that has limits.
    pub(crate) fn count_admitted_with_limits(&self) {
        self.limits.admitted.increment();
    }

    /// Counts a request that was refused because no endpoint would keep its limits.
    pub(crate) fn count_refused_by_limits(&self) {
        self.limits.refused.increment();
    }

    /// Records the time to the first output of a stream of tokens.
    fn record_share_of_expected(&self, took: Duration, expected: &Expectation) {
        // Below a millisecond, rounding would decide.
        let percent = took.as_secs_f64() * 1e5 / expected.milliseconds().max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, which is the intent"
        )]
        self.first_chunk_of_expected.record(percent as u128);
    }

    pub(crate) fn count_rejected(&self, code: Code) {
        if let Some((_, counter)) = self.rejected.iter().find(|(counted, _)| *counted == code) {
            counter.increment();
        }
    }

    pub(crate) fn count_abstained(&self, reason: Abstention) {
        match reason {
            Abstention::NoSnapshot => self.abstained_no_snapshot.increment(),
            Abstention::BodyTooLarge => self.abstained_body_too_large.increment(),
            Abstention::BodyCompressed => self.abstained_body_compressed.increment(),
        }
    }

    /// Counts a request that another pool of the list takes.
    pub(crate) fn count_fallback(&self, reason: FallbackReason) {
        if let Some((_, counter)) = self.fallbacks.iter().find(|(counted, _)| *counted == reason) {
            counter.increment();
        }
    }

    /// Counts snapshots that arrived and can be used.
    pub fn count_snapshots(&self, count: u64) {
        self.snapshots.add(count);
    }

    /// Counts polls for a snapshot that failed.
    pub fn count_failed_polls(&self, count: u64) {
        self.snapshot_failures.add(count);
    }

    /// Counts changes of the pool's endpoints or policy.
    pub fn count_topology_changes(&self, count: u64) {
        self.topology_changes.add(count);
    }

    /// Counts messages that were exchanged with other proxies. `proxies` is the number of those whose changes arrive.
    pub fn count_sharing(&self, counts: SharingCounts, proxies: usize) {
        self.sharing.count(counts, proxies as u64);
    }

    /// Counts a decision of a shadow.
    pub(crate) fn count_shadow(&self, agreement: Agreement) {
        if agreement.agrees() {
            self.shadow_agreed.increment();
        } else {
            self.shadow_disagreed.increment();
        }
        match agreement {
            Agreement::EqualScore => self.shadow_equal_score.increment(),
            Agreement::Rejected => self.shadow_rejected.increment(),
            Agreement::UnknownEndpoint => self.shadow_unknown_endpoint.increment(),
            Agreement::Same | Agreement::Different => {}
        }
    }

    /// Counts a routed request by its models, unless they are new: clients choose their names, so a response
    /// has to show first that a server knows the model.
    pub(crate) fn count_models(&mut self, request: &RequestModels<'_>) -> RequestLabels {
        let model = if request.model.is_empty() { NO_MODEL } else { request.model };
        let models = [request.asked.unwrap_or(NO_MODEL), model];
        let new = self.requests.increment_known(&models);
        if let Some(resource) = request.rewrite {
            self.rewrites.increment(&[resource, request.model]);
        }
        RequestLabels { new, tokens: self.tokens.is_some().then(|| Labels::new(&models)) }
    }

    /// Counts a request of new models, to which a server has responded without an error.
    pub(crate) fn count_new_models(&mut self, models: &Labels) {
        self.requests.add(models, 1);
    }

    /// Forgets the models that no request used for an hour.
    pub(crate) fn age_models(&mut self, now: Duration) {
        if self.models_pause.contains(now) {
            return;
        }
        self.models_pause = Period::new(now, MODELS_STEP);
        self.requests.age();
        if let Some(tokens) = &mut self.tokens {
            tokens.age();
        }
    }

    /// Counts a response whose cached tokens were predicted, by the labels of its tokens.
    pub(crate) fn count_prediction(&mut self, models: &Labels, cached: &CachedTokens) {
        if let Some(tokens) = &mut self.tokens {
            tokens.count_prediction(models, cached);
        }
    }

    /// Counts the tokens of a response.
    pub(crate) fn count_tokens(&mut self, models: &Labels, response: &ResponseUsage) {
        if let Some(tokens) = &mut self.tokens {
            tokens.count(models, response);
        }
    }

    /// Counts a request for the endpoint with this key and `ip:port`.
    pub(crate) fn count_pick<'a>(&mut self, endpoint: u64, address: impl FnOnce() -> &'a str) {
        self.picks.increment(endpoint, address);
    }

    /// Counts the blocks of a prompt that its endpoint had been sent before.
    pub(crate) fn count_prompt(&self, prompt: PromptBlocks) {
        self.prompt_blocks.add(prompt.total.into());
        self.prompt_blocks_matched.add(prompt.matched.into());
    }

    /// Counts the images, videos and audio of a request that its endpoint had been sent before.
    pub(crate) fn count_media(&self, MediaCount { matched, total }: MediaCount) {
        if total > 0 {
            self.encoder_cache_queries.add(total.into());
            self.encoder_cache_hits.add(matched.into());
            self.encoder_cache_hit_percent.record(u128::from(matched) * 100 / u128::from(total));
        }
    }

    /// Counts the effect of a filter by lists of models.
    pub(crate) fn count_served_models(&mut self, run: &ServedModelRun) {
        self.plugins.count_served_models(run);
    }

    /// Counts a plugin's report on a response, or the reason why it has none.
    pub(crate) fn count_report(&mut self, plugin: &str, report: &Result<AttributeReport<'_>, NotReported>) {
        self.plugins.count_report(plugin, report);
    }

    /// Adds this worker's counts since the last flush to the proxy's counters.
    pub(crate) fn flush(&self) {
        let counters = [
            &self.routed,
            &self.routed_stale,
            &self.served_elsewhere,
            &self.rejected_held_bodies,
            &self.abstained_no_snapshot,
            &self.abstained_body_too_large,
            &self.abstained_body_compressed,
            &self.snapshots,
            &self.snapshot_failures,
            &self.topology_changes,
            &self.shadow_agreed,
            &self.shadow_equal_score,
            &self.shadow_disagreed,
            &self.shadow_rejected,
            &self.shadow_unknown_endpoint,
            &self.shadow_not_compared,
            &self.prompt_blocks,
            &self.prompt_blocks_matched,
            &self.encoder_cache_queries,
            &self.encoder_cache_hits,
        ];
        let rejected = self.rejected.iter().map(|(_, counter)| counter);
        let errors = self.response_errors.iter().map(|(_, counter)| counter);
        let fallbacks = self.fallbacks.iter().map(|(_, counter)| counter);
        counters.into_iter().chain(rejected).chain(errors).chain(fallbacks).for_each(Counter::flush);
        self.decision.flush();
        self.picks.flush();
        for counter in [&self.requests, &self.rewrites] {
            counter.flush();
        }
        self.sharing.flush();
        self.limits.flush();
        self.plugins.flush();
        if let Some(tokens) = &self.tokens {
            tokens.flush();
        }
    }

    /// Sets the gauges of endpoints that left the pool to zero. Every worker does it, because the worker that
    /// set them may have ended.
    pub(crate) fn remove_endpoints<'a>(&mut self, endpoints: impl Iterator<Item = &'a str> + Clone) {
        self.in_flight_requests.remove(endpoints.clone());
        self.in_flight_tokens.remove(endpoints);
    }

    /// Forgets the picks of endpoints that left the pool. `endpoints` are the keys of those that did not.
    pub(crate) fn keep_picks(&mut self, endpoints: impl Iterator<Item = u64>) {
        self.picks.keep(endpoints);
    }

    /// Sets the gauges of the loads in flight, of all workers, by the endpoints' `ip:port`.
    pub(crate) fn set_loads<'a>(&mut self, loads: impl Iterator<Item = (&'a str, Load)> + Clone) {
        self.in_flight_requests.set_all(loads.clone().map(|(endpoint, load)| (endpoint, load.requests)));
        self.in_flight_tokens.set_all(loads.map(|(endpoint, load)| (endpoint, load.tokens)));
    }
}
