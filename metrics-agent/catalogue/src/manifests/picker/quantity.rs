//! Quantities of Kubernetes: `100`, `1k`, `500M`, `1.5Gi`, `1e6`.

use deserr::Deserr;
use serde_json::Value as Json;

use crate::manifests::fault::{Faults, quoted};

/// Suffixes and their values, without those below 1.
const SUFFIXES: [(&str, u128); 13] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("", 1),
];

/// Suffixes below 1 and how many make 1.
const PARTS: [(&str, u128); 3] = [("m", 1_000), ("u", 1_000_000), ("n", 1_000_000_000)];

/// Maximum number of digits of a number; multiplied by 10^18 it still fits 128 bits.
const MAX_DIGITS: usize = 20;

/// A number from 0, rounded up to an integer, as in Kubernetes. At most 2^63 − 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserr)]
#[deserr(error = Faults, try_from(&Json) = Self::new -> String)]
pub(super) struct Quantity(pub(super) u64);

impl Quantity {
    fn new(value: &Json) -> Result<Self, String> {
        let text = match value {
            Json::String(text) => text.clone(),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
                value.to_string()
            }
        };
        let refuse =
            || format!("{} is not a quantity; allowed is one such as 100, 1k, 500M or 1Gi", quoted(&text));
        parse(&text).map(Self).ok_or_else(refuse)
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MAX_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (times, parts) = scale(suffix)?;
    let fraction_parts = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled = digits.parse::<u128>().ok()?.checked_mul(times)?;
    let value = scaled.div_ceil(fraction_parts.checked_mul(parts)?);
    u64::try_from(value).ok().filter(|value| i64::try_from(*value).is_ok())
}

/// Factor and divisor of a number with this suffix.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    if let Some((_, times)) = SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some((*times, 1));
    }
    if let Some((_, parts)) = PARTS.iter().find(|(name, _)| *name == suffix) {
        return Some((1, *parts));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    let power = 10_u128.checked_pow(exponent.unsigned_abs()).filter(|_| exponent.unsigned_abs() <= 18)?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_kubernetes_are_read() {
        for (text, value) in [
            ("0", 0),
            ("5000", 5_000),
            ("+7", 7),
            ("1k", 1_000),
            ("500M", 500_000_000),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            (".5k", 500),
            ("2.", 2),
            ("1e6", 1_000_000),
            ("12E-1", 2),
            ("1E", 1_000_000_000_000_000_000),
            ("7Ei", 7 << 60),
            ("1500m", 2),
            ("1n", 1),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "k", ".", "-1", "1 k", "1kk", "1K", "1..5", "1e", "1e19", "0x10", "8Ei", "99E", "1.2.3"]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse(&"9".repeat(50)), None);
    }

    #[test]
    fn numbers_count_like_texts() {
        assert_eq!(Quantity::new(&serde_json::json!(5_000)), Ok(Quantity(5_000)));
        assert_eq!(Quantity::new(&serde_json::json!(1.5)), Ok(Quantity(2)));
        assert_eq!(
            Quantity::new(&serde_json::json!([])).unwrap_err(),
            "\"[]\" is not a quantity; allowed is one such as 100, 1k, 500M or 1Gi"
        );
    }
}
