//! Fields of the endpoints file.

use core::fmt;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::names::HostName;

/// A part of an endpoint's name.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(pub(super) String);

/// An optional name.
pub(super) struct Namespace(pub(super) String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let is_valid =
            !name.is_empty() && name.len() <= 253 && !name.contains(|c: char| c == '/' || c.is_control());
        if is_valid {
            Ok(Self(name))
        } else {
            Err(format!(
                "{name:?} is not a valid name; allowed are 1 to 253 bytes without / and control characters"
            ))
        }
    }
}

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Name::deserialize(deserializer).map(|name| Self(name.0))
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// Maximum length of a label's key, as for Kubernetes: a prefix, a slash and a name.
const MAX_KEY_BYTES: usize = 253 + 1 + 63;

/// Maximum length of a label's value: more than the 63 bytes of Kubernetes, because annotations are labels
/// here too.
pub(crate) const MAX_VALUE_BYTES: usize = 1024;

/// Maximum number of labels of an endpoint.
pub(crate) const MAX_LABELS: usize = 64;

/// Refuses labels above the limits, because all labels travel to every proxy.
pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), String> {
    let found = labels.len();
    if found > MAX_LABELS {
        return Err(format!("{found} labels; allowed are at most {MAX_LABELS}"));
    }
    for (key, value) in labels {
        if !(1..=MAX_KEY_BYTES).contains(&key.len()) {
            let start: String = key.chars().take(MAX_KEY_BYTES).collect();
            let found = key.len();
            return Err(format!(
                "the key {start:?} has {found} bytes; allowed are 1 to {MAX_KEY_BYTES} bytes"
            ));
        }
        let found = value.len();
        if found > MAX_VALUE_BYTES {
            return Err(format!(
                "the value of {key:?} has {found} bytes; allowed are 0 to {MAX_VALUE_BYTES} bytes"
            ));
        }
    }
    Ok(())
}

/// IPv4, IPv6 in brackets or not, or a host name.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Address {
    Ip(IpAddr),
    Host(HostName),
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(&text);
        bare.parse().map(Self::Ip).or_else(|_| text.parse().map(Self::Host))
    }
}

/// A number or its text.
pub(super) struct PortNumber(pub(super) NonZeroU16);

impl<'de> Deserialize<'de> for PortNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortVisitor;
        impl Visitor<'_> for PortVisitor {
            type Value = PortNumber;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a port, 1 to 65535, as a number or a string")
            }

            fn visit_u64<E: de::Error>(self, port: u64) -> Result<PortNumber, E> {
                let number = u16::try_from(port).ok().and_then(NonZeroU16::new);
                number.map(PortNumber).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(port), &self))
            }

            fn visit_str<E: de::Error>(self, port: &str) -> Result<PortNumber, E> {
                port.parse().map(PortNumber).map_err(|_| E::invalid_value(de::Unexpected::Str(port), &self))
            }
        }
        deserializer.deserialize_any(PortVisitor)
    }
}
