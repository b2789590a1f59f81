//! The limit on connections.

/// The limit on connections. Warns once when it is reached, and again only after half of the connections were free.
pub(super) struct ConnectionLimit {
    max: usize,
    is_reached: bool,
}

impl ConnectionLimit {
    pub(super) fn new(max: usize) -> Self {
        Self { max, is_reached: false }
    }

    /// Whether one more than `open` connections may be open.
    pub(super) fn allows_more_than(&self, open: usize) -> bool {
        open < self.max
    }

    /// Takes the number of open connections after a change.
    pub(super) fn update(&mut self, open: usize) {
        if open >= self.max && !self.is_reached {
            self.is_reached = true;
            tracing::warn!("all {} connections are in use (--max-connections); new ones wait", self.max);
        } else if open <= self.max / 2 {
            self.is_reached = false;
        }
    }
}
