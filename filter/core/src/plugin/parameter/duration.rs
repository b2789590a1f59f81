//! Durations as Go writes them: `200ms`, `1m30s`, `1.5h`.

use core::fmt;
use core::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// Reads a parameter, for `#[serde(deserialize_with)]`.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| {
        Error::custom(format_args!(
            "{text:?} is not a duration; allowed are numbers with a unit such as 200ms, 1.5s, 1m30s"
        ))
    })
}

/// Reads a parameter that Go writes as a number of nanoseconds, or that is a duration.
pub(crate) fn deserialize_nanoseconds<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    struct Nanoseconds;
    impl Visitor<'_> for Nanoseconds {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of nanoseconds, or a duration such as 200ms, 1.5s, 1m30s")
        }

        fn visit_u64<E: Error>(self, nanoseconds: u64) -> Result<Duration, E> {
            Ok(Duration::from_nanos(nanoseconds))
        }

        fn visit_i64<E: Error>(self, nanoseconds: i64) -> Result<Duration, E> {
            Ok(Duration::from_nanos(nanoseconds.try_into().unwrap_or_default()))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
            parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
        }
    }
    deserializer.deserialize_any(Nanoseconds)
}

/// A sequence of non-negative decimal numbers, each with a unit: ns, us, µs, ms, s, m, h; or `0`. `None`: no
/// duration.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(unit_at);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * scale;
        rest = tail;
    }
    if text.is_empty() { None } else { Duration::try_from_secs_f64(seconds).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn go_durations_are_read() {
        let cases =
            [("200ms", 200), ("0", 0), ("1.5s", 1_500), ("1m30s", 90_000), ("2h", 7_200_000), ("5000us", 5)];
        for (text, milliseconds) in cases {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn a_number_counts_nanoseconds() {
        for (json, nanoseconds) in
            [("300000000000", 300_000_000_000), ("0", 0), ("-1", 0), (r#""5us""#, 5_000)]
        {
            let read = deserialize_nanoseconds(&mut serde_json::Deserializer::from_str(json));
            assert_eq!(read.unwrap(), Duration::from_nanos(nanoseconds), "{json}");
        }
        for json in ["1.5", "3e11", "true", "null", r#""soon""#] {
            let read = deserialize_nanoseconds(&mut serde_json::Deserializer::from_str(json));
            assert!(read.is_err(), "{json}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "ms", "-1s", "1 s", "1x", "1..5s", "1e3s", "99999999999999999999h"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
