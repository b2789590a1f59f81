//! Parsers for the values of flags.

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_wire::NamedRules;
use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use metrics_agent_catalogue::plan::share_of;
use metrics_agent_kv_events::Ports;
use metrics_agent_sources::names::HostName;
use rustls::pki_types::ServerName;

/// The longest duration.
const LONGEST: Duration = Duration::from_secs(3600);

/// A number with its unit, `ms` or `s`; from 1ms to one hour.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let allowed = || "allowed is a whole number with its unit, from 1ms to 3600s".to_owned();
    read_duration(text)
        .filter(|duration| (Duration::from_millis(1)..=LONGEST).contains(duration))
        .ok_or_else(allowed)
}

/// Rules as a flag names them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RulesFlag {
    pub(super) rules: EppRules,
    /// Whether it has the name that v0.11 had before.
    pub(super) is_former: bool,
}

/// Our own rules, or those of a version of the EPP.
pub(super) fn epp_rules(text: &str) -> Result<RulesFlag, String> {
    let is_former = text == EppRules::FORMER_V011;
    EppRules::read(text).map(|rules| RulesFlag { rules, is_former })
}

/// The rules of pools without an `EndpointPickerConfig`.
#[derive(Clone, Debug)]
pub(super) enum RulesChoice {
    Named(NamedRules),
    /// A file with an `EndpointPickerConfig`.
    File(PathBuf),
}

/// Rules by their name, or a file, whose name shows that it is one: a mistyped name is not a file.
pub(super) fn rules(text: &str) -> Result<RulesChoice, String> {
    if let Some(rules) = NamedRules::named(text) {
        return Ok(RulesChoice::Named(rules));
    }
    let is_file = text.contains('/') || [".yaml", ".yml", ".json"].iter().any(|end| text.ends_with(end));
    let names = NamedRules::ALL.map(NamedRules::as_str).join(", ");
    is_file
        .then(|| RulesChoice::File(text.into()))
        .ok_or_else(|| format!("allowed are {names}, and a file such as rules.yaml"))
}

/// A number with its unit, `ms` or `s`; from 0s to one hour.
pub(super) fn duration_or_none(text: &str) -> Result<Duration, String> {
    let allowed = || "allowed is a whole number with its unit, from 0s to 3600s".to_owned();
    read_duration(text).filter(|duration| *duration <= LONGEST).ok_or_else(allowed)
}

/// A share, from 0 to 1.
pub(super) fn share(text: &str) -> Result<f64, String> {
    share_of(text).ok_or_else(|| "allowed is a number from 0 to 1".to_owned())
}

fn read_duration(text: &str) -> Option<Duration> {
    let number = |digits: &str, unit: u64| digits.parse::<u64>().ok()?.checked_mul(unit);
    let millis = match text.strip_suffix("ms") {
        Some(digits) => number(digits, 1),
        None => text.strip_suffix('s').and_then(|digits| number(digits, 1000)),
    };
    millis.map(Duration::from_millis)
}

/// The name of a pool, with its namespace or without.
pub(super) fn pool(text: &str) -> Result<String, String> {
    let parts: Vec<_> = text.split('/').collect();
    let is_name = !parts.iter().any(|part| part.is_empty()) && parts.len() <= 2;
    is_name.then(|| text.to_owned()).ok_or_else(|| "allowed is a name, or NAMESPACE/NAME".to_owned())
}

/// A model server, by address or by host name.
#[derive(Clone, Debug)]
pub(super) enum ServerFlag {
    Address(SocketAddr),
    Named(HostName, NonZeroU16),
}

/// A model server.
pub(super) fn server(text: &str) -> Result<ServerFlag, String> {
    let allowed = || {
        "allowed is an IP address or a host name, and a port that is not 0, such as 10.0.0.1:8000, [2001:db8::1]:8000 or vllm-1:8000"
            .to_owned()
    };
    if let Ok(address) = text.parse::<SocketAddr>() {
        return if address.port() == 0 { Err(allowed()) } else { Ok(ServerFlag::Address(address)) };
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(allowed)?;
    let (host, port) = host.parse().ok().zip(port.parse().ok()).ok_or_else(allowed)?;
    Ok(ServerFlag::Named(host, port))
}

/// Where model servers publish their events; `None`: events are not followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvEventPorts(pub(super) Option<Ports>);

/// Where model servers publish their events.
pub(super) fn kv_events(text: &str) -> Result<KvEventPorts, String> {
    let ports = match text {
        "off" => return Ok(KvEventPorts(None)),
        "discover" => Ports::Discovered,
        _ => {
            let (events, replay) =
                text.split_once(',').map_or((text, None), |(port, rest)| (port, Some(rest)));
            let port = |text: &str| text.parse::<NonZeroU16>().ok();
            let fixed = port(events).zip(replay.map_or(Some(None), |replay| port(replay).map(Some)));
            let (events, replay) = fixed.ok_or_else(|| {
                "allowed is off, discover, PORT or PORT,REPLAY-PORT, with ports from 1 to 65535".to_owned()
            })?;
            if replay == Some(events) {
                return Err("PORT and REPLAY-PORT must be different".to_owned());
            }
            Ports::Fixed { events, replay }
        }
    };
    Ok(KvEventPorts(Some(ports)))
}

/// The tokens of a prefix.
pub(super) fn prefix_tokens(text: &str) -> Result<u32, String> {
    let tokens = text.parse().ok().filter(|tokens| (16..=256).contains(tokens));
    tokens.ok_or_else(|| "allowed is a number from 16 to 256".to_owned())
}

/// The folder of a model's tokenizer.
pub(super) fn tokenizer(text: &str) -> Result<(String, PathBuf), String> {
    let both = text.split_once('=').filter(|(model, path)| !model.is_empty() && !path.is_empty());
    let (model, path) =
        both.ok_or("allowed is a model and a folder, such as Qwen/Qwen3-8B=/tokenizers/qwen3")?;
    Ok((model.to_owned(), path.into()))
}

/// A namespace, or `*` for all of them.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let is_valid = text == "*" || one_namespace(text).is_ok();
    is_valid.then(|| text.to_owned()).ok_or_else(|| "allowed is the name of a namespace, or '*'".to_owned())
}

