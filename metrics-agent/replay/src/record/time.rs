//! Times as text.

/// Seconds since 1970 of a time such as `2023-11-16 18:15:46.6805900` or `2026-11-29T15:46:02.117Z`.
pub(super) fn seconds(time: &str) -> Option<f64> {
    let (date, clock) = time.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u16>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut clock = clock.trim_end_matches('Z').splitn(3, ':');
    let mut part = || clock.next()?.parse::<f64>().ok().filter(|number| (0.0..1e3).contains(number));
    let (hour, minute, second) = (part()?, part()?, part()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(((days(year.into(), month.into(), day.into()) * 24.0 + hour) * 60.0 + minute) * 60.0 + second)
}

/// Days since 1970 of a date in the Gregorian calendar. Years begin in March, so that a leap day is the last
/// one, and months of 153 days for each five follow each other.
fn days(year: i32, month: i32, day: i32) -> f64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    f64::from(year * 365 + leap_days + of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_seconds_since_1970() {
        let all = ["1970-01-01 00:00:00", "2000-02-29T12:00:00.5Z", "2026-11-29T15:46:02.117Z"].map(seconds);
        assert_eq!(all, [Some(0.0), Some(951_825_600.5), Some(1_795_967_162.117)]);
        let days = ["2024-02-28 00:00:00", "2024-03-01 00:00:00"].map(seconds);
        assert_eq!(days.map(|time| time.map(|seconds| seconds / 86_400.0)), [Some(19_781.0), Some(19_783.0)]);
        for wrong in ["", "now", "2024-13-01 00:00:00", "2024-01-01 00:00", "2024-01-01 nan:00:00"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
