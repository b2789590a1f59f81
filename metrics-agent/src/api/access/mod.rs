//! Which clients may use the API.

pub mod credentials;
mod turns;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use credentials::ClientRequirements;
use metrics_agent_support::runtime::connections::Place;
use turns::Turns;

use super::error_response;
use super::metrics::ApiMetrics;

/// The use of the API that a route permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Reads snapshots, the page and metrics.
    Read,
    /// Reports and shares changes, which steers all proxies.
    Write,
}

/// The requirements on requests, except requests for health checks.
#[derive(Debug)]
pub struct Access {
    /// The allowed values of the `host` header.
    hosts: AllowedHosts,
    /// The certificates and tokens that clients need.
    clients: ClientRequirements,
    /// Counts refusals.
    metrics: ApiMetrics,
    turns: Turns,
}

/// Facts about the connection of a request.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Whether the client has a valid certificate.
    pub has_certificate: bool,
    /// The client's address.
    pub address: IpAddr,
    /// The agent's own address on this connection.
    pub own_address: IpAddr,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessRefusal {
    Host,
    Certificate,
    /// A write of another host, where no credentials are set up.
    UnauthenticatedWrite,
    NoToken(Right),
    WrongToken(Right),
    ReadToken,
}

impl Access {
    /// These requirements.
    pub fn new(hosts: AllowedHosts, clients: ClientRequirements, metrics: ApiMetrics) -> Self {
        Self { hosts, clients, metrics, turns: Turns::default() }
    }

    /// The greatest right of a client that needs `needed`.
    fn right(&self, needed: Right, peer: Option<Peer>, headers: &HeaderMap) -> Result<Right, AccessRefusal> {
        match (self.refusal(Right::Write, peer, headers), needed) {
            (None, _) => Ok(Right::Write),
            (Some(refusal), Right::Write) => Err(refusal),
            (Some(_), Right::Read) => match self.refusal(Right::Read, peer, headers) {
                None => Ok(Right::Read),
                Some(refusal) => Err(refusal),
            },
        }
    }

    fn refusal(&self, right: Right, peer: Option<Peer>, headers: &HeaderMap) -> Option<AccessRefusal> {
        let Some(peer) = peer.filter(|peer| self.hosts.allow(headers, peer.own_address)) else {
            return Some(AccessRefusal::Host);
        };
        let ClientRequirements { certificate, tokens, read_tokens, unauthenticated } = &self.clients;
        if right == Right::Read && unauthenticated.reads {
            return None;
        }
        if *certificate && !peer.has_certificate {
            return Some(AccessRefusal::Certificate);
        }
        let Some(tokens) = tokens else {
            let may_write =
                *certificate || unauthenticated.writes || peer.address.to_canonical().is_loopback();
            return (right == Right::Write && !may_write).then_some(AccessRefusal::UnauthenticatedWrite);
        };
        let Some(authorization) = headers.get(header::AUTHORIZATION) else {
            return Some(AccessRefusal::NoToken(right));
        };
        if tokens.now().allow(authorization.as_bytes()) {
            return None;
        }
        let may_read =
            read_tokens.as_ref().is_some_and(|tokens| tokens.now().allow(authorization.as_bytes()));
        match right {
            Right::Read if may_read => None,
            Right::Write if may_read => Some(AccessRefusal::ReadToken),
            Right::Read | Right::Write => Some(AccessRefusal::WrongToken(right)),
        }
    }
}

impl AccessRefusal {
    /// The reason in the metrics.
    fn reason(self) -> &'static str {
        match self {
            Self::Host => "unknown_host",
            Self::Certificate => "no_certificate",
            Self::UnauthenticatedWrite => "unauthenticated_write",
            Self::NoToken(_) => "no_token",
            Self::WrongToken(_) => "wrong_token",
            Self::ReadToken => "read_token",
        }
    }

    fn problem(self) -> &'static str {
        match self {
            Self::Host => "the header host is neither the agent's address nor a name of --allowed-host",
            Self::Certificate => "a client certificate by an authority of --tls-client-ca is required",
            Self::UnauthenticatedWrite => {
                "only clients on the agent's host may report and share changes, because whoever does steers all proxies: \
                 set --bearer-token-file or --tls-client-ca, or --allow-unauthenticated-writes"
            }
            Self::NoToken(Right::Read) | Self::WrongToken(Right::Read) => {
                "a token of --bearer-token-file is required, or of --read-token-file: authorization: Bearer <token>"
            }
            Self::NoToken(Right::Write) | Self::WrongToken(Right::Write) => {
                "a token of --bearer-token-file is required: authorization: Bearer <token>"
            }
            Self::ReadToken => {
                "a token of --read-token-file may not write; --bearer-token-file has those that may"
            }
        }
    }

    fn response(self) -> Response {
        match self {
            Self::Host | Self::Certificate | Self::UnauthenticatedWrite | Self::ReadToken => {
                error_response(StatusCode::FORBIDDEN, self.problem())
            }
            Self::NoToken(_) | Self::WrongToken(_) => {
                let mut response = error_response(StatusCode::UNAUTHORIZED, self.problem());
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                response
            }
        }
    }
}

/// Passes a request on with the right that its client has, or refuses it. A client that may write keeps its
/// connection; requests of others wait for their turn.
pub(in crate::api) async fn check(
    State((access, right)): State<(Arc<Access>, Right)>,
    mut request: Request,
    next: Next,
) -> Response {
    let has = match access.right(right, request.extensions().get().copied(), request.headers()) {
        Ok(has) => has,
        Err(refusal) => {
            access.metrics.count_refusal(refusal.reason());
            return refusal.response();
        }
    };
    match has {
        Right::Write => request.extensions().get::<Place>().into_iter().for_each(Place::keep),
        Right::Read => access.turns.take().await,
    }
    request.extensions_mut().insert(has);
    next.run(request).await
}

