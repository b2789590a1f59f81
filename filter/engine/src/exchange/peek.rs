//! Decides by the beginning of a body, so that the rest need not be held.

use endpoint_picker::cached_prefixes;
use endpoint_picker::grpc::{PREFIX, Prefix};
use endpoint_picker::request::body::{Api, Body, ReadBody, complete, has_no_model};

use super::decider::{Decided, Decider};
use crate::config::Limits;
use crate::metrics::MetricSink;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::store::PoolStore;

/// The outcome of reading the beginning of a body.
pub(super) enum Peek {
    Decided(Decided),
    /// The beginning does not have enough. This many bytes may.
    More(usize),
    /// The model or the priority has to be replaced in the body.
    NeedsWhole,
}

impl<S: PoolStore, M: MetricSink, P: Proxy> Decider<'_, S, M, P> {
    /// Decides by the first `length` bytes of the body, or by `read_body`, if they have enough. A
    /// malformed body is refused when it has arrived completely, if it is held that long.
    pub(super) fn by_beginning(&mut self, length: usize, read_body: Option<&ReadBody<'_>>) -> Result<Peek> {
        let api = self.head.api;
        if api.reads_first_message() {
            return self.by_first_message(length);
        }
        if self.propagates_priority(api) {
            return Ok(Peek::NeedsWhole);
        }
        if self.awaits_prompt(length)? {
            return Ok(Peek::More(self.pool.config.limits.max_held_bytes));
        }
        // The length doubles each time, so all attempts together read about twice the bytes of the last one.
        let more = Peek::More(length.saturating_mul(2));
        let headers = self.head.headers();
        let needs_model = match self.other {
            None => self.view.policy().needs_model(api, headers),
            Some(_) => api.names_model() && !api.may_lack_model(),
        };
        let options = self.view.body_options(headers);
        if api == Api::ModelOnly && has_no_model(&self.body(length)?, api, &options) {
            return self.by_beginning_of_body(&Body::default(), length).map(Peek::Decided);
        }
        let Limits { peek_bytes, max_held_bytes, .. } = self.pool.config.limits;
        if length < peek_bytes {
            return Ok(Peek::More(peek_bytes));
        }
        // A prompt that has not arrived by then is not awaited: a server may do without it.
        let is_last = length >= max_held_bytes;
        let (completed, own);
        let read = if let Some(read) = read_body.and_then(|read_body| read_body.body(api, &options)) {
            read.ok()
        } else {
            // The cut body is closed first, so that the same reader can read it.
            completed = complete(self.body(length)?.into_owned(), api, &options);
            own = completed.as_deref().and_then(|bytes| Body::read_bytes(bytes, api, &options).ok());
            own.as_ref()
        };
        let unread = Body::default();
        let body = match read {
            Some(body) if body.lacks_prompt && !is_last && !api.may_lack_model() => return Ok(more),
            Some(body) => body,
            None if api.may_lack_model() && !needs_model => &unread,
            None => return Ok(more),
        };
        let asked = body.model.as_deref();
        match asked.filter(|_| api.names_model()) {
            None if needs_model => return Ok(more),
            // Another picker has renamed the model already.
            Some(asked) if self.other.is_none() && self.view.policy().may_rename(headers, asked) => {
                return Ok(Peek::NeedsWhole);
            }
            Some(_) | None => {}
        }
        self.by_beginning_of_body(body, length).map(Peek::Decided)
    }

    /// Decides by the first message of a body, of which `length` bytes have arrived. The rest of the body is
    /// not awaited: the client may send it in reply to messages of the response. A long message is decided by
    /// its beginning.
    fn by_first_message(&mut self, length: usize) -> Result<Peek> {
        let api = self.head.api;
        let options = self.view.body_options(self.head.headers());
        let bytes = self.body(length)?;
        let Some(prefix) = Prefix::read(&bytes) else { return Ok(Peek::More(PREFIX)) };
        let enough = prefix.end().min(self.pool.config.limits.peek_bytes);
        if length < enough && !prefix.is_compressed {
            return Ok(Peek::More(enough));
        }
        let read = if length < prefix.end() {
            Body::read_beginning(&bytes, api, &options)
        } else {
            Some(Body::read_bytes(&bytes, api, &options))
        };
        Ok(match read {
            None => Peek::More(length.saturating_mul(2).min(prefix.end())),
            Some(Ok(body)) if length < prefix.end() => {
                Peek::Decided(self.by_beginning_of_body(&body, length)?)
            }
            Some(Ok(body)) => Peek::Decided(self.by_body(&body, length)?),
            Some(Err(error)) => Peek::Decided(self.refused(error)),
        })
    }

    /// The same by a body whose rest was not read.
    fn by_beginning_of_body(&mut self, body: &Body<'_>, length: usize) -> Result<Decided> {
        let mut decided = self.by_body(body, length)?;
        // The usage will count the whole prompt.
        if let Decided::Made { directive, .. } = &mut decided {
            directive.drop_predictions();
        }
        Ok(decided)
    }

    /// Whether the rest of a body is awaited, because the caches of servers are searched for the whole
    /// prompt.
    fn awaits_prompt(&self, length: usize) -> Result<bool> {
        let max = self.pool.config.limits.max_held_bytes;
        let may_fit = self.head.content_length().is_none_or(|length| length <= max as u64);
        if self.other.is_some()
            || length >= max
            || !may_fit
            || !cached_prefixes::can_match(self.head.api)
            || !self.view.topology().reads_caches()
        {
            return Ok(false);
        }
        let now = self.proxy.now()?;
        Ok(self.pool.store.with_caches(|caches| caches.can_match(self.head.api, now)) == Some(true))
    }
}
