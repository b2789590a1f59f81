//! The turns of clients that may not write: however many there are, they leave processor time for the proxies
//! that may.

use core::time::Duration;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Requests of clients that may not write that begin within [`TURN`]. A fleet of 256 proxies that only read
/// gets each snapshot.
const TURNS: usize = 256;

/// The interval in which the agent scrapes servers, unless a flag says otherwise.
const TURN: Duration = Duration::from_millis(50);

/// A limit on the rate of requests, whose turn comes in the order of their arrival.
#[derive(Debug)]
pub(super) struct Turns(Arc<Semaphore>);

impl Turns {
    /// Waits for a turn, if too many requests have had one a short time ago.
    pub(super) async fn take(&self) {
        let Ok(turn) = Arc::clone(&self.0).acquire_owned().await else { return };
        tokio::spawn(async move {
            sleep(TURN).await;
            drop(turn);
        });
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(TURNS)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, timeout};

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_the_rate_wait_for_the_next_turn() {
        let turns = Turns::default();
        let begin = Instant::now();
        for round in 0..3 {
            for _ in 0..TURNS {
                turns.take().await;
            }
            assert_eq!(begin.elapsed(), TURN * round);
        }
        // A client that leaves before its turn takes none.
        timeout(TURN / 2, turns.take()).await.unwrap_err();
        for _ in 0..TURNS {
            turns.take().await;
        }
        assert_eq!(begin.elapsed(), TURN * 3);
    }
}
