//! Credentials of a command for an agent, read once.

use std::sync::Arc;

use hyper::header::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::credentials::{self, CredentialError, Tokens};
use crate::files::FileLimits;
use crate::scrape::connection::credentials::{Files, config, tls_files};

/// Credentials for one request; none by default.
#[derive(Clone, Debug, Default)]
pub struct ClientCredentials {
    /// `None`: no TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// The name in the agent's certificate; `None`: the host of the URL.
    pub server_name: Option<ServerName<'static>>,
    /// The value of the `authorization` header.
    pub authorization: Option<HeaderValue>,
}

impl Files {
    /// Reads the files once.
    pub async fn read(self) -> Result<ClientCredentials, CredentialError> {
        let Self { trust, certificate_and_key, server_name, token } = self;
        let limits = FileLimits::default();
        let tls = match trust {
            Some(trust) => {
                let (paths, trusts_all) = tls_files(trust, certificate_and_key);
                Some(Arc::new(config(trusts_all, &credentials::read(paths.into(), limits).await?)?))
            }
            None => None,
        };
        let authorization = match token {
            Some(file) => Some(Tokens::read(&credentials::read([file].into(), limits).await?[0])?.header()),
            None => None,
        };
        Ok(ClientCredentials { tls, server_name, authorization })
    }
}
