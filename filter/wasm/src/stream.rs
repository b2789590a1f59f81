//! One request: Envoy's callbacks for it.

use core::cell::RefCell;
use std::rc::Rc;

use endpoint_picker_engine::exchange::{Exchange, Flow};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::body_watch::BodyWatch;
use crate::host::{self, Envoy};
use crate::pool::Pool;

pub(crate) struct Stream {
    context: u32,
    pool: Rc<RefCell<Pool>>,
    bodies: Rc<RefCell<BodyWatch>>,
    exchange: Exchange,
    /// The request's route names another pool, or none: it passes untouched.
    is_off: bool,
}

impl Stream {
    /// The request of this context.
    pub(crate) fn new(context: u32, pool: Rc<RefCell<Pool>>, bodies: Rc<RefCell<BodyWatch>>) -> Self {
        let exchange = Exchange::new(&pool.borrow().config.limits);
        Self { context, pool, bodies, exchange, is_off: false }
    }
}

fn action(flow: Flow) -> Action {
    match flow {
        // Requests neither wait nor move here.
        Flow::Hold | Flow::Wait | Flow::Move(_) => Action::Pause,
        Flow::Continue => Action::Continue,
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        let pool = &mut self.pool.borrow_mut();
        self.is_off = pool.config.route_metadata && !host::is_route_of(&pool.config.pool);
        if self.is_off {
            return Action::Continue;
        }
        let flow = self.exchange.request_headers(pool, &mut Envoy, end_of_stream);
        if flow != Flow::Hold || end_of_stream || !self.exchange.is_held() {
            return action(flow);
        }
        let mut bodies = self.bodies.borrow_mut();
        if bodies.is_withheld() {
            return action(self.exchange.request_body_withheld(pool, &mut Envoy));
        }
        bodies.hold(self.context);
        Action::Pause
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if self.is_off {
            return Action::Continue;
        }
        if self.exchange.is_held() {
            self.bodies.borrow_mut().chunk();
        }
        action(self.exchange.request_body(&mut self.pool.borrow_mut(), &mut Envoy, size, end_of_stream))
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        if self.is_off {
            return Action::Continue;
        }
        action(self.exchange.request_trailers(&mut self.pool.borrow_mut(), &mut Envoy))
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if !self.is_off {
            self.exchange.response_headers(&mut self.pool.borrow_mut(), &mut Envoy, end_of_stream);
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, _size: usize, end_of_stream: bool) -> Action {
        if !self.is_off && (end_of_stream || !self.exchange.pass_chunk(&Envoy)) {
            self.exchange.response_body(&mut self.pool.borrow_mut(), &mut Envoy, end_of_stream);
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        if !self.is_off {
            self.exchange.response_trailers(&mut self.pool.borrow_mut(), &mut Envoy);
        }
        Action::Continue
    }
}

impl Drop for Stream {
    /// Every stream ends here, also without a complete response.
    fn drop(&mut self) {
        self.exchange.end_at(&mut self.pool.borrow_mut(), host::now);
        self.bodies.borrow_mut().end(self.context);
    }
}
