//! The values that flags may have.

use core::time::Duration;

use hyper::Uri;

/// A number with its unit, `ms` or `s`; from 1ms to one hour.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let number = |digits: &str, unit: u64| digits.parse::<u64>().ok()?.checked_mul(unit);
    let millis = match text.strip_suffix("ms") {
        Some(digits) => number(digits, 1),
        None => text.strip_suffix('s').and_then(|digits| number(digits, 1000)),
    };
    match millis {
        Some(millis @ 1..=3_600_000) => Ok(Duration::from_millis(millis)),
        _ => Err("allowed is a whole number with its unit, from 1ms to 3600s".to_owned()),
    }
}

/// A path, and a query if any, without a host.
pub(super) fn path(text: &str) -> Result<Uri, String> {
    let legal = text.starts_with('/');
    let uri = legal.then(|| text.parse::<Uri>().ok()).flatten().filter(|uri| uri.host().is_none());
    uri.ok_or_else(|| "allowed is a URL path that begins with /".to_owned())
}
