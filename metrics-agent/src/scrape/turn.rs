//! When tasks scrape: at turns that spread them over the interval.

use core::time::Duration;

/// Time between two turns. Waking up costs as much as a scrape, so all tasks of a turn wake up together.
const TURN: Duration = Duration::from_millis(5);

/// The nth task's offset within the interval. Steps of the golden ratio spread any number of tasks evenly,
/// the first ones as well as later ones.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a fraction of a count, and not negative"
)]
pub(super) fn nth_turn(nth: u32, interval: Duration) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let turns = interval.div_duration_f64(TURN).floor();
    TURN * ((f64::from(nth) * GOLDEN).fract() * turns) as u32
}

/// The first time from `now` on that is `turn` after the start of an interval, all as times since the agent's
/// start.
pub(super) fn from_now_on(now: Duration, turn: Duration, interval: Duration) -> Duration {
    let intervals = now.saturating_sub(turn).as_nanos().div_ceil(interval.as_nanos());
    turn + interval.saturating_mul(u32::try_from(intervals).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use metrics_agent_catalogue::scraping::MIN_INTERVAL;

    use super::*;

    #[test]
    fn turns_are_spread_over_the_interval() {
        for interval in [MIN_INTERVAL, Duration::from_millis(53), Duration::from_secs(5)] {
            let turns = u32::try_from(interval.as_millis() / TURN.as_millis()).unwrap();
            let mut endpoints = vec![0; turns as usize];
            for nth in 0..10 * turns {
                let turn = nth_turn(nth, interval);
                assert!(turn < interval && turn.subsec_millis().is_multiple_of(5), "{turn:?}");
                endpoints[usize::try_from(turn.as_millis() / TURN.as_millis()).unwrap()] += 1;
            }
            assert!(endpoints.iter().all(|n| (8..=12).contains(n)), "{interval:?}: {endpoints:?}");
        }
    }

    #[test]
    fn the_first_turn_is_within_an_interval_and_on_the_same_grid_for_all() {
        let (turn, interval) = (Duration::from_millis(15), Duration::from_millis(50));
        for (now, first) in [(0, 15), (15, 15), (16, 65), (64, 65), (65, 65), (1_000_000, 1_000_015)] {
            let found = from_now_on(Duration::from_millis(now), turn, interval);
            assert_eq!(found, Duration::from_millis(first), "at {now} ms");
        }
    }
}
