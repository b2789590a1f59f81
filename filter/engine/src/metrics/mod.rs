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
use endpoint_picker::decision::{Abstention, MediaCount, PromptBlocks};
use endpoint_picker::fallback::FallbackReason;
use endpoint_picker::period::Period;
use endpoint_picker::pool::load::Load;
use endpoint_picker::request::session::{SessionSource, SessionTurn};
use endpoint_picker::response::reader::ResponseError;
use endpoint_picker::state::latency::Expectation;
use endpoint_picker::state::prefix::CachedTokens;
use endpoint_picker_wire::statistics::{
    ABSTAINED, BUILD_INFO, Count, DECISION, ENCODER_CACHE_HIT_PERCENT, ENDPOINT_IN_FLIGHT,
    ENDPOINT_IN_FLIGHT_TOKENS, FALLBACKS, FIRST_BYTE, FIRST_CHUNK_OF_EXPECTED, IN_FLIGHT, MODEL_REQUESTS,
    PICKS, QUEUED, REJECTED, RESPONSE_ERRORS, REWRITES, SESSION_TURNS, SESSIONS, SHARING_PROXIES,
    SNAPSHOT_AGE,
};

use plugins::PluginMetrics;
use series::{EndpointCounter, FixedCounters, LabelledCounter, LabelledGauge};
use sink::PoolSink;
use tokens::TokenMetrics;

use crate::form::{Form, VERSION};

pub use series::MAX_SERIES;
pub use sharing::SharingCounts;
pub(crate) use sink::{Counter, Gauge, Histogram, SampledHistogram};
pub use sink::{Labels, Metric, MetricSink, OTHER};
pub(crate) use tokens::ResponseUsage;
pub use totals::Totals;

/// The value for a request without a model.
const NO_MODEL: &str = "none";

/// Time between two steps of the age of models. The third step without a request forgets a model, after 60 to
/// 90 minutes.
const MODELS_STEP: Duration = Duration::from_secs(30 * 60);

