//! The configuration of the filter that resumes streams.

use core::fmt;

use serde::Deserialize;

/// The bytes that the request and the text of one stream may take. Reading a list of short messages takes up to twenty times its bytes.
const KEPT_BYTES: core::ops::RangeInclusive<usize> = 1024..=8 << 20;

/// The number of times that a stream may be resumed.
const RESUMPTIONS: core::ops::RangeInclusive<u32> = 1..=16;

/// The JSON of the filter's configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeConfig {
    /// The proxy's cluster that leads to a listener with the picker. Every request of a stream is sent there.
    pub cluster: String,
    /// The pool, as the metrics name it.
    #[serde(default)]
    pub pool: String,
    /// The number of times that a stream may be resumed.
    #[serde(default = "default_resumptions")]
    pub max_resumptions: u32,
    /// Bytes that the request and the text of one stream may take. A longer request is not resumed.
    #[serde(default = "default_kept_bytes")]
    pub max_kept_bytes: usize,
    /// Bytes that the requests and texts of all streams of the configuration may take.
    #[serde(default = "default_kept_bytes_in_all")]
    pub max_kept_bytes_in_all: usize,
    /// Bytes of a response that the proxy holds for a client that reads slower than the server writes, in addition to its
    /// connection's buffer. Envoy gives a module no way to slow the server down.
    #[serde(default = "default_unread_bytes")]
    pub max_unread_bytes: usize,
}

fn default_resumptions() -> u32 {
    2
}

fn default_kept_bytes() -> usize {
    1 << 20
}

fn default_kept_bytes_in_all() -> usize {
    256 << 20
}

fn default_unread_bytes() -> usize {
    4 << 20
}

/// Why a configuration is refused.
#[derive(Debug)]
pub enum ResumeConfigError {
    /// It is not JSON, or has a field that is unknown or of another type.
    Json(serde_json::Error),
    /// `cluster` is empty.
    NoCluster,
    /// `maxResumptions` has this value.
    Resumptions(u32),
    /// `maxKeptBytes` has this value.
    KeptBytes(usize),
    /// `maxKeptBytesInAll` has this value, which is less than the second one, `maxKeptBytes`.
    KeptBytesInAll(usize, usize),
}

impl fmt::Display for ResumeConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(f),
            Self::NoCluster => f.write_str(
                "cluster is empty; it names the cluster that leads to the listener with the picker",
            ),
            Self::Resumptions(value) => write!(
                f,
                "maxResumptions is {value}; allowed are {} to {}",
                RESUMPTIONS.start(),
                RESUMPTIONS.end()
            ),
            Self::KeptBytes(value) => {
                write!(
                    f,
                    "maxKeptBytes is {value}; allowed are {} to {}",
                    KEPT_BYTES.start(),
                    KEPT_BYTES.end()
                )
            }
            Self::KeptBytesInAll(value, per_stream) => {
                write!(
                    f,
                    "maxKeptBytesInAll is {value}; allowed are maxKeptBytes, which is {per_stream}, and more"
                )
            }
        }
    }
}

impl core::error::Error for ResumeConfigError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::NoCluster | Self::Resumptions(_) | Self::KeptBytes(_) | Self::KeptBytesInAll(..) => None,
        }
    }
}

impl ResumeConfig {
    /// Reads and checks a configuration.
    pub fn parse(json: &[u8]) -> Result<Self, ResumeConfigError> {
        let config: Self = serde_json::from_slice(json).map_err(ResumeConfigError::Json)?;
        let Self { ref cluster, max_resumptions, max_kept_bytes, max_kept_bytes_in_all, .. } = config;
        match () {
            () if cluster.is_empty() => Err(ResumeConfigError::NoCluster),
            () if !RESUMPTIONS.contains(&max_resumptions) => {
                Err(ResumeConfigError::Resumptions(max_resumptions))
            }
            () if !KEPT_BYTES.contains(&max_kept_bytes) => Err(ResumeConfigError::KeptBytes(max_kept_bytes)),
            () if max_kept_bytes_in_all < max_kept_bytes => {
                Err(ResumeConfigError::KeptBytesInAll(max_kept_bytes_in_all, max_kept_bytes))
            }
            () => Ok(config),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_enough() {
        let config = ResumeConfig::parse(br#"{"cluster": "picked"}"#).unwrap();
        assert_eq!(
            (config.cluster.as_str(), config.pool.as_str(), config.max_resumptions),
            ("picked", "", 2)
        );
        assert_eq!((config.max_kept_bytes, config.max_kept_bytes_in_all), (1 << 20, 256 << 20));
        assert_eq!(config.max_unread_bytes, 4 << 20);
    }

    #[test]
    fn a_refusal_names_the_field_its_value_and_what_is_allowed() {
        for (fields, expected) in [
            (r#""cluster": """#, "cluster is empty; it names the cluster"),
            (r#""cluster": "a", "maxResumptions": 0"#, "maxResumptions is 0; allowed are 1 to 16"),
            (r#""cluster": "a", "maxKeptBytes": 1000"#, "maxKeptBytes is 1000; allowed are 1024 to 8388608"),
            (
                r#""cluster": "a", "maxKeptBytes": 4096, "maxKeptBytesInAll": 4095"#,
                "maxKeptBytesInAll is 4095; allowed are maxKeptBytes, which is 4096, and more",
            ),
            (r#""cluster": "a", "magic": 1"#, "unknown field `magic`"),
            (r#""pool": "a""#, "missing field `cluster`"),
        ] {
            let error = ResumeConfig::parse(format!("{{{fields}}}").as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