/// The `host` of filters, whatever the name of the agent's cluster.
const FILTERS_NAME: &str = "metrics-agent";

/// The allowed values of the `host` header, besides the agent's own address.
///
/// They prevent DNS rebinding: a web page whose name resolves to the agent's address could read the API
/// through the browser of a user who can reach the agent. The browser then sends the page's name as `host`.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(pub Vec<String>);

impl AllowedHosts {
    /// Whether a request to `address` names that address, `localhost` for a loopback address, or an allowed
    /// name. Ports are not compared, because tunnels change them.
    fn allow(&self, headers: &HeaderMap, address: IpAddr) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Some(name) = host.to_str().ok().and_then(name_of) else { return false };
        let address = address.to_canonical();
        let is = |allowed: &str| name.eq_ignore_ascii_case(allowed);
        name.parse::<IpAddr>().is_ok_and(|named| named.to_canonical() == address)
            || is(FILTERS_NAME)
            || (is("localhost") && address.is_loopback())
            || self.0.iter().any(|allowed| is(allowed))
    }
}

/// The host without its port, an IPv6 address without its brackets.
fn name_of(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok().filter(|_| !host.contains('@'))?;
    Some(authority.host().trim_matches(['[', ']']).to_owned())
}

/// Reads a host name or an IP address, without a port.
pub fn allowed_host(text: &str) -> Result<String, String> {
    let bare = text.trim_matches(['[', ']']);
    let is_name = name_of(text).is_some_and(|name| name == text) && !text.contains('*');
    if bare.parse::<IpAddr>().is_ok() || is_name {
        Ok(bare.to_owned())
    } else {
        Err("must be a host name or an IP address, without a port".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::api::access::credentials::Unauthenticated;

    fn refusals(
        unauthenticated: Unauthenticated,
        certificate: bool,
        peer: Peer,
    ) -> [Option<AccessRefusal>; 2] {
        let clients = ClientRequirements { certificate, unauthenticated, ..ClientRequirements::default() };
        let metrics = ApiMetrics::register(&mut Registry::default());
        let access = Access::new(AllowedHosts::default(), clients, metrics);
        let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("metrics-agent"))]);
        [Right::Read, Right::Write].map(|right| access.refusal(right, Some(peer), &headers))
    }

    fn peer(address: &str, has_certificate: bool) -> Peer {
        let address = address.parse().unwrap();
        Peer { has_certificate, address, own_address: "10.0.0.9".parse().unwrap() }
    }

    #[test]
    fn without_credentials_only_the_own_host_writes_unless_a_flag_allows_it() {
        let none = Unauthenticated::default();
        for address in ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(refusals(none, false, peer(address, false)), [None, None], "{address}");
        }
        for address in ["10.0.0.7", "10.0.0.9", "::ffff:10.0.0.7", "2001:db8::1"] {
            let refused = [None, Some(AccessRefusal::UnauthenticatedWrite)];
            assert_eq!(refusals(none, false, peer(address, false)), refused, "{address}");
            let all = Unauthenticated { writes: true, ..none };
            assert_eq!(refusals(all, false, peer(address, false)), [None, None], "{address}");
        }
    }

    #[test]
    fn a_certificate_permits_both_and_reading_can_be_left_open() {
        let none = Unauthenticated::default();
        let refused = Some(AccessRefusal::Certificate);
        assert_eq!(refusals(none, true, peer("10.0.0.7", true)), [None, None]);
        assert_eq!(refusals(none, true, peer("127.0.0.1", false)), [refused, refused]);
        let open = Unauthenticated { reads: true, writes: false };
        assert_eq!(refusals(open, true, peer("10.0.0.7", false)), [None, refused]);
    }

    fn allows(names: &[&str], hosts: &[&str], address: &str) -> bool {
        let allowed = AllowedHosts(names.iter().map(|name| allowed_host(name).unwrap()).collect());
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().unwrap());
        }
        allowed.allow(&headers, address.parse().unwrap())
    }

    #[test]
    fn its_own_address_is_allowed_whatever_the_port() {
        for (host, address) in [
            ("127.0.0.1:9095", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1:1234", "::ffff:127.0.0.1"),
            ("[::1]:9095", "::1"),
            ("10.0.0.7:9095", "10.0.0.7"),
            ("localhost:9095", "127.0.0.1"),
            ("LocalHost", "::1"),
            ("metrics-agent", "10.0.0.7"),
        ] {
            assert!(allows(&[], &[host], address), "{host} at {address}");
        }
    }

    #[test]
    fn a_name_is_allowed_only_if_a_flag_names_it() {
        for host in [
            "rebound.example",
            "rebound.example:9095",
            "127.0.0.1.rebound.example",
            "10.0.0.8",
            "",
            "a@127.0.0.1",
            "localhost",
        ] {
            assert!(!allows(&["agent.example"], &[host], "10.0.0.7"), "{host}");
        }
        assert!(!allows(&[], &[], "127.0.0.1"));
        assert!(!allows(&[], &["127.0.0.1", "rebound.example"], "127.0.0.1"));
        assert!(allows(&["agent.example"], &["Agent.Example:9095"], "10.0.0.7"));
        assert!(allows(&["10.0.0.8"], &["10.0.0.8:9095"], "10.0.0.7"));
        assert!(allows(&["[2001:db8::1]"], &["[2001:db8::1]:9095"], "10.0.0.7"));
    }

    #[test]
    fn invalid_names_are_refused() {
        for text in ["", "a:1", "10.0.0.1:80", "http://a", "a/b", "a@b", "*.example", "*"] {
            assert!(allowed_host(text).is_err(), "{text}");
        }
    }
}
