//! Limits of the reports of proxies. Any client of the agent can send them, so everything in them is bounded.

use core::fmt;

use endpoint_picker::flow_control::{MAX_BANDS, MAX_TENANTS};
use endpoint_picker::plugin::MAX_FAIRNESS_ID;

/// Maximum length of the name of a proxy, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Maximum length of a filter's version, in bytes.
pub const MAX_VERSION_BYTES: usize = 64;

/// Maximum number of counts of a statistic by status or reason, and of all statistics without a field of
/// their own.
pub const MAX_COUNTS: usize = 32;

/// Maximum length of a reason, in bytes.
pub const MAX_REASON_BYTES: usize = 64;

/// Why a report is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// The proxy's name has this number of bytes.
    LongName(usize),
    /// The filter's version has this number of bytes.
    LongVersion(usize),
    /// The report has this number of counts of a statistic.
    TooManyCounts(usize),
    /// The report has a queue of this number of bands.
    TooManyBands(usize),
    /// The report has the band of this priority more than once.
    RepeatedBand(i32),
    /// The report has a queue of this number of tenants.
    TooManyTenants(usize),
    /// The report has a fairness id of this number of bytes.
    LongTenant(usize),
    /// The report has a fairness id more than once in the band of this priority.
    RepeatedTenant(i32),
    /// The report has a reason of this number of bytes.
    LongReason(usize),
    /// The report has waits that cannot be added up.
    InvalidWaits,
    /// The report has errors of predictions that cannot be added up.
    InvalidErrors,
    /// This number of other proxies report on the pool.
    TooManyProxies(usize),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongName(bytes) => {
                write!(
                    f,
                    "the proxy's name (node.id) has {bytes} bytes; at most {MAX_NAME_BYTES} are allowed"
                )
            }
            Self::LongVersion(bytes) => {
                write!(f, "the filter's version has {bytes} bytes; at most {MAX_VERSION_BYTES} are allowed")
            }
            Self::TooManyCounts(n) => {
                write!(f, "the report has {n} counts of a statistic; at most {MAX_COUNTS} are allowed")
            }
            Self::TooManyBands(n) => {
                write!(f, "the report has a queue of {n} bands; at most {MAX_BANDS} are allowed")
            }
            Self::RepeatedBand(priority) => write!(f, "the report has the band of priority {priority} twice"),
            Self::TooManyTenants(n) => {
                write!(f, "the report has a queue of {n} tenants; at most {MAX_TENANTS} are allowed")
            }
            Self::LongTenant(bytes) => {
                write!(
                    f,
                    "the report has a fairness id of {bytes} bytes; at most {MAX_FAIRNESS_ID} are allowed"
                )
            }
            Self::RepeatedTenant(priority) => {
                write!(f, "the report has a fairness id twice in the band of priority {priority}")
            }
            Self::LongReason(bytes) => {
                write!(f, "the report has a reason of {bytes} bytes; at most {MAX_REASON_BYTES} are allowed")
            }
            Self::InvalidWaits => f.write_str("the report has waits that cannot be added up"),
            Self::InvalidErrors => {
                f.write_str("the report has errors of predicted tokens that cannot be added up")
            }
            Self::TooManyProxies(max) => {
                write!(f, "{max} other proxies report on this pool; no more are allowed (--max-proxies)")
            }
        }
    }
}

impl core::error::Error for ReportError {}