/// A namespace.
pub(super) fn one_namespace(text: &str) -> Result<String, String> {
    let is_valid = is_object_name(text) && text.len() <= 63 && !text.contains('.');
    is_valid.then(|| text.to_owned()).ok_or_else(|| "allowed is the name of a namespace".to_owned())
}

/// The name of an object of Kubernetes, with its namespace or without.
pub(super) fn object(text: &str) -> Result<(Option<String>, String), String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if is_object_name(name)
        && namespace.is_none_or(|namespace| is_object_name(namespace) && !namespace.contains('.'))
    {
        Ok((namespace.map(str::to_owned), name.to_owned()))
    } else {
        Err("allowed is the name of an object, or NAMESPACE/NAME".to_owned())
    }
}

/// The name of an object of Kubernetes with its namespace.
pub(super) fn namespaced_object(text: &str) -> Result<(String, String), String> {
    match object(text) {
        Ok((Some(namespace), name)) => Ok((namespace, name)),
        Ok((None, _)) | Err(_) => Err("allowed is NAMESPACE/NAME".to_owned()),
    }
}

fn is_object_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=253).contains(&text.len()) && text.bytes().all(allowed)
}

/// The URL of an agent; without a scheme, http.
pub(super) fn agent(text: &str) -> Result<Uri, String> {
    url(text).ok_or_else(|| {
        "allowed is 127.0.0.1:9095, http://127.0.0.1:9095 or https://agent:9095, for example".to_owned()
    })
}

/// The URL of Envoy's admin interface, which speaks http.
pub(super) fn admin(text: &str) -> Result<Uri, String> {
    let is_http = |uri: &Uri| uri.scheme_str() == Some("http");
    url(text)
        .filter(is_http)
        .ok_or_else(|| "allowed is 127.0.0.1:9901 or http://127.0.0.1:9901, for example".to_owned())
}

/// A URL without a path; without a scheme, http.
fn url(text: &str) -> Option<Uri> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let is_valid = |uri: &Uri| {
        let is_root = uri.path() == "/" && uri.query().is_none();
        matches!(uri.scheme_str(), Some("http" | "https")) && is_root
    };
    url.parse::<Uri>().ok().filter(is_valid)
}

/// A path, and a query if any, without a host.
pub(super) fn path(text: &str) -> Result<Uri, String> {
    let is_path = text.starts_with('/');
    let uri = is_path.then(|| text.parse::<Uri>().ok()).flatten().filter(|uri| uri.host().is_none());
    uri.ok_or_else(|| "must start with '/', without a host".to_owned())
}

/// A header, its name in lower case.
pub(super) fn header(text: &str) -> Result<(String, Vec<u8>), String> {
    let (name, value) =
        text.split_once(':').ok_or("allowed is a name and a value, such as 'x-user: someone'")?;
    let name = name.trim().parse::<HeaderName>().map_err(|error| error.to_string())?;
    let value = value.trim().parse::<HeaderValue>().map_err(|error| error.to_string())?;
    Ok((name.as_str().to_owned(), value.as_bytes().to_vec()))
}

/// A file and the endpoint that its request was sent to.
pub(super) fn body_and_endpoint(text: &str) -> Result<(PathBuf, SocketAddr), String> {
    let both = text.rsplit_once('=').and_then(|(file, endpoint)| Some((file.into(), endpoint.parse().ok()?)));
    both.ok_or_else(|| "allowed is a file and an endpoint, such as body.json=10.0.0.1:8000".to_owned())
}

/// A DNS name or an IP address.
pub(super) fn server_name(text: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(text.to_owned())
        .map_err(|_| "allowed is a DNS name or an IP address, without a port".to_owned())
}

/// A count of at least 1, up to a bound that no pool can need.
pub(super) fn count(text: &str) -> Result<usize, String> {
    const MAX: usize = 1024 * 1024 * 1024;
    let count = text.parse().ok().filter(|count| (1..=MAX).contains(count));
    count.ok_or_else(|| format!("allowed is a number from 1 to {MAX}"))
}

/// Flags that contradict each other.
#[derive(Debug)]
pub struct FlagError(pub(super) String);

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for FlagError {}
