//! Checks the host, the certificate and the token of requests.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::hosts::AllowedHosts;
use crate::api::error::error_response;
use crate::api::metrics::ApiMetrics;
use crate::credentials::{Tokens, Watched};

/// The requirements on requests, except those of health checks.
#[derive(Debug)]
pub struct Access {
    /// The allowed values of the `host` header.
    pub hosts: AllowedHosts,
    /// Whether the client needs a certificate.
    pub requires_certificate: bool,
    /// The tokens of which a request needs one; `None`: no token is needed.
    pub tokens: Option<Watched<Tokens>>,
    /// Counts refusals.
    pub metrics: ApiMetrics,
}

/// Facts about the connection of a request.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Whether the client has a valid certificate.
    pub has_certificate: bool,
    /// The agent's own address on this connection.
    pub own_address: IpAddr,
}

impl Access {
    fn refusal(&self, peer: Option<Peer>, headers: &HeaderMap) -> Option<Response> {
        if !peer.is_some_and(|peer| self.hosts.allow(headers, peer.own_address)) {
            self.metrics.count_refusal("unknown_host");
            let problem = "the header host is neither the agent's address nor a name of --allowed-host";
            return Some(error_response(StatusCode::FORBIDDEN, problem));
        }
        if self.requires_certificate && !peer.is_some_and(|peer| peer.has_certificate) {
            self.metrics.count_refusal("no_certificate");
            let problem = "a client certificate by an authority of --tls-client-ca is required";
            return Some(error_response(StatusCode::FORBIDDEN, problem));
        }
        let tokens = self.tokens.as_ref()?.now();
        let authorization = headers.get(header::AUTHORIZATION);
        if authorization.is_some_and(|value| tokens.allow(value.as_bytes())) {
            return None;
        }
        self.metrics.count_refusal(if authorization.is_some() { "wrong_token" } else { "no_token" });
        let problem = "a token of --bearer-token-file is required: authorization: Bearer <token>";
        let mut refusal = error_response(StatusCode::UNAUTHORIZED, problem);
        refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Some(refusal)
    }
}

/// Passes a request on, or refuses it.
pub(in crate::api) async fn check(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    match access.refusal(request.extensions().get().copied(), request.headers()) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}
