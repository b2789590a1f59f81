//! Whether a server has ever shown that requests wait there.

use endpoint_picker::pool::reading::Reading;
use metrics_agent_status::unseen_queue::UnseenQueue;

/// The queue of one endpoint's server, as readings have shown it.
#[derive(Debug, Default)]
pub(super) struct QueueWatch {
    busy_readings: u64,
    most_running: u64,
    is_reported: bool,
    has_waited: bool,
}

impl QueueWatch {
    /// Takes note of a reading.
    pub(super) fn note(&mut self, reading: &Reading) {
        let running = reading.running.unwrap_or(0);
        self.busy_readings = self.busy_readings.saturating_add(u64::from(running >= UnseenQueue::BUSY));
        self.most_running = self.most_running.max(running);
        self.is_reported |= reading.waiting.is_some();
        self.has_waited |= reading.waiting.is_some_and(|waiting| waiting > 0);
    }

    /// The queue, if none was seen in many busy readings; `scorers` are the pool's that score by it.
    pub(super) fn unseen(&self, scorers: &[String]) -> Option<UnseenQueue> {
        let &Self { busy_readings, most_running, is_reported, has_waited } = self;
        let is_unseen = !has_waited && busy_readings >= UnseenQueue::MANY_READINGS;
        is_unseen.then(|| UnseenQueue { busy_readings, most_running, is_reported, scorers: scorers.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(waiting: Option<u64>, running: u64) -> Reading {
        Reading { waiting, running: Some(running), ..Reading::default() }
    }

    /// The queue after this number of readings each.
    fn after(readings: &[(u64, Reading)]) -> Option<UnseenQueue> {
        let mut watch = QueueWatch::default();
        for (times, reading) in readings {
            (0..*times).for_each(|_| watch.note(reading));
        }
        watch.unseen(&[])
    }

    #[test]
    fn a_queue_is_unseen_after_many_busy_readings_without_a_waiting_request() {
        let (many, busy) = (UnseenQueue::MANY_READINGS, UnseenQueue::BUSY);
        assert_eq!(after(&[(many - 1, reading(Some(0), busy))]), None);
        assert_eq!(after(&[(10 * many, reading(Some(0), busy - 1))]), None, "it had little work");
        assert_eq!(after(&[(many, Reading { waiting: Some(0), ..Reading::default() })]), None);
        let found = |most_running, is_reported| {
            Some(UnseenQueue { busy_readings: many, most_running, is_reported, scorers: vec![] })
        };
        let idle = (9, reading(Some(0), 0));
        let busier = [(1, reading(Some(0), 15)), idle, (many - 1, reading(Some(0), busy))];
        assert_eq!(after(&busier), found(15, true));
        assert_eq!(after(&[(many, reading(None, busy))]), found(busy, false));
    }

    #[test]
    fn one_waiting_request_at_any_time_shows_the_queue() {
        let many = UnseenQueue::MANY_READINGS;
        let (quiet, waiting) = (reading(Some(0), 9), reading(Some(1), 1));
        assert_eq!(after(&[(many, quiet.clone()), (1, waiting.clone()), (many, quiet.clone())]), None);
        assert_eq!(after(&[(1, waiting), (many, quiet)]), None);
    }
}
