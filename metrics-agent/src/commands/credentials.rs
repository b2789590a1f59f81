//! The same credentials, read once: what a command shows to an agent.

use std::sync::Arc;

use hyper::header::HeaderValue;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::credentials::{CredentialError, Tokens, files};
use crate::files::FileLimits;
use crate::scrape::credentials::{Files, config, tls_files};

/// What one request shows.
#[derive(Clone, Debug)]
pub struct Shown {
    /// `None`: TLS is not spoken.
    pub tls: Option<Arc<ClientConfig>>,
    /// The name that the server's certificate must carry; `None`: the one it is asked by.
    pub server_name: Option<ServerName<'static>>,
    /// The value of the `authorization` header.
    pub authorization: Option<HeaderValue>,
}

impl Files {
    /// Reads them as they are now.
    pub async fn read(self) -> Result<Shown, CredentialError> {
        let Self { trust, certificate_and_key, server_name, token } = self;
        let limits = FileLimits::default();
        let tls = match trust {
            Some(trust) => {
                let (paths, trusts_anyone) = tls_files(trust, certificate_and_key);
                Some(Arc::new(config(trusts_anyone, &files::read(paths.into(), limits).await?)?))
            }
            None => None,
        };
        let authorization = match token {
            Some(file) => Some(Tokens::read(&files::read([file].into(), limits).await?[0])?.header()),
            None => None,
        };
        Ok(Shown { tls, server_name, authorization })
    }
}
