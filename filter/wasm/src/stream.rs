//! One request on its way through the filter.

use std::rc::Rc;

use endpoint_picker::body::{Body, complete};
use endpoint_picker::cycle::{Headers, Request};
use endpoint_picker::decision::{Abstention, Outcome};
use endpoint_picker::packed;
use endpoint_picker::policy::{Terms, name_model};
use endpoint_picker::rejection::Rejection;
use endpoint_picker::restore::Restore;
use endpoint_picker::subset::Subset;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::config::UnreadBody;
use crate::headers::{self, RequestHead};
use crate::host;
use crate::pick::{Answer, Pick};
use crate::pool_state::{PoolState, Verdict};
use crate::response::Response;
use crate::root::Shared;
use crate::{body, error_body};

/// Where an earlier filter leaves the subset hint.
const SUBSET_NAMESPACE: &str = "envoy.lb.subset_hint";
const SUBSET_KEY: &str = "x-gateway-destination-endpoint-subset";

const CONTENT_LENGTH: &str = "content-length";

pub(crate) struct Stream {
    shared: Rc<Shared>,
    head: RequestHead,
    progress: Progress,
    pick: Pick,
    response: Response,
}

/// How far the request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Held. What of its body has come is looked at when it is as long as this.
    Held { until: usize },
    /// Held for as much of its body as may be held, because another model is to be named in it.
    HeldWhole,
    /// Decided.
    Decided,
    /// Answered by the filter itself.
    Answered,
}

/// What the beginning of a body is good for.
enum Look {
    Enough(Verdict),
    TooLittle,
    /// The body has to be changed.
    NeedsWhole,
}

/// The request with another model.
struct Renamed {
    body: Vec<u8>,
    restore: Option<Restore>,
}

impl Stream {
    pub(crate) fn new(shared: Rc<Shared>) -> Self {
        Self {
            progress: Progress::Held { until: shared.limits.peek_bytes },
            shared,
            head: RequestHead::default(),
            pick: Pick::default(),
            response: Response::default(),
        }
    }

    /// Decides for a request whose body, if it has one, is complete.
    fn decide(&mut self, has_body: bool) -> host::Result<Action> {
        if !has_body {
            let request =
                Request { headers: Headers(&self.head.all), subset: subset_hint()?, ..Request::default() };
            let verdict = self.shared.pool.borrow_mut().decide(&request, false, host::now()?);
            return self.act(verdict);
        }
        match self.read_whole()? {
            Ok((verdict, renamed)) => {
                if let Some(renamed) = renamed {
                    self.rename(renamed)?;
                }
                self.act(verdict)
            }
            Err(rejection) => self.act(Verdict::Other(Outcome::Reject(rejection))),
        }
    }

    /// Does what was decided.
    fn act(&mut self, verdict: Verdict) -> host::Result<Action> {
        self.progress = Progress::Decided;
        match verdict {
            Verdict::Route { headers, answer_headers, pick, is_stale } => {
                self.response.headers = answer_headers;
                self.pick = pick;
                for (name, value) in headers {
                    host::set_request_header(name, &value)?;
                }
                self.shared.stats.routed.increment();
                if is_stale {
                    self.shared.stats.routed_stale.increment();
                }
                Ok(Action::Continue)
            }
            Verdict::Other(outcome) => {
                self.shared.stats.count(&outcome);
                match outcome {
                    Outcome::Reject(rejection) => self.reject(&rejection),
                    _ => Ok(Action::Continue),
                }
            }
        }
    }

