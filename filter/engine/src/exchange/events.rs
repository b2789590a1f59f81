//! The events of a request, as the proxy reports them.

use endpoint_picker::decision::rejection::Rejection;

use super::head::{RequestHead, RequestOwner};
use super::steps::{Exchange, Flow, Progress};
use crate::config::Mode;
use crate::metrics::MetricSink;
use crate::proxy::headers::CONTROL;
use crate::proxy::{Proxy, ProxyError};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::store::PoolStore;

impl Exchange {
    /// The request's head has arrived.
    pub fn request_headers<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        end_of_stream: bool,
    ) -> Flow {
        if pool.config.mode == Mode::Shadow {
            return self.shadow_head(pool, proxy, !end_of_stream);
        }
        match RequestHead::take(proxy, &pool.config.pool, &pool.config.explain) {
            Ok(RequestOwner::Own(head)) => self.head = head,
            Ok(RequestOwner::AnotherPicker) => {
                self.progress = Progress::Decided;
                return Flow::Continue;
            }
            Err(error) => {
                // Control headers may still be there, so the request must not go on.
                log::error!("{error}; the request is refused");
                let rejection = Rejection::bad_request("the request's headers cannot be read");
                let refused = self.reject(proxy, &rejection);
                return self.settle(pool, proxy, refused);
            }
        }
        let result = self.decide_by_head(pool, proxy, !end_of_stream);
        self.settle(pool, proxy, result)
    }

    /// The request's body has grown to this many bytes, or has arrived completely.
    pub fn request_body<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        size: usize,
        end_of_stream: bool,
    ) -> Flow {
        if self.shadowed.is_some() {
            return self.shadow_chunk(pool, proxy, end_of_stream);
        }
        if self.place.waits() {
            self.place.has_whole_body |= end_of_stream;
            return Flow::Wait;
        }
        if !self.is_held() {
            return Flow::Continue;
        }
        let result = if end_of_stream {
            self.decide_by_whole_body(pool, proxy)
        } else {
            self.decide_by_beginning(pool, proxy, size)
        };
        self.settle(pool, proxy, result)
    }

    /// The request's trailers have arrived, and so has its whole body.
    pub fn request_trailers<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
    ) -> Flow {
        if self.shadowed.is_some() {
            return self.shadow_trailers(pool, proxy);
        }
        if self.place.waits() {
            self.place.has_whole_body = true;
            return Flow::Wait;
        }
        if !self.is_held() {
            return Flow::Continue;
        }
        let result = self.decide_by_whole_body(pool, proxy);
        self.settle(pool, proxy, result)
    }

    /// The head of the answer has arrived.
    pub fn response_headers<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        end_of_stream: bool,
    ) {
        let begun = if self.is_answered() {
            self.explain_overflow(pool, proxy, !end_of_stream)
        } else {
            self.begin_answer(pool, proxy, !end_of_stream)
        };
        if let Err(error) = begun {
            log::error!("{error}; the answer passes unchanged");
            self.response.restore = None;
        }
        if end_of_stream {
            self.end(pool);
        }
    }

    /// A chunk of the answer's body has arrived.
    pub fn response_body<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        end_of_stream: bool,
    ) {
        self.response.read_chunk(proxy, &mut pool.metrics, end_of_stream);
        if end_of_stream {
            self.end(pool);
        }
    }

    /// The answer's trailers have arrived.
    pub fn response_trailers<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &impl Proxy,
    ) {
        self.response.end_with_trailers(proxy, &mut pool.metrics);
        self.end(pool);
    }

    /// The shell failed in the middle of an event, with the engine in any state. A request that is still held gets what the pool's
    /// failure mode decides; it loses the headers that only a picker may set.
    pub fn fail<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        error: ProxyError,
    ) -> Flow {
        if pool.config.mode == Mode::Shadow || !self.is_held() {
            return Flow::Continue;
        }
        for name in CONTROL {
            let _ = proxy.remove_request_header(name);
        }
        self.leave_queue(&pool.store);
        self.settle(pool, proxy, Err(error))
    }

    /// The server is done with the request: nothing of it is in flight any more, also if the client has yet to receive the end of the
    /// answer. A client that sends its next request then meets counts without this one. Later calls change nothing.
    pub fn end<S: PoolStore, M: MetricSink>(&mut self, pool: &mut WorkerPool<S, M>) {
        self.assignment.end(&mut pool.store, self.response.served.take());
        self.leave_queue(&pool.store);
    }
}
