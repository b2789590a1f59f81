//! The proxies of a simulation.

use super::pickers::Picker;
use std::time::Duration;

/// The proxies between clients and servers, each with its picker.
pub trait Proxies {
    /// The pickers.
    fn pickers(&mut self) -> &mut [Picker];

    /// The way of the next request to one of this many servers.
    fn way(&mut self, servers: usize) -> Way;

    /// When each proxy that shares sends its changes for the first time.
    fn first_syncs(&mut self) -> Vec<Duration>;

    /// Lets a proxy send its changes and read the other proxies' changes. Returns the time until it does so
    /// again.
    fn sync(&mut self, proxy: usize, now: Duration) -> Duration;

    /// How much later than at the client a chunk arrives at its proxy; `None`: chunks are never late.
    fn lateness(&mut self) -> Option<Duration>;
}

/// The way of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the proxy of this number, whose picker chooses the server.
    Proxy(usize),
    /// Past all proxies to the server of this number. It is not measured.
    Past(usize),
}

/// One proxy that gets every request.
impl Proxies for Picker {
    fn pickers(&mut self) -> &mut [Picker] {
        core::slice::from_mut(self)
    }

    fn way(&mut self, _: usize) -> Way {
        Way::Proxy(0)
    }

    fn first_syncs(&mut self) -> Vec<Duration> {
        Vec::new()
    }

    fn sync(&mut self, _: usize, _: Duration) -> Duration {
        Duration::MAX
    }

    fn lateness(&mut self) -> Option<Duration> {
        None
    }
}
