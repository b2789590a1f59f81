//! One request on its way through the filter.

use std::rc::Rc;

use endpoint_picker::body::Options;
use endpoint_picker::cycle::{Headers, Request};
use endpoint_picker::decision::Outcome;
use endpoint_picker::packed;
use endpoint_picker::rejection::Rejection;
use endpoint_picker::subset::Subset;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::headers::{self, RequestHead};
use crate::host;
use crate::pool_state::{Charged, Verdict};
use crate::root::Shared;
use crate::{body, error_body};

/// Where an earlier filter leaves the subset hint.
const SUBSET_NAMESPACE: &str = "envoy.lb.subset_hint";
const SUBSET_KEY: &str = "x-gateway-destination-endpoint-subset";

pub(crate) struct Stream {
    shared: Rc<Shared>,
    head: RequestHead,
    decided: bool,
    /// What the request still adds to the load of endpoints.
    charges: Vec<Charged>,
}

impl Stream {
    pub(crate) fn new(shared: Rc<Shared>) -> Self {
        Self { shared, head: RequestHead::default(), decided: false, charges: Vec::new() }
    }

    /// Decides for a request whose body, if it has one, is complete.
    fn decide(&mut self, has_body: bool) -> host::Result<Action> {
        self.decided = true;
        let verdict = if has_body { self.decide_with_body()? } else { self.decide_without_body()? };
        match verdict {
            Verdict::Route { headers, charges } => {
                self.charges = charges;
                for (name, value) in headers {
                    host::set_request_header(name, &value)?;
                }
                self.shared.stats.routed.increment();
                Ok(Action::Continue)
            }
            Verdict::Other(outcome) => {
                self.shared.stats.count(&outcome);
                match outcome {
                    Outcome::Reject(rejection) => reject(&rejection),
                    _ => Ok(Action::Continue),
                }
            }
        }
    }

    fn decide_without_body(&self) -> host::Result<Verdict> {
        let headers = Headers(&self.head.all);
        let request = Request { headers, subset: subset_hint()?, ..Request::default() };
        Ok(self.shared.pool.borrow_mut().decide(&request, false, host::now()?))
    }

    fn decide_with_body(&self) -> host::Result<Verdict> {
        let bytes = host::request_body()?;
        let mut pool = self.shared.pool.borrow_mut();
        let options = Options { keep_bytes: pool.pipeline.max_prompt_bytes(), ..Options::default() };
        let api = pool.pipeline.api(&self.head.path).map_err(body::refusal);
        let body = match api.and_then(|api| body::read(api, &bytes, &options)) {
            Ok(body) => body,
            Err(rejection) => return Ok(Verdict::Other(Outcome::Reject(rejection))),
        };
        let request = Request {
            model: body.model.as_deref().unwrap_or_default(),
            cache_salt: body.cache_salt.as_deref(),
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            headers: Headers(&self.head.all),
            subset: subset_hint()?,
            priority: 0,
        };
        Ok(pool.decide(&request, true, host::now()?))
    }

    /// What to do after a host call failed: go on without a decision rather than lose the request.
    fn or_continue(result: host::Result<Action>) -> Action {
        result.unwrap_or_else(|error| {
            log::error!("{error}; the request goes on without a choice");
            Action::Continue
        })
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
                return Self::or_continue(reject(&Rejection::bad_request(
                    "the request's headers cannot be read",
                )));
            }
        }
        if end_of_stream { Self::or_continue(self.decide(false)) } else { Action::Pause }
    }

    fn on_http_request_body(&mut self, _size: usize, end_of_stream: bool) -> Action {
        if self.decided {
            return Action::Continue;
        }
        if end_of_stream { Self::or_continue(self.decide(true)) } else { Action::Pause }
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        if self.decided { Action::Continue } else { Self::or_continue(self.decide(true)) }
    }

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        self.shared.pool.borrow_mut().first_byte(&mut self.charges);
        Action::Continue
    }
}

impl Drop for Stream {
    /// Every way a stream can end leads here.
    fn drop(&mut self) {
        self.shared.pool.borrow_mut().end(&mut self.charges);
    }
}

/// Answers the request with an error.
fn reject(rejection: &Rejection) -> host::Result<Action> {
    let mut headers = vec![("content-type", "application/json")];
    if let Some(reason) = rejection.reason {
        headers.push((headers::DROPPED_REASON, reason.as_str()));
    }
    host::send_response(rejection.code.status(), headers, &error_body::json(rejection))?;
    Ok(Action::Pause)
}

/// The subset hint: a list, or a comma-separated string. Any other value is no hint.
fn subset_hint() -> host::Result<Subset> {
    let Some(value) = host::filter_metadata(SUBSET_NAMESPACE, SUBSET_KEY)? else {
        // Envoy hands over an empty string as it does an absent value; only the namespace's keys tell them apart.
        let namespace = host::filter_metadata_namespace(SUBSET_NAMESPACE)?.unwrap_or_default();
        let is_empty = packed::strings(&namespace).is_some_and(|keys| keys.contains(&SUBSET_KEY));
        return Ok(if is_empty { Subset::from_items([]) } else { Subset::All });
    };
    if let Some(items) = packed::strings(&value) {
        return Ok(Subset::from_items(items));
    }
    Ok(core::str::from_utf8(&value).map_or(Subset::All, Subset::from_comma_separated))
}
