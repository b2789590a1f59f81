//! Decides for a request by its headers, its body or the beginning of its body.

use std::rc::Rc;

use endpoint_picker::body::{Api, Body, BodyError, complete};
use endpoint_picker::cycle::{Headers, Request};
use endpoint_picker::decision::{Abstention, Outcome};
use endpoint_picker::packed;
use endpoint_picker::policy::{ModelResolution, name_model};
use endpoint_picker::restore::Restore;
use endpoint_picker::subset::Subset;

use crate::headers::RequestHead;
use crate::host;
use crate::pool_state::PoolState;
use crate::stats::{RoutedRequest, Stats};
use crate::verdict::{Act, How, Verdict};

/// Where an earlier filter leaves the subset hint.
const SUBSET_NAMESPACE: &str = "envoy.lb.subset_hint";
const SUBSET_KEY: &str = "x-gateway-destination-endpoint-subset";

/// What the beginning of a body is good for.
pub(crate) enum Look {
    Enough(Verdict),
    TooLittle,
    /// The body has to be changed.
    NeedsWhole,
}

/// The request with another model.
pub(crate) struct Renamed {
    pub(crate) body: Vec<u8>,
    pub(crate) restore: Option<Restore>,
}

/// Decides for a request whose body, if it has one, need not be read. `None`: the body decides.
pub(crate) fn by_headers(
    pool: &mut PoolState,
    stats: &Stats,
    head: &RequestHead,
    has_body: bool,
) -> host::Result<Option<Verdict>> {
    if !has_body {
        return without_body(pool, stats, head).map(Some);
    }
    let headers = Headers(&head.all);
    let api = match api(pool, head) {
        Ok(api) if pool.policy.needs_body(api, headers) => return Ok(None),
        Ok(api) => api,
        Err(error) => return Ok(Some(Outcome::Reject(error.into()).into())),
    };
    let policy = Rc::clone(&pool.policy);
    match policy.resolve_at(api, headers, None, &mut pool.rng) {
        Ok(resolution) => verdict(pool, stats, head, &Body::default(), resolution).map(Some),
        Err(rejection) => Ok(Some(Outcome::Reject(rejection).into())),
    }
}

/// The API that the request belongs to, however its body is read.
fn api(pool: &PoolState, head: &RequestHead) -> Result<Api, BodyError> {
    let api = pool.pipeline.api(&head.path)?;
    Ok(if head.opens_tunnel { Api::Raw } else { api })
}

/// Decides for a request without a body.
fn without_body(pool: &mut PoolState, stats: &Stats, head: &RequestHead) -> host::Result<Verdict> {
    let request = Request { headers: Headers(&head.all), subset: subset_hint(), ..Request::default() };
    timed(pool, stats, &request, How { has_body: false, explains: head.explains })
}

/// Decides for a request whose body has come whole.
pub(crate) fn by_whole(
    pool: &mut PoolState,
    stats: &Stats,
    head: &RequestHead,
) -> host::Result<(Verdict, Option<Renamed>)> {
    let rejected = |rejection| Ok((Verdict::from(Outcome::Reject(rejection)), None));
    let bytes = host::request_body(usize::MAX)?;
    let headers = Headers(&head.all);
    let options = pool.body_options(headers);
    let api = match api(pool, head) {
        Ok(api) => api,
        Err(error) => return rejected(error.into()),
    };
    let body = match Body::read_bytes(&bytes, api, &options) {
        Ok(body) => body,
        Err(error) => return rejected(error.into()),
    };
    let policy = Rc::clone(&pool.policy);
    let asked = body.model.as_deref();
    let resolution = match policy.resolve_at(api, headers, asked, &mut pool.rng) {
        Ok(resolution) => resolution,
        Err(rejection) => return rejected(rejection),
    };
    let verdict = verdict(pool, stats, head, &body, resolution)?;
    let is_renamed = api.names_model()
        && asked.unwrap_or_default() != resolution.model
        && matches!(verdict.act, Act::Route { .. });
    let renamed = is_renamed.then(|| Renamed {
        restore: Restore::new(resolution.model, asked.unwrap_or_default()),
        body: name_model(&bytes, body.model_span.clone(), resolution.model),
    });
    Ok((verdict, renamed))
}

