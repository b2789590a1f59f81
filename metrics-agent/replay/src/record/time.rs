//! Times as text.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Seconds since 1970 of a time such as `2026-11-29T15:46:02.117Z`, or `2023-11-16 18:15:46.6805900` in UTC.
pub(super) fn seconds(time: &str) -> Option<f64> {
    let in_utc = || {
        let time: DateTime = time.parse().ok()?;
        Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    let time = time.parse::<Timestamp>().ok().or_else(in_utc)?;
    Some(time.as_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_seconds_since_1970() {
        let all = ["1970-01-01 00:00:00", "2000-02-29T12:00:00.5Z", "2026-11-29T15:46:02.117Z"].map(seconds);
        assert_eq!(all, [Some(0.0), Some(951_825_600.5), Some(1_795_967_162.117)]);
        assert_eq!(seconds("2023-11-16 18:15:46.6805900"), Some(1_700_158_546.680_59));
        for wrong in ["", "now", "2024-13-01 00:00:00", "2024-02-30 00:00:00", "2024-01-01 nan:00:00"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
