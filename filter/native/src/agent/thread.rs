//! A thread that ends with its owner.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::stop::Stop;

/// A thread that runs until this value is dropped. Dropping it stops the thread and waits for its end.
#[derive(Debug)]
pub(crate) struct Thread {
    stop: Arc<Stop>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a thread. `run` returns soon after it was stopped; it is unparked then.
    pub(crate) fn start(name: &str, run: impl FnOnce(&Arc<Stop>) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::<Stop>::default();
        let own = Arc::clone(&stop);
        let handle = thread::Builder::new().name(name.to_owned()).spawn(move || run(&own))?;
        Ok(Self { stop, handle: Some(handle) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.stop();
        let Some(handle) = self.handle.take() else { return };
        // It may be parked.
        handle.thread().unpark();
        if handle.join().is_err() {
            log::error!("a thread of the endpoint picker had panicked");
        }
    }
}
