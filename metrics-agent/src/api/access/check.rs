//! Who may ask.

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

/// What a request must show, but for those of health checks.
#[derive(Debug)]
pub struct Access {
    /// By which names the agent may be asked.
    pub hosts: AllowedHosts,
    /// Whether its connection must be by a client with a certificate.
    pub requires_certificate: bool,
    /// Of which it must show one.
    pub tokens: Option<Watched<Tokens>>,
    /// Counts refusals.
    pub metrics: ApiMetrics,
}

/// What is known of the other side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Whether it showed a certificate, which was then found to be good.
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
            let problem = "a client certificate is needed, by an authority of --tls-client-ca";
            return Some(error_response(StatusCode::FORBIDDEN, problem));
        }
        let tokens = self.tokens.as_ref()?.now();
        let shown = headers.get(header::AUTHORIZATION);
        if shown.is_some_and(|shown| tokens.allow(shown.as_bytes())) {
            return None;
        }
        self.metrics.count_refusal(if shown.is_some() { "wrong_token" } else { "no_token" });
        let problem = "a token of --bearer-token-file is needed: authorization: Bearer <token>";
        let mut refusal = error_response(StatusCode::UNAUTHORIZED, problem);
        refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Some(refusal)
    }
}

/// Lets a request pass, or refuses it.
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