/// All metrics of one pool, as one worker counts them.
#[derive(Debug)]
pub struct Metrics<M: MetricSink> {
    /// The counters without labels, in the order of [`Count::ALL`].
    counters: [Counter<M>; Count::ALL.len()],
    pub(crate) rejected: FixedCounters<M, Code>,
    pub(crate) abstained: FixedCounters<M, Abstention>,
    /// None in the wasm filter, where no request moves.
    pub(crate) fallbacks: FixedCounters<M, FallbackReason>,
    pub(crate) response_errors: FixedCounters<M, ResponseError>,
    pub(crate) sessions: FixedCounters<M, SessionSource>,
    pub(crate) session_turns: FixedCounters<M, SessionSource>,
    pub(crate) in_flight: Gauge<M>,
    pub(crate) queued: Gauge<M>,
    pub(crate) snapshot_age: Gauge<M>,
    sharing_proxies: Gauge<M>,
    pub(crate) decision: SampledHistogram<M>,
    pub(crate) first_byte: Histogram<M>,
    first_chunk_of_expected: Histogram<M>,
    encoder_cache_hit_percent: Histogram<M>,
    pub(crate) plugins: PluginMetrics<M>,
    pub(crate) picks: EndpointCounter<M>,
    /// Requests of models to which a server has responded without an error.
    requests: LabelledCounter<M>,
    /// Pause before models are [aged](Self::age_models).
    models_pause: Period,
    rewrites: LabelledCounter<M>,
    in_flight_requests: LabelledGauge<M>,
    in_flight_tokens: LabelledGauge<M>,
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
        let sink = &PoolSink { sink, pool };
        let rejected = [
            Code::BadRequest,
            Code::NotFound,
            Code::PreconditionFailed,
            Code::PayloadTooLarge,
            Code::UnsupportedMediaType,
            Code::ResourceExhausted,
            Code::ServiceUnavailable,
        ]
        .map(|code| (code, code.status().to_string()));
        let abstained = [
            (Abstention::NoSnapshot, "no_snapshot"),
            (Abstention::BodyTooLarge, "body_too_large"),
            (Abstention::BodyCompressed, "body_compressed"),
        ];
        let fallbacks = [FallbackReason::NoEndpoints, FallbackReason::Saturated, FallbackReason::Failed];
        let fallbacks = fallbacks.into_iter().filter(|_| form == Form::Native);
        let fallbacks = fallbacks.map(|reason| (reason, reason.as_str()));
        let errors = [(ResponseError::Server, "server"), (ResponseError::Client, "client")];
        let sources = SessionSource::ALL.map(|source| (source, source.as_str()));
        Gauge::new(sink.sink, &sink.family(&BUILD_INFO), &Labels::new(&[VERSION, form.name()])).set(1);
        Self {
            counters: Count::ALL.map(|count| sink.counter(count.statistic())),
            rejected: FixedCounters::new(sink, &REJECTED, rejected),
            abstained: FixedCounters::new(sink, &ABSTAINED, abstained),
            fallbacks: FixedCounters::new(sink, &FALLBACKS, fallbacks),
            response_errors: FixedCounters::new(sink, &RESPONSE_ERRORS, errors),
            sessions: FixedCounters::new(sink, &SESSIONS, sources),
            session_turns: FixedCounters::new(sink, &SESSION_TURNS, sources),
            in_flight: sink.gauge(&IN_FLIGHT),
            queued: sink.gauge(&QUEUED),
            snapshot_age: sink.gauge(&SNAPSHOT_AGE),
            sharing_proxies: sink.gauge(&SHARING_PROXIES),
            decision: SampledHistogram::new(sink.histogram(&DECISION)),
            first_byte: sink.histogram(&FIRST_BYTE),
            first_chunk_of_expected: sink.histogram(&FIRST_CHUNK_OF_EXPECTED),
            encoder_cache_hit_percent: sink.histogram(&ENCODER_CACHE_HIT_PERCENT),
            plugins: PluginMetrics::new(sink),
            picks: EndpointCounter::new(sink, &PICKS),
            requests: LabelledCounter::new(sink, &MODEL_REQUESTS),
            models_pause: Period::default(),
            rewrites: LabelledCounter::new(sink, &REWRITES),
            in_flight_requests: LabelledGauge::new(sink, &ENDPOINT_IN_FLIGHT),
            in_flight_tokens: LabelledGauge::new(sink, &ENDPOINT_IN_FLIGHT_TOKENS),
            tokens: count_tokens.then(|| TokenMetrics::new(sink)),
        }
    }

    /// Counts one.
    pub fn count(&self, count: Count) {
        self.add(count, 1);
    }

    /// Counts this number.
    pub fn add(&self, count: Count, number: u64) {
        if let Some(counter) = self.counters.get(count as usize) {
            counter.add(number);
        }
    }

    /// The count that all workers have flushed.
    pub(crate) fn value(&self, count: Count) -> u64 {
        self.counters.get(count as usize).map_or(0, Counter::value)
    }

    /// Records the time to the first output of a stream of tokens.
    pub(crate) fn record_share_of_expected(&self, took: Duration, expected: &Expectation) {
        // Below a millisecond, rounding would decide.
        let percent = took.as_secs_f64() * 1e5 / expected.milliseconds().max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, which is the intent"
        )]
        self.first_chunk_of_expected.record(percent as u128);
    }

    /// Counts messages that were exchanged with other proxies. `proxies` is the number of those whose changes
    /// arrive.
    pub fn count_sharing(&self, counts: SharingCounts, proxies: usize) {
        let SharingCounts { sent, received, unreadable, failed } = counts;
        self.add(Count::SharingSent, sent);
        self.add(Count::SharingReceived, received);
        self.add(Count::SharingUnreadable, unreadable);
        self.add(Count::SharingFailures, failed);
        self.sharing_proxies.set(proxies as u64);
    }

    /// Counts a decision of a shadow.
    pub(crate) fn count_shadow(&self, agreement: Agreement) {
        self.count(if agreement.agrees() { Count::ShadowAgreed } else { Count::ShadowDisagreed });
        match agreement {
            Agreement::EqualScore => self.count(Count::ShadowEqualScore),
            Agreement::Rejected => self.count(Count::ShadowRejected),
            Agreement::UnknownEndpoint => self.count(Count::ShadowUnknownEndpoint),
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

    /// Counts the blocks of a prompt that its endpoint had been sent before.
    pub(crate) fn count_prompt(&self, prompt: PromptBlocks) {
        self.add(Count::PromptBlocks, prompt.total.into());
        self.add(Count::PromptBlocksMatched, prompt.matched.into());
    }

    /// Counts a request of a session, and of a turn after the first the blocks that its endpoint had been
    /// sent before.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_session(&self, session: &SessionTurn, prompt: PromptBlocks) {
        if session.is_continued {
            self.session_turns.increment(session.source);
            self.add(Count::SessionBlocks, prompt.total.into());
            self.add(Count::SessionBlocksMatched, prompt.matched.into());
        } else {
            self.sessions.increment(session.source);
        }
    }

    /// Counts the images, videos and audio of a request that its endpoint had been sent before.
    pub(crate) fn count_media(&self, MediaCount { matched, total }: MediaCount) {
        if total > 0 {
            self.add(Count::EncoderCacheQueries, total.into());
            self.add(Count::EncoderCacheHits, matched.into());
            self.encoder_cache_hit_percent.record(u128::from(matched) * 100 / u128::from(total));
        }
    }

    /// Adds this worker's counts since the last flush to the proxy's counters.
    pub(crate) fn flush(&self) {
        self.counters.iter().for_each(Counter::flush);
        self.rejected.flush();
        self.abstained.flush();
        self.fallbacks.flush();
        self.response_errors.flush();
        self.sessions.flush();
        self.session_turns.flush();
        self.decision.flush();
        self.picks.flush();
        for counter in [&self.requests, &self.rewrites] {
            counter.flush();
        }
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

    /// Sets the gauges of the loads in flight, of all workers, by the endpoints' `ip:port`.
    pub(crate) fn set_loads<'a>(&mut self, loads: impl Iterator<Item = (&'a str, Load)> + Clone) {
        self.in_flight_requests.set_all(loads.clone().map(|(endpoint, load)| (endpoint, load.requests)));
        self.in_flight_tokens.set_all(loads.map(|(endpoint, load)| (endpoint, load.tokens)));
    }
}
