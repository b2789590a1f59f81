//! Detects that a server has restarted, and so lost its caches.

use core::time::Duration;

use metrics_agent_scrape::exposition::Process;

/// Detects restarts of one endpoint's server from its scrapes.
#[derive(Debug, Default)]
pub(crate) struct RestartWatch {
    last: Process,
    /// Whether the server has refused connections since the last scrape.
    was_gone: bool,
    /// When the server's caches were last empty, since the Unix epoch.
    since: Option<Duration>,
}

impl RestartWatch {
    /// Watches an endpoint that joined its pool at this time since the Unix epoch; `None`: it was there when
    /// the agent started.
    pub(crate) fn new(joined: Option<Duration>) -> Self {
        Self { since: joined, ..Self::default() }
    }

    /// Takes note that the server refuses connections.
    pub(crate) fn refused(&mut self) {
        self.was_gone = true;
    }

    /// Continues after another agent has scraped the server and found that its caches were last empty at this
    /// time. Values that this agent has read are out of date.
    pub(crate) fn take_over(&mut self, since: Option<Duration>) {
        *self = Self { since: self.since.max(since), ..Self::default() };
    }

    /// Evaluates a scrape at `now`, a time since the Unix epoch. Returns when the server's caches were last
    /// empty, if that is known.
    ///
    /// A server that exports its start time has restarted when that time changes, and only then, so that all
    /// agents agree. Any other server has restarted when its counter has decreased or when it has refused
    /// connections.
    pub(crate) fn scraped(&mut self, process: Process, now: Duration) -> Option<Duration> {
        let was_gone = core::mem::take(&mut self.was_gone);
        let last = core::mem::replace(&mut self.last, process);
        if let Some(started) =
            process.start_time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        {
            let has_changed = last.start_time.is_some_and(|before| process.start_time != Some(before));
            self.since = match self.since {
                // The host's clock is slow, or was set back; the time must not decrease.
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
    fn a_start_time_decides_whatever_else_happens() {
        let mut watch = RestartWatch::default();
        let seconds = Duration::from_secs;
        assert_eq!(watch.scraped(started(1_000.0), NOW), Some(seconds(1_000)));
        watch.refused();
        assert_eq!(
            watch.scraped(Process { counter: Some(0.0), ..started(1_000.0) }, NOW),
            Some(seconds(1_000))
        );
        assert_eq!(watch.scraped(started(2_000.5), NOW), Some(Duration::from_millis(2_000_500)));
        // Another agent that starts now agrees.
        assert_eq!(
            RestartWatch::default().scraped(started(2_000.5), NOW),
            Some(Duration::from_millis(2_000_500))
        );
        assert_eq!(watch.scraped(started(1_500.0), NOW), Some(NOW), "the host's clock was set back");
    }

    #[test]
    fn a_counter_that_decreases_is_a_restart() {
        let mut watch = RestartWatch::default();
        for counter in [5.0, 5.0, 9.0] {
            assert_eq!(watch.scraped(counted(counter), NOW), None);
        }
        assert_eq!(watch.scraped(counted(1.0), NOW), Some(NOW));
        assert_eq!(watch.scraped(counted(2.0), 2 * NOW), Some(NOW));
        assert_eq!(watch.scraped(Process::default(), 2 * NOW), Some(NOW), "the text lacks the counter");
    }

    #[test]
    fn a_server_without_metrics_has_restarted_when_it_refused_connections() {
        let mut watch = RestartWatch::default();
        assert_eq!(watch.scraped(Process::default(), NOW), None);
        watch.refused();
        assert_eq!(watch.scraped(Process::default(), NOW), Some(NOW));
        assert_eq!(watch.scraped(Process::default(), 2 * NOW), Some(NOW));
    }

    #[test]
    fn an_endpoint_that_joins_the_pool_has_empty_caches() {
        let mut watch = RestartWatch::new(Some(NOW));
        assert_eq!(watch.scraped(started(1_000.0), 2 * NOW), Some(NOW));
        assert_eq!(
            watch.scraped(started(1_795_000_100.0), 2 * NOW),
            Some(Duration::from_secs(1_795_000_100))
        );
    }

    #[test]
    fn a_restart_that_another_agent_has_found_is_not_found_again() {
        let mut watch = RestartWatch::default();
        assert_eq!(watch.scraped(counted(9.0), NOW), None);
        watch.take_over(Some(NOW));
        assert_eq!(watch.scraped(counted(1.0), 2 * NOW), Some(NOW));
        watch.take_over(None);
        assert_eq!(watch.scraped(counted(2.0), 2 * NOW), Some(NOW));
    }

    #[test]
    fn an_invalid_start_time_is_ignored() {
        for seconds in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert_eq!(RestartWatch::default().scraped(started(seconds), NOW), None, "{seconds}");
        }
    }
}
