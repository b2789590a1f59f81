//! Encoded readings, which are decoded only where they differ from the last ones.

use core::time::Duration;

use endpoint_picker::pool::reading::{Reading, SAME_READING};
use prost::bytes::Bytes;
use prost::encoding::decode_varint;
use prost::{DecodeError, Message};

use crate::{SnapshotError, check_format, reading_into_core, v1};

/// The keys of the first two fields of [`v1::Reading`], which are varints: `ready` and `age_ms`.
const READY: u8 = 1 << 3;
const AGE: u8 = 2 << 3;

/// Decodes a snapshot but for its readings, and checks its format.
pub fn decode_partly(bytes: Bytes) -> Result<v1::EncodedSnapshot, SnapshotError> {
    let snapshot = v1::EncodedSnapshot::decode(bytes).map_err(SnapshotError::Malformed)?;
    check_format(snapshot.format)?;
    Ok(snapshot)
}

/// The reading of this message, which arrived at `now`, and whether it differs from `last`, the reading that
/// its endpoint had, with its message. One that is merely older is the last one.
///
/// Nothing but the time is decoded of a reading that differs in it alone.
pub fn next_reading(
    last: Option<(&[u8], &Reading)>,
    message: &[u8],
    now: Duration,
) -> Result<(Reading, bool), DecodeError> {
    if let Some((last_message, last)) = last
        && let (Some(known), Some(parts)) = (Parts::of(last_message), Parts::of(message))
        && known.others == parts.others
        && let Some(known) = last.updated
    {
        let updated = now.saturating_sub(Duration::from_millis(parts.age));
        let is_newer = updated.abs_diff(known) >= SAME_READING;
        let updated = Some(if is_newer { updated } else { known });
        return Ok((Reading { updated, ..last.clone() }, is_newer));
    }
    Ok((reading_into_core(v1::Reading::decode(message)?, now), true))
}

/// An encoded reading whose age is where this crate writes it: behind `ready`, which is left out where it is
/// false. Others are decoded each time.
struct Parts<'a> {
    age: u64,
    /// The bytes in front of the age, and behind it.
    others: [&'a [u8]; 2],
}

impl<'a> Parts<'a> {
    fn of(message: &'a [u8]) -> Option<Self> {
        let is_ready = message.first() == Some(&READY);
        let (before, mut rest) = message.split_at_checked(if is_ready { 2 } else { 0 })?;
        if *rest.split_off_first()? != AGE {
            return None;
        }
        let age = decode_varint(&mut rest).ok()?;
        Some(Self { age, others: [before, rest] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_000);

    fn message(age_ms: Option<u64>, running: u64) -> v1::Reading {
        v1::Reading {
            ready: true,
            age_ms,
            running: Some(running),
            kv_usage: Some(0.5),
            cached_since_ms: Some(7),
            ..v1::Reading::default()
        }
    }

    /// The reading of a message some time after the first one, if it is another.
    fn next(first: &v1::Reading, message: &v1::Reading, later_ms: u64) -> Option<Reading> {
        let last = reading_into_core(first.clone(), NOW);
        let now = NOW + Duration::from_millis(later_ms);
        let (first, message) = (first.encode_to_vec(), message.encode_to_vec());
        let (reading, is_other) = next_reading(Some((&first, &last)), &message, now).unwrap();
        assert!(is_other || reading == last, "{reading:?}");
        is_other.then_some(reading)
    }

    #[test]
    fn a_reading_whose_age_alone_grows_is_the_last_one() {
        let first = message(Some(3), 5);
        assert_eq!(next(&first, &message(Some(203), 5), 200), None);
        // With less delay on the way, and with its age in more bytes.
        assert_eq!(next(&first, &message(Some(227), 5), 200), None);
        assert_eq!(next(&first, &message(Some(100_003), 5), 100_000), None);
        let unready = |age_ms| v1::Reading { ready: false, ..message(Some(age_ms), 5) };
        assert_eq!(next(&unready(3), &unready(53), 50), None);
    }

    #[test]
    fn all_others_are_those_that_their_messages_have() {
        let first = message(Some(3), 5);
        for newer in [
            message(Some(3), 5),
            message(Some(203), 6),
            message(None, 5),
            v1::Reading { ready: false, ..message(Some(203), 5) },
            v1::Reading { cache_tokens: Some(1), ..message(Some(203), 5) },
            v1::Reading::default(),
        ] {
            let now = NOW + Duration::from_millis(200);
            assert_eq!(next(&first, &newer, 200), Some(reading_into_core(newer.clone(), now)), "{newer:?}");
        }
        let never = message(None, 5);
        assert_eq!(next(&never, &never, 200), Some(reading_into_core(never.clone(), NOW)));
        assert_eq!(next_reading(None, &never.encode_to_vec(), NOW).unwrap().0.running, Some(5));
    }

    #[test]
    fn bytes_that_are_no_reading_are_an_error() {
        let last = Reading { updated: Some(NOW), ..Reading::default() };
        for bytes in [&b"x"[..], &[AGE], &[AGE, 0xff], &[READY], &[READY, 1, AGE, 1, 0xff]] {
            assert!(next_reading(None, bytes, NOW).is_err(), "{bytes:?}");
            assert!(next_reading(Some((&[AGE, 1], &last)), bytes, NOW).is_err(), "{bytes:?}");
        }
    }
}
