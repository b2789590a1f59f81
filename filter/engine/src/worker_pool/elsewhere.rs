//! Detects that the proxy does not follow the picks.

use core::time::Duration;

use endpoint_picker::period::Period;

/// Growth of the count is logged again only when it has not grown for this time.
const QUIET: Duration = Duration::from_secs(600);

/// Watches the count of requests that were served elsewhere, of all workers.
#[derive(Debug, Default)]
pub(crate) struct ElsewhereWatch {
    /// The count at the last call; `None` before the first one.
    last: Option<u64>,
    quiet: Period,
}

impl ElsewhereWatch {
    /// Takes the current count. Returns its growth since the last call if it is to be logged: when the count
    /// had not grown for [`QUIET`].
    pub(crate) fn watch(&mut self, count: u64, now: Duration) -> Option<u64> {
        // A worker that begins to watch does not log earlier requests.
        let more = count.saturating_sub(self.last.replace(count)?);
        if more == 0 {
            return None;
        }
        let is_quiet = self.quiet.contains(now);
        self.quiet = Period::new(now, QUIET);
        (!is_quiet).then_some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_count_that_grows_is_logged_once_and_again_after_a_pause() {
        let mut watch = ElsewhereWatch::default();
        let mut now = Duration::from_secs(1_000_000);
        assert_eq!(watch.watch(7, now), None, "another worker has logged these");
        for (count, expected) in [(7, None), (9, Some(2)), (10, None), (10, None)] {
            now += SECOND;
            assert_eq!(watch.watch(count, now), expected, "{count}");
        }
        now += QUIET / 2;
        assert_eq!(watch.watch(11, now), None, "it goes on");
        now += QUIET;
        assert_eq!(watch.watch(11, now), None);
        assert_eq!(watch.watch(14, now), Some(3));
    }
}
