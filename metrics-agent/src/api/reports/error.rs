//! Why a report is refused.

use core::fmt;

use endpoint_picker::flow_control::MAX_BANDS;
use endpoint_picker::flow_control::MAX_TENANTS;
use endpoint_picker::plugin::MAX_FAIRNESS_ID;
use endpoint_picker_wire::REPORT_FORMAT;

use super::limits::{MAX_NAME_BYTES, MAX_STATUSES, MAX_VERSION_BYTES};

/// Why a report is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// The report's format is not this agent's.
    UnknownFormat(u32),
    /// The proxy's name has this number of bytes.
    LongName(usize),
    /// The filter's version has this number of bytes.
    LongVersion(usize),
    /// The report has rejections of this number of statuses.
    TooManyStatuses(usize),
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
    /// The report has waits that cannot be added up.
    InvalidWaits,
    /// This number of other proxies report on the pool.
    TooManyProxies(usize),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFormat(found) => write!(
                f,
                "the report has format {found}, this agent reads format {REPORT_FORMAT}: update the older side"
            ),
            Self::LongName(bytes) => {
                write!(
                    f,
                    "the proxy's name (node.id) has {bytes} bytes; at most {MAX_NAME_BYTES} are allowed"
                )
            }
            Self::LongVersion(bytes) => {
                write!(f, "the filter's version has {bytes} bytes; at most {MAX_VERSION_BYTES} are allowed")
            }
            Self::TooManyStatuses(n) => {
                write!(f, "the report has rejections of {n} statuses; at most {MAX_STATUSES} are allowed")
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
            Self::InvalidWaits => f.write_str("the report has waits that cannot be added up"),
            Self::TooManyProxies(max) => {
                write!(f, "{max} other proxies report on this pool; no more are allowed (--max-proxies)")
            }
        }
    }
}

impl core::error::Error for ReportError {}
