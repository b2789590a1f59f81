//! Limits on reports.

use core::time::Duration;

/// Age from which a report is out of date, and its proxy removed.
pub(super) const MAX_AGE: Duration = Duration::from_secs(10);

/// Longest name of a proxy, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 256;

/// Maximum length of a filter's version, in bytes.
pub(super) const MAX_VERSION_BYTES: usize = 64;

/// Most statuses with rejections in a report.
pub(super) const MAX_STATUSES: usize = 32;
