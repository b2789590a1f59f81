//! The values an entry of the endpoints file may have.

use core::fmt;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

/// One part of an endpoint's id.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(pub(super) String);

/// A name that need not be given.
pub(super) struct Namespace(pub(super) String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let legal =
            !name.is_empty() && name.len() <= 253 && !name.contains(|c: char| c == '/' || c.is_control());
        if legal {
            Ok(Self(name))
        } else {
            Err(format!("{name:?} is no name; allowed are 1 to 253 bytes without / and control characters"))
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

/// Most labels of an endpoint.
const MAX_LABELS: usize = 64;

/// Longest key of a label, as for Kubernetes: a prefix, a slash and a name.
const MAX_KEY_BYTES: usize = 253 + 1 + 63;

/// Longest value of a label; Kubernetes allows 63, but here annotations are labels too.
const MAX_VALUE_BYTES: usize = 1024;

/// What an endpoint says of itself; all of it travels to every proxy.
#[derive(Default, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub(super) struct Labels(pub(super) BTreeMap<String, String>);

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = String;

    fn try_from(labels: BTreeMap<String, String>) -> Result<Self, String> {
        if labels.len() > MAX_LABELS {
            return Err(format!("{} labels; allowed are at most {MAX_LABELS}", labels.len()));
        }
        let legal = |(key, value): &(&String, &String)| {
            (1..=MAX_KEY_BYTES).contains(&key.len()) && value.len() <= MAX_VALUE_BYTES
        };
        match labels.iter().find(|label| !legal(label)) {
            Some((key, _)) => {
                let shown: String = key.chars().take(MAX_KEY_BYTES).collect();
                Err(format!(
                    "the key or the value of {shown:?} is too long or empty; allowed are keys of 1 to {MAX_KEY_BYTES} bytes and \
                     values of 0 to {MAX_VALUE_BYTES} bytes"
                ))
            }
            None => Ok(Self(labels)),
        }
    }
}

/// IPv4 or IPv6, the latter in brackets or not.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Ip(pub(super) IpAddr);

impl TryFrom<String> for Ip {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(&text);
        match bare.parse() {
            Ok(ip) => Ok(Self(ip)),
            Err(_) => {
                Err(format!("{text:?} is no address; allowed is an IPv4 or IPv6 address, no host name"))
            }
        }
    }
}

/// A number or its text.
pub(super) struct Port(pub(super) NonZeroU16);

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortVisitor;
        impl Visitor<'_> for PortVisitor {
            type Value = Port;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a port, 1 to 65535, as a number or a string")
            }

            fn visit_u64<E: de::Error>(self, port: u64) -> Result<Port, E> {
                let legal = u16::try_from(port).ok().and_then(NonZeroU16::new);
                legal.map(Port).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(port), &self))
            }

            fn visit_str<E: de::Error>(self, port: &str) -> Result<Port, E> {
                port.parse().map(Port).map_err(|_| E::invalid_value(de::Unexpected::Str(port), &self))
            }
        }
        deserializer.deserialize_any(PortVisitor)
    }
}
