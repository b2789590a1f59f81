//! The sockets that the agent serves.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::access::check::Access;
use crate::api::access::credentials::Credentials;
use crate::api::connections::listen::{self, Limits};
use crate::api::{self, ApiState};
use crate::credentials::Watched;

/// The sockets that the agent serves.
#[derive(Debug)]
pub struct Listeners {
    /// Socket of the whole API.
    pub api: TcpListener,
    /// Socket of health checks alone; `None`: only the API has them.
    pub health: Option<TcpListener>,
}

impl Listeners {
    /// Warns when the API is reachable from outside this host without TLS or without authentication.
    pub(super) fn warn_if_open(&self, credentials: &Credentials) {
        let Ok(address) = self.api.local_addr() else { return };
        if let Some(exposure) = exposure(credentials).filter(|_| !address.ip().is_loopback()) {
            tracing::warn!(%address, "the API is reachable from outside this host {exposure}");
        }
    }

    /// Serves until `closing` is cancelled, and then until every request in flight is complete.
    pub(super) async fn serve(
        self,
        state: Arc<ApiState>,
        access: Access,
        tls: Option<Watched<ServerConfig>>,
        limits: Limits,
        closing: CancellationToken,
    ) {
        let health = async {
            if let Some(listener) = self.health {
                let router = api::health_router(Arc::clone(&state));
                listen::serve(listener, router, None, limits.of_health_checks(), closing.clone()).await;
            }
        };
        let router = api::router(Arc::clone(&state), access);
        let api = listen::serve(self.api, router, tls, limits, closing.clone());
        tokio::join!(api, health);
    }
}

/// Names the access that the credentials leave open, with the flags that close it.
fn exposure(credentials: &Credentials) -> Option<&'static str> {
    let Credentials { tls, clients } = credentials;
    if clients.unauthenticated.writes {
        return Some(
            "and whoever reaches it steers all proxies (--allow-unauthenticated-writes): set --tls-cert and --tls-key, \
             and --bearer-token-file or --tls-client-ca",
        );
    }
    if clients.tokens.is_none() && !clients.certificate {
        return Some(
            "without authentication: proxies on other hosts may read, and may neither report nor share changes; set \
             --tls-cert and --tls-key, and --bearer-token-file or --tls-client-ca; or --listen on a loopback address",
        );
    }
    let is_plain = tls.is_none();
    is_plain.then_some("without TLS: tokens are sent in plain text; set --tls-cert and --tls-key")
}
