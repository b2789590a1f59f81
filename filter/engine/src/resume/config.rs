//! The setting `resumeStreams`.

use core::fmt;

use serde::Deserialize;

/// The bytes that the request and the text of one stream may take. Reading a list of short messages takes up
/// to twenty times its bytes.
const KEPT_BYTES: core::ops::RangeInclusive<usize> = 1024..=8 << 20;

/// The number of times that a stream may be resumed.
const RESUMPTIONS: core::ops::RangeInclusive<u32> = 1..=16;

/// The seconds that a server may pause within a stream.
const PAUSE_SECONDS: core::ops::RangeInclusive<u64> = 1..=3600;

/// The JSON of the setting.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeConfig {
    /// The proxy's cluster that connects to the address in the header
    /// [`DESTINATION`](crate::proxy::headers::DESTINATION).
    pub cluster: String,
    /// The number of times that a stream may be resumed.
    #[serde(default = "default_resumptions")]
    pub max_resumptions: u32,
    /// Bytes that the request and the text of one stream may take. A longer request is not resumed.
    #[serde(default = "default_kept_bytes")]
    pub max_kept_bytes: usize,
    /// Bytes that the requests and texts of all streams of the pool may take.
    #[serde(default = "default_kept_bytes_in_all")]
    pub max_kept_bytes_in_all: usize,
    /// Bytes of a response that the proxy holds for a client that reads slower than the server writes, in
    /// addition to its connection's buffer. Envoy gives a module no way to slow the server down.
    #[serde(default = "default_unread_bytes")]
    pub max_unread_bytes: usize,
    /// Seconds without a byte of a response after which its server has failed; absent: no limit. Longer than
    /// the longest wait for a first token.
    pub max_pause_seconds: Option<u64>,
    /// Whether sampled requests with tools, reasoning or a grammar get a seed, so that another server can
    /// generate their responses again.
    #[serde(default = "default_add_seeds")]
    pub add_seeds: bool,
}

fn default_add_seeds() -> bool {
    true
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

/// Why the setting is refused.
#[derive(Debug)]
pub enum ResumeConfigError {
    /// `cluster` is empty.
    NoCluster,
    /// `maxResumptions` has this value.
    Resumptions(u32),
    /// `maxKeptBytes` has this value.
    KeptBytes(usize),
    /// `maxKeptBytesInAll` has this value, which is less than the second one, `maxKeptBytes`.
    KeptBytesInAll(usize, usize),
    /// `maxPauseSeconds` has this value.
    PauseSeconds(u64),
}

impl fmt::Display for ResumeConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCluster => f.write_str(
                "resumeStreams.cluster is empty; it names an ORIGINAL_DST cluster that takes the address from the header \
                 x-gateway-destination-endpoint",
            ),
            Self::Resumptions(value) => write!(
                f,
                "resumeStreams.maxResumptions is {value}; allowed are {} to {}",
                RESUMPTIONS.start(),
                RESUMPTIONS.end()
            ),
            Self::KeptBytes(value) => {
                write!(
                    f,
                    "resumeStreams.maxKeptBytes is {value}; allowed are {} to {}",
                    KEPT_BYTES.start(),
                    KEPT_BYTES.end()
                )
            }
            Self::KeptBytesInAll(value, per_stream) => {
                write!(
                    f,
                    "resumeStreams.maxKeptBytesInAll is {value}; allowed are maxKeptBytes, which is {per_stream}, and more"
                )
            }
            Self::PauseSeconds(value) => write!(
                f,
                "resumeStreams.maxPauseSeconds is {value}; allowed are {} to {}",
                PAUSE_SECONDS.start(),
                PAUSE_SECONDS.end()
            ),
        }
    }
}

impl core::error::Error for ResumeConfigError {}

impl ResumeConfig {
    /// The setting, if its values are allowed.
    ///
    /// # Errors
    /// A value is outside its range.
    pub fn checked(self) -> Result<Self, ResumeConfigError> {
        let Self { max_resumptions, max_kept_bytes, max_kept_bytes_in_all, .. } = self;
        match self.max_pause_seconds {
            _ if self.cluster.is_empty() => Err(ResumeConfigError::NoCluster),
            _ if !RESUMPTIONS.contains(&max_resumptions) => {
                Err(ResumeConfigError::Resumptions(max_resumptions))
            }
            _ if !KEPT_BYTES.contains(&max_kept_bytes) => Err(ResumeConfigError::KeptBytes(max_kept_bytes)),
            _ if max_kept_bytes_in_all < max_kept_bytes => {
                Err(ResumeConfigError::KeptBytesInAll(max_kept_bytes_in_all, max_kept_bytes))
            }
            Some(pause) if !PAUSE_SECONDS.contains(&pause) => Err(ResumeConfigError::PauseSeconds(pause)),
            _ => Ok(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<ResumeConfig, ResumeConfigError> {
        serde_json::from_str::<ResumeConfig>(json).unwrap().checked()
    }

    #[test]
    fn a_cluster_is_enough() {
        let config = read(r#"{"cluster": "picked"}"#).unwrap();
        assert_eq!((config.cluster.as_str(), config.max_resumptions), ("picked", 2));
        assert_eq!((config.max_kept_bytes, config.max_kept_bytes_in_all), (1 << 20, 256 << 20));
        assert_eq!((config.max_unread_bytes, config.max_pause_seconds), (4 << 20, None));
    }

    #[test]
    fn a_refusal_names_the_field_its_value_and_what_is_allowed() {
        for (fields, expected) in [
            (r#""cluster": """#, "resumeStreams.cluster is empty; it names an ORIGINAL_DST cluster"),
            (r#""cluster": "a", "maxResumptions": 0"#, "maxResumptions is 0; allowed are 1 to 16"),
            (r#""cluster": "a", "maxKeptBytes": 1000"#, "maxKeptBytes is 1000; allowed are 1024 to 8388608"),
            (
                r#""cluster": "a", "maxKeptBytes": 4096, "maxKeptBytesInAll": 4095"#,
                "maxKeptBytesInAll is 4095; allowed are maxKeptBytes, which is 4096, and more",
            ),
            (r#""cluster": "a", "maxPauseSeconds": 0"#, "maxPauseSeconds is 0; allowed are 1 to 3600"),
        ] {
            let error = read(&format!("{{{fields}}}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
