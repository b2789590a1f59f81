//! The root context: one per filter configuration and VM.

use core::time::Duration;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::stream::Stream;
use crate::worker::Worker;

/// Time between two checks for newer snapshots and changes of other VMs.
const TICK: Duration = Duration::from_millis(20);

/// Empty until Envoy hands over the configuration.
#[derive(Default)]
pub(crate) struct Root {
    worker: Option<Worker>,
}

impl Context for Root {
    fn on_http_call_response(&mut self, call: u32, headers: usize, _body_size: usize, _trailers: usize) {
        if let Some(worker) = &mut self.worker {
            worker.take_response(call, headers);
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        match Worker::start(TICK) {
            Ok(worker) => {
                self.worker = Some(worker);
                true
            }
            Err(error) => {
                log::error!("the endpoint picker's configuration is refused: {error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.tick();
            worker.refuse_withheld_bodies();
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let worker = self.worker.as_ref()?;
        Some(Box::new(Stream::new(id, worker.pool(), worker.bodies())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
