//! How many requests a server of the pool works on at once.

use core::time::Duration;

use crate::pool::reading::Reading;

/// Readings in a row that have to show a full server.
///
/// One does not: `waiting` of vLLM also counts the requests that came during the current step, which begin
/// with the next one.
const ROW: u8 = 4;

/// Share of the KV cache in use from which requests may wait for memory, and not for a place. It is lower
/// than the share from which costs count memory, because a wrong number of places lasts, and a missed
/// chance to learn it does not.
const MAX_KV_USAGE: f64 = 0.9;

/// Time without a waiting request after which the number is forgotten: the servers may have got another
/// limit.
const MAX_AGE: Duration = Duration::from_secs(60);

/// The readings of one endpoint that may show a full server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row {
    readings: u8,
    running: Option<u64>,
}

impl Row {
    /// Without readings.
    pub(super) const NEW: Self = Self { readings: 0, running: None };
}

/// The places of a server: requests that run at once. All servers of a pool have the same number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndpointPlaces {
    count: Option<u64>,
    /// When a request last waited.
    waited: Duration,
}

impl EndpointPlaces {
    /// The number; `None` while no server was seen full.
    pub(super) fn count(&self) -> Option<u64> {
        self.count
    }

    /// Takes in a new reading of an endpoint that was taken at this time.
    pub(super) fn read(&mut self, row: &mut Row, reading: &Reading, taken: Duration) {
        let (waiting, running) = (reading.waiting.unwrap_or(0), reading.running.unwrap_or(0));
        let before = row.running.replace(running);
        let has_memory = reading.kv_usage.is_none_or(|usage| usage < MAX_KV_USAGE);
        let is_full =
            waiting > 0 && running > 0 && before.is_some_and(|before| running <= before) && has_memory;
        row.readings = if is_full { row.readings.saturating_add(1) } else { 0 };
        if waiting > 0 {
            self.waited = self.waited.max(taken);
        }
        self.count = match self.count {
            Some(_) if taken.saturating_sub(self.waited) > MAX_AGE => None,
            Some(count) => Some(count.max(running)),
            None => (row.readings >= ROW).then_some(running),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn read(
        places: &mut EndpointPlaces,
        row: &mut Row,
        waiting: u64,
        running: u64,
        kv: f64,
        at: u64,
    ) -> Option<u64> {
        let (waiting, running, kv_usage) = (Some(waiting), Some(running), Some(kv));
        let reading = Reading { waiting, running, kv_usage, ..Reading::default() };
        places.read(row, &reading, Duration::from_millis(at));
        places.count()
    }

    /// The places after readings of (waiting, running, KV usage), one every 50 ms.
    fn after(readings: &[(u64, u64, f64)]) -> Option<u64> {
        let (mut places, mut row) = (EndpointPlaces::default(), Row::default());
        for (&(waiting, running, kv), at) in readings.iter().zip(1..) {
            read(&mut places, &mut row, waiting, running, kv, 50 * at);
        }
        places.count()
    }

    const FULL: (u64, u64, f64) = (3, 16, 0.5);

    #[test]
    fn requests_that_came_during_a_step_do_not_show_a_full_server() {
        assert_eq!(after(&[(0, 5, 0.1), (2, 5, 0.1)]), None);
        assert_eq!(
            after(&[(2, 5, 0.1), (1, 6, 0.1), (3, 7, 0.1), (1, 9, 0.1), (2, 10, 0.1), (1, 12, 0.1)]),
            None
        );
        assert_eq!(
            after(&[(2, 5, 0.1), (2, 5, 0.1), (2, 5, 0.1), (0, 5, 0.1), (2, 5, 0.1), (2, 5, 0.1)]),
            None
        );
    }

    #[test]
    fn four_readings_in_a_row_with_a_queue_that_does_not_begin_show_one() {
        assert_eq!(after(&[FULL; 4]), None, "whether the first one rises is not known");
        assert_eq!(after(&[FULL; 5]), Some(16));
        assert_eq!(after(&[(3, 16, 0.95); 9]), None, "they wait for memory");
        assert_eq!(after(&[(3, 0, 0.5); 9]), None, "a server that runs nothing is not full");
    }

    #[test]
    fn a_server_that_runs_more_has_more_places() {
        let mut readings = vec![FULL; 5];
        readings.extend([(0, 24, 0.5), (9, 20, 0.5), (9, 20, 0.5), (9, 20, 0.5), (9, 20, 0.5), (9, 20, 0.5)]);
        assert_eq!(after(&readings), Some(24));
    }

    #[test]
    fn the_number_is_forgotten_after_a_minute_in_which_nothing_waited() {
        let (mut places, mut row) = (EndpointPlaces::default(), Row::default());
        for at in 1..=5 {
            read(&mut places, &mut row, 3, 16, 0.5, 50 * at);
        }
        assert_eq!(read(&mut places, &mut row, 0, 9, 0.5, 60_000), Some(16));
        assert_eq!(read(&mut places, &mut row, 1, 9, 0.5, 60_100), Some(16));
        assert_eq!(read(&mut places, &mut row, 0, 9, 0.5, 120_050), Some(16));
        assert_eq!(read(&mut places, &mut row, 0, 9, 0.5, 120_200), None);
    }

    #[test]
    fn hostile_readings_do_no_more_than_others() {
        assert_eq!(after(&[(u64::MAX, u64::MAX, f64::NAN); 9]), None);
        assert_eq!(after(&[(u64::MAX, 7, f64::NEG_INFINITY); 5]), Some(7));
    }
}
