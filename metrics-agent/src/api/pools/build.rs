//! Builds a pool's status.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::statistics::Count;
use metrics_agent_catalogue::Refusal;
use metrics_agent_catalogue::grpc::GrpcPool;
use metrics_agent_kv_events::event::StorageTier;
use metrics_agent_kv_events::{KvEvents, ServerEvents};
use metrics_agent_sources::endpoints::Unresolved;
use metrics_agent_status::pool::{
    GrpcStatus, KvEventsStatus, PoolStatus, PoolTraffic, PredictionQuality, ProxyStatus, RefusedObject,
    RefusedObjects, ResponseTimes, SharingProxyStatus, SharingStatus, StoreStatus, TrafficStatus,
    UnresolvedStatus,
};
use metrics_agent_status::predictions::PredictionErrors;
use metrics_agent_status::queues::status::QueueStatus;
use metrics_agent_status::queues::waits::Waits;
use metrics_agent_status::snapshot::{Thresholds, endpoints, milliseconds, reason};

use super::state_times::StateTimes;
use crate::api::reports::Reports;
use crate::api::reports::recent::{EndpointCounts, RecentTraffic};
use crate::api::reports::store::{EndpointTraffic, PoolReports, ProxyReport};
use crate::publish::pool_publisher::PoolPublisher;
use crate::publish::snapshot::PoolSnapshot;
use crate::sharing::feed::ReaderStatus;
use crate::sharing::{LinkStatus, SharedPoolStatus};

/// A pool with its proxies' reports; `None` until it has an endpoint set.
pub(in crate::api) fn of_pool(
    publisher: &PoolPublisher,
    reports: &Reports,
    times: &StateTimes,
    now: Duration,
) -> Option<PoolStatus> {
    let published = publisher.published()?;
    let pool = &published.topology().pool;
    let reports = reports.of(pool.name());
    let mut status = of_published(&published, &reports, now);
    let keys = pool.as_slice().iter().map(Endpoint::key);
    let states = status.endpoints.iter().map(|endpoint| endpoint.state);
    let since = times.update(pool.name(), keys.clone().zip(states), now);
    let (failures, mut queues) = (publisher.scrape_failures(), publisher.unseen_queues());
    let thresholds = Thresholds::of_policy(published.topology().policy.as_ref());
    for ((endpoint, key), since) in status.endpoints.iter_mut().zip(keys).zip(since) {
        endpoint.since_ms = Some(milliseconds(since));
        let failure = failures.get(&key).map(|failure| &**failure);
        endpoint.reason = reason(endpoint, failure, thresholds);
        endpoint.unseen_queue = queues.remove(&key);
    }
    Some(status)
}

/// A published pool with its proxies' reports.
fn of_published(published: &PoolSnapshot, reports: &PoolReports, now: Duration) -> PoolStatus {
    let topology = published.topology();
    let thresholds = Thresholds::of_policy(topology.policy.as_ref());
    let sent = |endpoint: &Endpoint| {
        let key = endpoint.key();
        (!reports.proxies.is_empty()).then(|| {
            let entries = reports.proxies.values().filter_map(|report| report.endpoints.get(&key));
            traffic_to_endpoint(&reports.totals.get(&key).cloned().unwrap_or_default(), entries)
        })
    };
    let pool = &topology.pool;
    let mut endpoints = endpoints(pool, published.readings(), thresholds, sent, now);
    for (endpoint, origin) in endpoints.iter_mut().zip(published.origins()) {
        endpoint.engine = origin.engine.as_deref().map(str::to_owned);
        endpoint.kv_usage_metric = origin.kv_usage_metric.as_deref().map(str::to_owned);
    }
    let queues = reports.proxies.values().filter_map(|report| report.queue.as_ref());
    let queues = queues.map(|(queue, earlier)| (queue, earlier));
    PoolStatus {
        pool: pool.name().to_owned(),
        refusal: topology.policy.as_ref().and_then(|policy| policy.refusal.clone()),
        grpc: topology.grpc.as_ref().map(of_grpc),
        endpoints,
        unresolved: Vec::new(),
        proxies: reports.proxies.iter().map(|(proxy, report)| of_proxy(proxy, report, now)).collect(),
        unknown_pools: Vec::new(),
        is_of_snapshot: false,
        traffic: traffic_to_pool(reports.proxies.values().map(|report| &report.recent)),
        sharing: None,
        queue: QueueStatus::of(queues),
    }
}

fn of_grpc(GrpcPool { parser, readers }: &GrpcPool) -> GrpcStatus {
    GrpcStatus { parser: parser.type_name().to_owned(), reads_metrics: !readers.is_empty() }
}

/// Adds the contents of its KV caches to each endpoint whose events are followed.
pub(in crate::api) fn add_kv_events(status: &mut PoolStatus, events: &KvEvents, now: Duration) {
    for endpoint in &mut status.endpoints {
        let Ok(address) = endpoint.address.parse::<SocketAddr>() else { continue };
        endpoint.kv_events = events.of_server(address).map(|server| of_kv_events(&server, now));
    }
}

