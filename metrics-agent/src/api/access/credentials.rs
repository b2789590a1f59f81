//! Credentials of the API: the agent's certificate, and what clients need.

use std::path::PathBuf;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;

use crate::credentials::files::File;
use crate::credentials::{CredentialError, Tokens, Watched, pem};
use crate::files::FileLimits;
use crate::runtime::tasks::Tasks;
use crate::runtime::telemetry::ResultCounter;

/// The files with the API's credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The file with the tokens, one on each line; each request needs one of them.
    pub tokens: Option<PathBuf>,
}

/// The files for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The agent's certificate chain, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// The authorities of clients' certificates, in PEM; `Some`: clients need a certificate.
    pub client_authorities: Option<PathBuf>,
}

/// The current credentials.
#[derive(Debug)]
pub struct Credentials {
    /// `None`: plain HTTP.
    pub tls: Option<Watched<ServerConfig>>,
    /// Whether clients need a certificate. A wrong one ends the handshake; without one the request is refused.
    pub requires_certificate: bool,
    /// The tokens of which each request needs one.
    pub tokens: Option<Watched<Tokens>>,
}

impl Files {
    /// Reads the files now, and again whenever they change.
    pub async fn watch(
        self,
        limits: FileLimits,
        tasks: &Tasks,
        reads: &ResultCounter,
    ) -> Result<Credentials, CredentialError> {
        let requires_certificate = self.tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
        let tls = match self.tls {
            Some(TlsFiles { certificate, key, client_authorities }) => {
                let files = [certificate, key].into_iter().chain(client_authorities).collect();
                Some(Watched::start(files, limits, tasks, reads, config).await?)
            }
            None => None,
        };
        let tokens = match self.tokens {
            Some(file) => {
                Some(Watched::start(vec![file], limits, tasks, reads, |files| Tokens::read(&files[0])).await?)
            }
            None => None,
        };
        Ok(Credentials { tls, requires_certificate, tokens })
    }
}

/// `files` are the certificate, its key, and the authorities of clients if clients need certificates.
fn config(files: &[File]) -> Result<ServerConfig, CredentialError> {
    let refuse = |error: &dyn core::fmt::Display| CredentialError::new(&files[0].0, error.to_string());
    let (certificate, key) = (pem::certificates(&files[0])?, pem::key(&files[1])?);
    let builder = ServerConfig::builder_with_provider(pem::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(&error))?;
    let builder = match files.get(2) {
        Some(authorities) => {
            // Health checks come without a certificate, so the handshake must not require one: the path is not known yet.
            let verifier =
                WebPkiClientVerifier::builder_with_provider(pem::roots(authorities)?.into(), pem::provider())
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| CredentialError::new(&authorities.0, error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(certificate, key)
        .map_err(|error| refuse(&format!("and {} do not match: {error}", files[1].0.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
