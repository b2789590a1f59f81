//! Notices that a server has restarted, and so lost its caches.

use core::time::Duration;

use crate::scrape::exposition::Process;

/// Since when one endpoint's server has the caches it has, as far as its scrapes show.
#[derive(Debug, Default)]
pub(crate) struct RestartWatch {
    last: Process,
    /// It refused connections since the last scrape.
    was_gone: bool,
    since: Option<Duration>,
}

impl RestartWatch {
    /// Watches an endpoint that came back into its pool at this time since the Unix epoch; `None`: that was there from the beginning.
    pub(crate) fn new(came_back: Option<Duration>) -> Self {
        Self { since: came_back, ..Self::default() }
    }

    /// The server refuses connections.
    pub(crate) fn gone(&mut self) {
        self.was_gone = true;
    }

    /// Takes in what a scrape at `now`, since the Unix epoch, shows. Returns since when the server has its caches, if that is known.
    ///
    /// A server that exports its start time has restarted when that changes, and only then: all agents agree on it. Another one has
    /// when its counter went back or when it was gone.
    pub(crate) fn scraped(&mut self, process: Process, now: Duration) -> Option<Duration> {
        let was_gone = core::mem::take(&mut self.was_gone);
        let last = core::mem::replace(&mut self.last, process);
        if let Some(started) =
            process.start_time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        {
            let has_changed = last.start_time.is_some_and(|before| process.start_time != Some(before));
            self.since = match self.since {
                // The host's clock is behind, or was set back; marks have to grow.
                Some(since) if started <= since => Some(if has_changed { now } else { since }),
                _ => Some(started),
            };
        } else if was_gone || process.counter.zip(last.counter).is_some_and(|(now, before)| now < before) {
            self.since = Some(now);
        }
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_795_000_000);

    fn started(seconds: f64) -> Process {
        Process { start_time: Some(seconds), counter: Some(1.0) }
    }

    fn counted(counter: f64) -> Process {
        Process { start_time: None, counter: Some(counter) }
    }

    #[test]
    fn a_start_time_is_the_mark_whatever_else_happens() {
        let mut watch = RestartWatch::default();
        let seconds = Duration::from_secs;
        assert_eq!(watch.scraped(started(1_000.0), NOW), Some(seconds(1_000)));
        watch.gone();
        assert_eq!(
            watch.scraped(Process { counter: Some(0.0), ..started(1_000.0) }, NOW),
            Some(seconds(1_000))
        );
        assert_eq!(watch.scraped(started(2_000.5), NOW), Some(Duration::from_millis(2_000_500)));
        // Another agent that begins now agrees.
        assert_eq!(
            RestartWatch::default().scraped(started(2_000.5), NOW),
            Some(Duration::from_millis(2_000_500))
        );
        assert_eq!(watch.scraped(started(1_500.0), NOW), Some(NOW), "the host's clock was set back");
    }

    #[test]
    fn a_counter_that_went_back_is_a_restart() {
        let mut watch = RestartWatch::default();
        for counter in [5.0, 5.0, 9.0] {
            assert_eq!(watch.scraped(counted(counter), NOW), None);
        }
        assert_eq!(watch.scraped(counted(1.0), NOW), Some(NOW));
        assert_eq!(watch.scraped(counted(2.0), 2 * NOW), Some(NOW));
        assert_eq!(watch.scraped(Process::default(), 2 * NOW), Some(NOW), "the text lacks the counter");
    }

    #[test]
    fn a_server_that_was_gone_and_says_nothing_else_has_restarted() {
        let mut watch = RestartWatch::default();
        assert_eq!(watch.scraped(Process::default(), NOW), None);
        watch.gone();
        assert_eq!(watch.scraped(Process::default(), NOW), Some(NOW));
        assert_eq!(watch.scraped(Process::default(), 2 * NOW), Some(NOW));
    }

    #[test]
    fn an_endpoint_that_came_back_into_the_pool_counts_from_then_on() {
        let mut watch = RestartWatch::new(Some(NOW));
        assert_eq!(watch.scraped(started(1_000.0), 2 * NOW), Some(NOW));
        assert_eq!(
            watch.scraped(started(1_795_000_100.0), 2 * NOW),
            Some(Duration::from_secs(1_795_000_100))
        );
    }

    #[test]
    fn a_start_time_that_is_none_is_passed_over() {
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(RestartWatch::default().scraped(started(seconds), NOW), None, "{seconds}");
        }
    }
}