fn of_kv_events(server: &ServerEvents, now: Duration) -> KvEventsStatus {
    let mut status = KvEventsStatus {
        state: server.state(),
        problem: server.problem.clone(),
        text_problem: server.text_problem.clone(),
        caches: server.caches.len(),
        age_ms: server.updated().map(|updated| milliseconds(now.saturating_sub(updated))),
        blocks: 0,
        orphans: 0,
        tokens: BTreeMap::new(),
    };
    for (stream, contents) in &server.caches {
        status.problem = status.problem.or_else(|| stream.problem.clone());
        status.blocks += contents.blocks;
        status.orphans += contents.orphans;
        for (tier, tokens) in
            StorageTier::ALL.into_iter().zip(contents.tokens).filter(|(_, tokens)| *tokens > 0)
        {
            *status.tokens.entry(tier.as_str().to_owned()).or_default() += tokens;
        }
    }
    status
}

/// A host name with a problem.
pub(in crate::api) fn of_unresolved(unresolved: &Unresolved) -> UnresolvedStatus {
    UnresolvedStatus {
        name: unresolved.placeholder.name().to_owned(),
        host: unresolved.host.to_string(),
        addresses: unresolved.addresses,
        denied: unresolved.is_denied,
        problem: unresolved.problem.clone(),
    }
}

/// How far behind the proxies and the agent are with shared changes.
pub(in crate::api) fn of_shared(shared: SharedPoolStatus) -> SharingStatus {
    let proxy = |ReaderStatus { proxy, unread, behind, missed }| SharingProxyStatus {
        proxy,
        unread,
        behind_ms: milliseconds(behind),
        missed,
    };
    let store = |link: LinkStatus| StoreStatus {
        connected: link.is_connected,
        read_behind_ms: milliseconds(link.unread_for),
        unwritten: link.unwritten,
        write_behind_ms: milliseconds(link.unwritten_for),
    };
    SharingStatus { proxies: shared.readers.into_iter().map(proxy).collect(), store: shared.store.map(store) }
}

fn of_proxy(proxy: &str, report: &ProxyReport, now: Duration) -> ProxyStatus {
    ProxyStatus {
        proxy: proxy.to_owned(),
        age_ms: milliseconds(now.saturating_sub(report.at)),
        counts: report.counts.clone(),
        version: report.version.clone(),
        form: report.form,
        queue: report.queue.as_ref().map(|(queue, _)| queue.clone()),
    }
}

/// Traffic to one endpoint.
pub(super) fn traffic_to_endpoint<'a>(
    &EndpointCounts { picks, predictions, .. }: &EndpointCounts,
    entries: impl Iterator<Item = &'a EndpointTraffic>,
) -> TrafficStatus {
    let mut sum = TrafficStatus { picks, predictions, ..TrafficStatus::default() };
    let mut recent = EndpointCounts::default();
    for entry in entries {
        add_rate(&mut sum.picks_per_second, entry.picks_per_second);
        add_rate(&mut sum.errors_per_second, entry.errors_per_second);
        sum.requests = sum.requests.saturating_add(entry.requests);
        sum.tokens = sum.tokens.saturating_add(entry.tokens);
        sum.failing |= entry.failing;
        recent.add(&entry.recent);
    }
    let EndpointCounts { first_byte, predictions: recent, .. } = recent;
    let (predicted, cached) = (recent.predicted_cached_tokens, recent.cached_tokens);
    TrafficStatus {
        first_byte_ms: times(&first_byte),
        cached_of_predicted: (predicted > 0).then(|| cached as f64 / predicted as f64),
        predictions_by_events: quality(&recent.by_events),
        predictions_by_prompts: quality(&recent.by_prompts),
        ..sum
    }
}

fn quality(errors: &PredictionErrors) -> Option<PredictionQuality> {
    let responses = errors.responses();
    Some(PredictionQuality {
        responses,
        median_error_tokens: errors.median()?,
        wrong: (errors.wrong() as f64 / responses as f64).min(1.0),
    })
}

/// Traffic to the pool; `None`: no proxy reports.
pub(super) fn traffic_to_pool<'a>(reports: impl Iterator<Item = &'a RecentTraffic>) -> Option<PoolTraffic> {
    let mut sum: Option<PoolTraffic> = None;
    let (mut counts, mut first_token) = (Figures::default(), Waits::default());
    for report in reports {
        sum.get_or_insert_default().rates.add(&report.rates);
        counts.add(&report.counts);
        first_token.add(&report.first_token);
    }
    let mut sum = sum?;
    sum.first_token_ms = times(&first_token);
    let [blocks, matched] = [Count::PromptBlocks, Count::PromptBlocksMatched]
        .map(|count| counts.total(count.statistic()).unwrap_or(0));
    sum.prefix_hits = (blocks > 0).then(|| (matched as f64 / blocks as f64).min(1.0));
    Some(sum)
}

fn add_rate(sum: &mut Option<f64>, more: Option<f64>) {
    *sum = sum.iter().copied().chain(more).reduce(|a, b| a + b);
}

fn times(waits: &Waits) -> Option<ResponseTimes> {
    Some(ResponseTimes { p50: waits.percentile_ms(0.5)?, p95: waits.percentile_ms(0.95)? })
}

/// Maximum number of objects that are listed.
const MAX_LISTED: usize = 200;

/// The refused objects and files.
pub(in crate::api) fn of_refusals(refusals: &[Refusal]) -> RefusedObjects {
    let objects = refusals.iter().take(MAX_LISTED).map(|refusal| RefusedObject {
        object: refusal.source.to_string(),
        reasons: refusal.reasons.clone(),
        earlier_in_force: refusal.earlier_in_force,
    });
    RefusedObjects { count: refusals.len(), objects: objects.collect() }
}

#[cfg(test)]
mod tests;