    fn read_whole(&self) -> host::Result<Result<(Verdict, Option<Renamed>), Rejection>> {
        let bytes = host::request_body(usize::MAX)?;
        let pool = &mut *self.shared.pool.borrow_mut();
        let headers = Headers(&self.head.all);
        let options = pool.pipeline.body_options(headers);
        let api = match pool.pipeline.api(&self.head.path) {
            Ok(api) => api,
            Err(error) => return Ok(Err(body::refusal(error))),
        };
        let body = match body::read(api, &bytes, &options) {
            Ok(body) => body,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let policy = Rc::clone(&pool.policy);
        let asked = body.model.as_deref();
        let terms = if api.names_model() {
            policy.terms(headers, asked, &mut pool.rng)
        } else {
            Ok(Terms { model: asked.unwrap_or_default(), priority: policy.priority(headers) })
        };
        let terms = match terms {
            Ok(terms) => terms,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let verdict = self.verdict(pool, &body, terms)?;
        let is_renamed =
            api.names_model() && asked != Some(terms.model) && matches!(verdict, Verdict::Route { .. });
        let renamed = is_renamed.then(|| Renamed {
            restore: Restore::new(terms.model, asked.unwrap_or_default()),
            body: name_model(&bytes, body.model_span.clone(), terms.model),
        });
        Ok(Ok((verdict, renamed)))
    }

    /// Decides by the first `length` bytes of the body, if they say enough. A body that is wrong is refused when it has come
    /// whole, if it is held for so long.
    fn look_at_beginning(&self, length: usize) -> host::Result<Look> {
        let pool = &mut *self.shared.pool.borrow_mut();
        let headers = Headers(&self.head.all);
        let Ok(api) = pool.pipeline.api(&self.head.path) else { return Ok(Look::TooLittle) };
        let text = if api.is_read() { complete(&host::request_body(length)?) } else { Some(String::new()) };
        let options = pool.pipeline.body_options(headers);
        let Some(body) = text.as_deref().and_then(|text| body::read(api, text.as_bytes(), &options).ok())
        else {
            return Ok(Look::TooLittle);
        };
        let policy = Rc::clone(&pool.policy);
        let terms = match body.model.as_deref() {
            _ if !api.names_model() => Ok(Terms { model: "", priority: policy.priority(headers) }),
            None => return Ok(Look::TooLittle),
            Some(asked) if policy.may_rename(headers, asked) => return Ok(Look::NeedsWhole),
            asked @ Some(_) => policy.terms(headers, asked, &mut pool.rng),
        };
        Ok(Look::Enough(match terms {
            Ok(terms) => self.verdict(pool, &body, terms)?,
            Err(rejection) => Verdict::Other(Outcome::Reject(rejection)),
        }))
    }

    fn verdict(&self, pool: &mut PoolState, body: &Body<'_>, terms: Terms<'_>) -> host::Result<Verdict> {
        let request = Request {
            model: terms.model,
            cache_salt: body.cache_salt.as_deref(),
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            headers: Headers(&self.head.all),
            subset: subset_hint()?,
            priority: terms.priority,
        };
        Ok(pool.decide(&request, true, host::now()?))
    }

    /// Sends another body than the client's. Its length matters where it was said; a chunked one says its own.
    fn rename(&mut self, Renamed { body, restore }: Renamed) -> host::Result<()> {
        host::set_request_body(&body)?;
        if self.head.all.iter().any(|(name, _)| name == CONTENT_LENGTH) {
            host::set_request_header(CONTENT_LENGTH, &body.len().to_string())?;
        }
        self.response.restore = restore;
        Ok(())
    }

    /// So much of the body has come, and not all.
    fn hold(&mut self, size: usize) -> host::Result<Action> {
        let most = self.shared.limits.max_held_bytes;
        while let Progress::Held { until } = self.progress
            && until <= size
        {
            match self.look_at_beginning(until)? {
                Look::Enough(verdict) => return self.act(verdict),
                Look::TooLittle if until < most => {
                    // Twice as much each time, so that all looks together cost no more than two at the whole.
                    self.progress = Progress::Held { until: until.saturating_mul(2).min(most) };
                }
                Look::TooLittle if self.shared.limits.unread_body == UnreadBody::Abstain => {
                    return self.act(Verdict::Other(Outcome::Abstain(Abstention::BodyTooLarge)));
                }
                Look::NeedsWhole | Look::TooLittle => self.progress = Progress::HeldWhole,
            }
        }
        if size < most {
            return Ok(Action::Pause);
        }
        self.act(Verdict::Other(Outcome::Reject(Rejection::body_too_large(most))))
    }

    /// The answer begins.
    fn begin_answer(&mut self, has_body: bool) -> host::Result<()> {
        let head = headers::take_answer()?;
        if self.pick.destinations.is_empty() {
            return Ok(());
        }
        let answer = Answer::of_status(head.status)?;
        let mut pool = self.shared.pool.borrow_mut();
        pool.begin_answer(&mut self.pick, &answer)?;
        self.response.headers.extend(pool.answer_headers(answer.from));
        self.response.begin(head.content_encoding.as_deref(), has_body)
    }

    /// Answers the request with an error.
    fn reject(&mut self, rejection: &Rejection) -> host::Result<Action> {
        self.progress = Progress::Answered;
        let mut headers = vec![("content-type", "application/json")];
        if let Some(reason) = rejection.reason {
            headers.push((headers::DROPPED_REASON, reason.as_str()));
        }
        let body = error_body::json(rejection);
        host::send_response(rejection.code.status(), headers, &body)?;
        Ok(Action::Pause)
    }

    fn decide_or_settle(&mut self, has_body: bool) -> Action {
        let result = self.decide(has_body);
        self.settle(result)
    }

    /// What to do after a host call failed: what the pool's failure mode says.
    fn settle(&mut self, result: host::Result<Action>) -> Action {
        result
            .or_else(|error| {
                self.progress = Progress::Decided;
                let outcome = self.shared.pool.borrow().failure_mode().without_snapshot();
                log::error!("{error}; the request meets the failure mode: {outcome:?}");
                match outcome {
                    Outcome::Reject(rejection) => self.reject(&rejection),
                    _ => Ok(Action::Continue),
                }
            })
            .unwrap_or(Action::Continue)
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        match headers::take() {
            Ok(head) => self.head = head,
            Err(error) => {
                // Control headers may still be there, so the request must not go on.
                log::error!("{error}; the request is refused");
                let refused = self.reject(&Rejection::bad_request("the request's headers cannot be read"));
                return self.settle(refused);
            }
        }
        if end_of_stream { self.decide_or_settle(false) } else { Action::Pause }
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        match self.progress {
            Progress::Decided | Progress::Answered => Action::Continue,
            _ if end_of_stream => self.decide_or_settle(true),
            _ => {
                let result = self.hold(size);
                self.settle(result)
            }
        }
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        match self.progress {
            Progress::Decided | Progress::Answered => Action::Continue,
            _ => self.decide_or_settle(true),
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if self.progress != Progress::Answered
            && let Err(error) = self.begin_answer(!end_of_stream)
        {
            log::error!("{error}; the answer goes on as it is");
            self.response.restore = None;
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, _size: usize, end_of_stream: bool) -> Action {
        self.response.pass(end_of_stream);
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        self.response.end_with_trailers();
        Action::Continue
    }
}

impl Drop for Stream {
    /// Every way a stream can end leads here.
    fn drop(&mut self) {
        self.shared.pool.borrow_mut().end(&mut self.pick);
    }
}

/// The subset hint: a list, or a comma-separated string. Any other value names no endpoint.
fn subset_hint() -> host::Result<Subset> {
    // Most requests have nothing in this namespace, and a look at it tells so at half the price of a look at the key. It also
    // tells an empty string from an absent value, which Envoy hands over alike.
    let Some(namespace) = host::filter_metadata_namespace(SUBSET_NAMESPACE)? else { return Ok(Subset::All) };
    let Some(value) = host::filter_metadata(SUBSET_NAMESPACE, SUBSET_KEY)? else {
        let is_empty = packed::strings(&namespace).is_some_and(|keys| keys.contains(&SUBSET_KEY));
        return Ok(if is_empty { Subset::from_items([]) } else { Subset::All });
    };
    Ok(Subset::from_metadata(&value))
}
