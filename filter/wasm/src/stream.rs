//! One request on its way through the filter.

use std::rc::Rc;

use endpoint_picker::decision::{Abstention, Outcome};
use endpoint_picker::rejection::Rejection;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::config::UnreadBody;
use crate::decide::{self, Look, Renamed};
use crate::headers::{self, RequestHead};
use crate::pick::{Answer, Pick};
use crate::response::Response;
use crate::root::Shared;
use crate::verdict::{Act, Verdict};
use crate::{error_body, host};

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

    /// Decides at once for a request without a body, or with one that nothing depends on; waits for any other body.
    fn decide_by_headers(&mut self, has_body: bool) -> host::Result<Action> {
        let verdict = {
            let Shared { pool, stats, .. } = &*self.shared;
            decide::by_headers(&mut pool.borrow_mut(), stats, &self.head, has_body)?
        };
        verdict.map_or(Ok(Action::Pause), |verdict| self.act(verdict))
    }

    /// Decides for a request whose body is complete.
    fn decide_by_body(&mut self) -> host::Result<Action> {
        let (verdict, renamed) = {
            let Shared { pool, stats, .. } = &*self.shared;
            decide::by_whole(&mut pool.borrow_mut(), stats, &self.head)?
        };
        if let Some(renamed) = renamed {
            self.rename(renamed)?;
        }
        self.act(verdict)
    }

    /// Does what was decided.
    fn act(&mut self, verdict: Verdict) -> host::Result<Action> {
        self.progress = Progress::Decided;
        self.shared.stats.compare(verdict.shadow_agrees);
        if let Some(why) = verdict.explanation {
            if self.shared.explain.access_log {
                host::set_request_header(headers::EXPLANATION, &why)?;
            }
            if self.head.asks_why {
                self.response.headers.push((headers::EXPLANATION.to_owned(), why));
            }
        }
        match verdict.act {
            Act::Route { headers, answer_headers, pick, is_stale, .. } => {
                let stats = &self.shared.stats;
                self.response.headers.extend(answer_headers);
                self.pick = pick;
                self.response.models = verdict.models;
                self.direct(headers)?;
                stats.routed.increment();
                if is_stale {
                    stats.routed_stale.increment();
                }
                Ok(Action::Continue)
            }
            Act::Other(outcome) => {
                self.shared.stats.count(&outcome);
                match outcome {
                    Outcome::Reject(rejection) => return self.reject(&rejection),
                    Outcome::Abstain { within: Some(addresses), .. } => {
                        self.direct(headers::destination(&addresses, true))?;
                    }
                    _ => {}
                }
                Ok(Action::Continue)
            }
        }
    }

    /// Sets the headers by which the request is steered, so that no picker behind this one picks again.
    fn direct(&self, headers: impl IntoIterator<Item = (&'static str, String)>) -> host::Result<()> {
        for (name, value) in headers {
            host::set_request_header(name, &value)?;
        }
        // An operator may not have allowed this call yet. Without it only a second picker is not recognized.
        let _ = host::mark_picked(&self.shared.pool_name);
        Ok(())
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
            let Shared { pool, stats, .. } = &*self.shared;
            let look = decide::by_beginning(&mut pool.borrow_mut(), stats, &self.head, until)?;
            match look {
                Look::Enough(verdict) => return self.act(verdict),
                Look::TooLittle if until < most => {
                    // Twice as much each time, so that all looks together cost no more than two at the whole.
                    self.progress = Progress::Held { until: until.saturating_mul(2).min(most) };
                }
                Look::TooLittle if self.shared.limits.unread_body == UnreadBody::Abstain => {
                    let outcome = decide::abstain(&mut pool.borrow_mut(), Abstention::BodyTooLarge);
                    return self.act(outcome.into());
                }
                Look::TooLittle => break,
                Look::NeedsWhole => self.progress = Progress::HeldWhole,
            }
        }
        if size < most {
            return Ok(Action::Pause);
        }
        self.act(Outcome::Reject(Rejection::body_too_large(most)).into())
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
        if answer.from.is_some() && !answer.is_failure {
            self.response.awaited_since = Some(self.pick.at);
        }
        self.response.begin(&head, has_body)
    }

    /// Answers the request with an error.
    fn reject(&mut self, rejection: &Rejection) -> host::Result<Action> {
        self.progress = Progress::Answered;
        let mut headers = vec![("content-type", "application/json")];
        if let Some(reason) = rejection.reason {
            headers.push((headers::DROPPED_REASON, reason.as_str()));
        }
        headers.extend(self.response.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let body = error_body::json(rejection);
        host::send_response(rejection.code.status(), headers, &body)?;
        Ok(Action::Pause)
    }

    /// The server is done with the request, also if the client has yet to receive the end of the answer: a client that sends
    /// its next request then meets counts without this one.
    fn end(&mut self) {
        self.shared.pool.borrow_mut().end(&mut self.pick);
    }

    /// What to do after a host call failed: what the pool's failure mode says.
    fn settle(&mut self, result: host::Result<Action>) -> Action {
        result
            .or_else(|error| {
                let outcome = decide::by_failure_mode(&mut self.shared.pool.borrow_mut());
                log::error!("{error}; the request meets the failure mode: {outcome:?}");
                self.act(outcome.into())
            })
            .unwrap_or(Action::Continue)
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        match headers::take(&self.shared.pool_name, &self.shared.explain) {
            Ok(Some(head)) => self.head = head,
            Ok(None) => {
                self.progress = Progress::Decided;
                return Action::Continue;
            }
            Err(error) => {
                // Control headers may still be there, so the request must not go on.
                log::error!("{error}; the request is refused");
                let refused = self.reject(&Rejection::bad_request("the request's headers cannot be read"));
                return self.settle(refused);
            }
        }
        let result = self.decide_by_headers(!end_of_stream);
        self.settle(result)
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        match self.progress {
            Progress::Decided | Progress::Answered => Action::Continue,
            _ => {
                let result = if end_of_stream { self.decide_by_body() } else { self.hold(size) };
                self.settle(result)
            }
        }
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        match self.progress {
            Progress::Decided | Progress::Answered => Action::Continue,
            _ => {
                let result = self.decide_by_body();
                self.settle(result)
            }
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if self.progress != Progress::Answered
            && let Err(error) = self.begin_answer(!end_of_stream)
        {
            log::error!("{error}; the answer goes on as it is");
            self.response.restore = None;
        }
        if end_of_stream {
            self.end();
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, _size: usize, end_of_stream: bool) -> Action {
        self.response.pass(end_of_stream, &self.shared.stats);
        if end_of_stream {
            self.end();
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        self.response.end_with_trailers(&self.shared.stats);
        self.end();
        Action::Continue
    }
}

impl Drop for Stream {
    /// Every way a stream can end leads here, those without a whole answer too.
    fn drop(&mut self) {
        self.end();
    }
}
