//! One request on its way through the filter.

use std::rc::Rc;

use endpoint_picker::cycle::{Headers, Request};
use endpoint_picker::decision::Outcome;
use endpoint_picker::packed;
use endpoint_picker::policy::{Terms, name_model};
use endpoint_picker::rejection::Rejection;
use endpoint_picker::restore::Restore;
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

const CONTENT_LENGTH: &str = "content-length";

pub(crate) struct Stream {
    shared: Rc<Shared>,
    head: RequestHead,
    decided: bool,
    /// What the request still adds to the load of endpoints.
    charges: Vec<Charged>,
    /// Headers for the answer that tell what was decided.
    answer_headers: Vec<(String, String)>,
    /// What the answer needs if another model takes the client's place.
    restore: Option<Restore>,
}

/// The request with another model.
struct Renamed {
    body: Vec<u8>,
    restore: Option<Restore>,
}

impl Stream {
    pub(crate) fn new(shared: Rc<Shared>) -> Self {
        Self {
            shared,
            head: RequestHead::default(),
            decided: false,
            charges: Vec::new(),
            answer_headers: Vec::new(),
            restore: None,
        }
    }

    /// Decides for a request whose body, if it has one, is complete.
    fn decide(&mut self, has_body: bool) -> host::Result<Action> {
        self.decided = true;
        let (verdict, renamed) =
            if has_body { self.decide_with_body()? } else { (self.decide_without_body()?, None) };
        match verdict {
            Verdict::Route { headers, answer_headers, charges, is_stale } => {
                self.answer_headers = answer_headers;
                self.charges = charges;
                for (name, value) in headers {
                    host::set_request_header(name, &value)?;
                }
                if let Some(renamed) = renamed {
                    self.rename(renamed)?;
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

    fn decide_with_body(&self) -> host::Result<(Verdict, Option<Renamed>)> {
        let bytes = host::request_body()?;
        let headers = Headers(&self.head.all);
        let pool = &mut *self.shared.pool.borrow_mut();
        let policy = Rc::clone(&pool.policy);
        let rejected = |rejection| Ok((Verdict::Other(Outcome::Reject(rejection)), None));

        let options = pool.pipeline.body_options(headers);
        let api = match pool.pipeline.api(&self.head.path) {
            Ok(api) => api,
            Err(error) => return rejected(body::refusal(error)),
        };
        let body = match body::read(api, &bytes, &options) {
            Ok(body) => body,
            Err(rejection) => return rejected(rejection),
        };
        let asked = body.model.as_deref();
        let terms = if api.names_model() {
            policy.terms(headers, asked, &mut pool.rng)
        } else {
            Ok(Terms { model: asked.unwrap_or_default(), priority: policy.priority(headers) })
        };
        let Terms { model, priority } = match terms {
            Ok(terms) => terms,
            Err(rejection) => return rejected(rejection),
        };
        let request = Request {
            model,
            cache_salt: body.cache_salt.as_deref(),
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            headers,
            subset: subset_hint()?,
            priority,
        };
        let verdict = pool.decide(&request, true, host::now()?);
        let is_renamed =
            api.names_model() && asked != Some(model) && matches!(verdict, Verdict::Route { .. });
        let renamed = is_renamed.then(|| Renamed {
            restore: Restore::new(model, asked.unwrap_or_default()),
            body: name_model(&bytes, body.model_span.clone(), model),
        });
        Ok((verdict, renamed))
    }

    /// Sends another body than the client's. Its length matters where it was said; a chunked one says its own.
    fn rename(&mut self, Renamed { body, restore }: Renamed) -> host::Result<()> {
        host::set_request_body(&body)?;
        if self.head.all.iter().any(|(name, _)| name == CONTENT_LENGTH) {
            host::set_request_header(CONTENT_LENGTH, &body.len().to_string())?;
        }
        self.restore = restore;
        Ok(())
    }

    /// Makes the answer's headers fit what will come after them.
    fn begin_answer(&mut self, has_body: bool) -> host::Result<()> {
        let served = self.shared.pool.borrow().answer_headers(host::upstream_address)?;
        for (name, value) in self.answer_headers.drain(..).chain(served) {
            host::set_response_header(&name, &value)?;
        }
        if self.restore.is_some() {
            let encoding = host::response_header("content-encoding")?;
            if has_body && encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
                // Known only when all of it has gone out.
                host::remove_response_header(CONTENT_LENGTH)?;
            } else {
                self.restore = None;
            }
        }
        Ok(())
    }

    fn decide_or_settle(&mut self, has_body: bool) -> Action {
        let result = self.decide(has_body);
        self.settle(result)
    }

    /// What to do after a host call failed: what the pool's failure mode says.
    fn settle(&self, result: host::Result<Action>) -> Action {
        result
            .or_else(|error| {
                let outcome = self.shared.pool.borrow().failure_mode().without_snapshot();
                log::error!("{error}; the request meets the failure mode: {outcome:?}");
                match outcome {
                    Outcome::Reject(rejection) => reject(&rejection),
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
                return self.settle(reject(&Rejection::bad_request("the request's headers cannot be read")));
            }
        }
        if end_of_stream { self.decide_or_settle(false) } else { Action::Pause }
    }

    fn on_http_request_body(&mut self, _size: usize, end_of_stream: bool) -> Action {
        if self.decided {
            return Action::Continue;
        }
        if end_of_stream { self.decide_or_settle(true) } else { Action::Pause }
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        if self.decided { Action::Continue } else { self.decide_or_settle(true) }
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        self.shared.pool.borrow_mut().first_byte(&mut self.charges);
        if let Err(error) = self.begin_answer(!end_of_stream) {
            log::error!("{error}; the answer goes on as it is");
            self.restore = None;
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, _size: usize, end_of_stream: bool) -> Action {
        let Some(restore) = &mut self.restore else { return Action::Continue };
        let sent = host::response_chunk().and_then(|chunk| {
            restore.chunk(&chunk, end_of_stream).map_or(Ok(()), |bytes| host::set_response_chunk(&bytes))
        });
        if let Err(error) = sent {
            log::error!("{error}; a part of the answer goes on as it is");
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        if self.restore.as_ref().is_some_and(Restore::is_holding) {
            // Nothing can be sent any more when trailers have come.
            log::warn!("an answer ended within the name of its model; its last bytes are lost");
        }
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