/// Decides by the first `length` bytes of the body, if they say enough. A body that is wrong is refused when it has come
/// whole, if it is held for so long.
pub(crate) fn by_beginning(
    pool: &mut PoolState,
    stats: &Stats,
    head: &RequestHead,
    length: usize,
) -> host::Result<Look> {
    let headers = Headers(&head.all);
    let Ok(api) = api(pool, head) else { return Ok(Look::TooLittle) };
    let text = complete(host::request_body(length)?);
    let options = pool.body_options(headers);
    let read = |text| Body::read(text, api, &options).ok();
    let Some(body) = text.as_deref().and_then(read) else {
        return Ok(Look::TooLittle);
    };
    let policy = Rc::clone(&pool.policy);
    let asked = body.model.as_deref();
    match asked.filter(|_| api.names_model()) {
        None if api.names_model() => return Ok(Look::TooLittle),
        Some(asked) if policy.may_rename(headers, asked) => return Ok(Look::NeedsWhole),
        _ => {}
    }
    Ok(Look::Enough(match policy.resolve_at(api, headers, asked, &mut pool.rng) {
        Ok(resolution) => verdict(pool, stats, head, &body, resolution)?,
        Err(rejection) => Verdict::from(Outcome::Reject(rejection)),
    }))
}

fn verdict(
    pool: &mut PoolState,
    stats: &Stats,
    head: &RequestHead,
    body: &Body<'_>,
    resolution: ModelResolution<'_>,
) -> host::Result<Verdict> {
    let request = Request::new(body, resolution, Headers(&head.all), subset_hint());
    let mut verdict = timed(pool, stats, &request, How { has_body: true, explains: head.explains })?;
    if let Act::Route { prompt, .. } = &verdict.act {
        stats.count_prompt(*prompt);
        let ModelResolution { model, rewrite, .. } = resolution;
        verdict.models = stats.count_models(&RoutedRequest { asked: body.model.as_deref(), model, rewrite });
    }
    Ok(verdict)
}

fn timed(pool: &mut PoolState, stats: &Stats, request: &Request<'_>, how: How) -> host::Result<Verdict> {
    let now = host::now()?;
    let verdict = pool.decide(request, how, now);
    stats.decision.record(host::now()?.saturating_sub(now).as_micros());
    if let Act::Route { pick, .. } = &verdict.act
        && let Some(address) = pick.destinations.first().and_then(|&endpoint| pool.address_of(endpoint))
    {
        stats.count_pick(address);
    }
    Ok(verdict)
}

/// Leaves a request to the proxy for this reason.
pub(crate) fn abstain(pool: &mut PoolState, reason: Abstention) -> Outcome {
    Outcome::abstain(reason, &subset_hint(), &mut pool.rng)
}

/// Decides for a request of which nothing could be read.
pub(crate) fn by_failure_mode(pool: &mut PoolState) -> Outcome {
    pool.failure_mode().without_snapshot(&subset_hint(), &mut pool.rng)
}

/// The subset hint: a list, or a comma-separated string. Any other value names no endpoint, and neither does one that Envoy
/// cannot hand over, such as a list with `null` in it.
fn subset_hint() -> Subset {
    // Most requests have nothing in this namespace, and to ask for it costs half as much as to ask for the key.
    let namespace = match host::filter_metadata_namespace(SUBSET_NAMESPACE) {
        Ok(None) => return Subset::All,
        Ok(namespace) => namespace,
        Err(_) => None,
    };
    match host::filter_metadata(SUBSET_NAMESPACE, SUBSET_KEY) {
        Ok(Some(value)) => Subset::from_metadata(&value),
        // Envoy hands an empty string over like an absent value; the namespace's keys tell them apart, if they can be read.
        Ok(None) => match namespace.as_deref().and_then(packed::strings) {
            Some(keys) if !keys.contains(&SUBSET_KEY) => Subset::All,
            _ => Subset::from_items([]),
        },
        Err(error) => {
            log::debug!("{error}; the subset hint names no endpoint");
            Subset::from_items([])
        }
    }
}
