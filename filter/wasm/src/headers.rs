//! Request headers the filter reads, writes or takes away.

use endpoint_picker::body::{opens_tunnel, request_path};
use endpoint_picker::cycle::Headers;

use crate::config::Explain;
use crate::host::{self, Result};

/// Where the request goes: one `ip:port`, or several in order, separated by commas.
pub(crate) const DESTINATION: &str = "x-gateway-destination-endpoint";

/// What each rated endpoint scored, for a filter that moves it into metadata.
pub(crate) const SCORES: &str = "x-gateway-destination-endpoint-scores";

/// Why this endpoint, endpoint by endpoint.
pub(crate) const EXPLANATION: &str = "x-endpoint-picker-explanation";

/// What Envoy does when every endpoint of the list has failed: with [`NO_FALLBACK`] it answers 503, otherwise it balances over
/// the whole pool.
pub(crate) const FALLBACK: &str = "x-endpoint-picker-fallback";
const NO_FALLBACK: &str = "none";

/// Why a request was dropped.
pub(crate) const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// Headers that steer the request behind this filter. A client that could set one could choose its own server; with an
/// original-destination cluster it could reach any address.
const CONTROL: [&str; 11] = [
    DESTINATION,
    FALLBACK,
    SCORES,
    EXPLANATION,
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    DROPPED_REASON,
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
];

/// Those of them that only this filter may put on an answer.
const OF_ANSWERS: [&str; 5] =
    [DESTINATION, SCORES, EXPLANATION, "x-gateway-destination-endpoint-served", DROPPED_REASON];

/// Envoy's `header_to_metadata` passes over values of 8 KiB and more.
const LONGEST_LIST: usize = 8191;

/// The headers that send a request to the first of these addresses that takes it, and to no other if a hint restricts it. A list
/// that is too long is cut at its end.
pub(crate) fn destination(addresses: &[impl ToString], is_hint: bool) -> Vec<(&'static str, String)> {
    let mut list = String::new();
    for address in addresses.iter().map(ToString::to_string) {
        if list.len() + 1 + address.len() > LONGEST_LIST {
            break;
        }
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&address);
    }
    let mut headers = vec![(DESTINATION, list)];
    if is_hint {
        headers.push((FALLBACK, NO_FALLBACK.to_owned()));
    }
    headers
}

/// What an answer's headers tell.
#[derive(Debug)]
pub(crate) struct AnswerHead {
    pub(crate) status: u16,
    pub(crate) content_type: Vec<u8>,
    pub(crate) content_encoding: Option<Vec<u8>>,
}

/// Takes away what a server must not say in the picker's name, and reads the rest.
pub(crate) fn take_answer() -> Result<AnswerHead> {
    let headers = host::response_headers()?;
    let mut head = AnswerHead { status: 0, content_type: Vec::new(), content_encoding: None };
    for (name, value) in headers {
        match name.as_str() {
            ":status" => {
                head.status = core::str::from_utf8(&value).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
            }
            "content-type" => head.content_type = value,
            "content-encoding" => head.content_encoding = Some(value),
            name if OF_ANSWERS.contains(&name) => host::remove_response_header(name)?,
            _ => {}
        }
    }
    Ok(head)
}

/// What the choice needs of the headers.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    /// The path that tells the API, without its query.
    pub(crate) path: String,
    /// What follows the headers is not a body.
    pub(crate) opens_tunnel: bool,
    /// All headers as the client sent them, names in lower case.
    pub(crate) all: Vec<(String, Vec<u8>)>,
    /// The client has shown the secret for which it is told why.
    pub(crate) asks_why: bool,
    /// Somebody is told why.
    pub(crate) explains: bool,
}

/// Takes away the control headers and reads the rest. `None`: another filter of the same chain has picked for this pool
/// already, and its headers stay.
pub(crate) fn take(pool: &str, explain: &Explain) -> Result<Option<RequestHead>> {
    let headers = host::request_headers()?;
    // Only a picker or a client sets this header, so the usual request is spared the second look.
    if headers.iter().any(|(name, _)| name == DESTINATION)
        && host::picked_for()?.is_some_and(|picked| picked == pool.as_bytes())
    {
        return Ok(None);
    }
    #[cfg(feature = "trap")]
    assert!(!headers.iter().any(|(name, _)| name == "x-test-trap"), "the VM ends here, as asked");
    for name in CONTROL {
        if headers.iter().any(|(header, _)| header == name) {
            host::remove_request_header(name)?;
        }
    }
    let known = Headers(&headers);
    let path = request_path(known.get(":path"), known.get("x-original-path"), known.get("x-forwarded-path"));
    let path = path.to_owned();
    let opens_tunnel = opens_tunnel(known.get(":method"), known.get("upgrade"));
    let mut asks_why = false;
    if let Explain { header: Some(name), secret: Some(secret), .. } = explain {
        asks_why = headers.iter().any(|(header, value)| header == name && value == secret.as_bytes());
        if headers.iter().any(|(header, _)| header == name) {
            host::remove_request_header(name)?;
        }
    }
    let explains = asks_why || explain.access_log;
    Ok(Some(RequestHead { path, opens_tunnel, all: headers, asks_why, explains }))
}
