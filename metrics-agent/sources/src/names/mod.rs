//! Host names of model servers, and their addresses by DNS.

mod resolver;
pub(crate) mod table;

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

pub use resolver::Resolver;
use rustls::pki_types::DnsName;

/// Maximum number of different host names.
pub(super) const MAX_NAMES: usize = 1024;

/// A DNS name in lower case. With a dot at its end it is complete; without one the search domains of the host
/// apply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Arc<str>);

impl HostName {
    /// As it was written, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match DnsName::try_from(text) {
            Ok(_) => Ok(Self(text.to_ascii_lowercase().into())),
            Err(_) => Err(format!(
                "{text:?} is neither an IP address nor a host name; allowed in a host name are letters, digits, '-' and '_', in parts of \
                 1 to 63 bytes between dots, 253 bytes in all, and its last part is not a number"
            )),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_not_an_address_and_has_only_the_bytes_of_names() {
        for name in ["vllm-1", "vllm_1", "a.b.example.", "1a", "10.0.0.x"] {
            assert_eq!(name.parse::<HostName>().unwrap().as_str(), name);
        }
        assert_eq!("VLLM".parse::<HostName>().unwrap().as_str(), "vllm");
        let long = format!("{}.a", "a.".repeat(130));
        for text in
            ["", ".", "a..b", "-a", "a-", "10.0.0.300", "10.0.0", "a b", "a/b", "ä", "*.a", "a\0b", &long]
        {
            let refusal = text.parse::<HostName>().unwrap_err();
            assert!(refusal.contains("neither an IP address nor a host name"), "{text}: {refusal}");
        }
    }
}
