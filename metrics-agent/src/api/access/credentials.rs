//! What the agent's own API shows and asks for.

use std::path::PathBuf;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;

use crate::credentials::files::File;
use crate::credentials::{CredentialError, Tokens, Watched, pem};
use crate::files::FileLimits;
use crate::tasks::Tasks;
use crate::telemetry::ResultCounter;

/// Where the credentials of the agent's API are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// `None`: HTTP in plain text.
    pub tls: Option<TlsFiles>,
    /// Tokens of which clients must show one, one on each line.
    pub tokens: Option<PathBuf>,
}

/// What TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
    /// The authorities of clients' certificates, in PEM. With it clients must show a certificate.
    pub client_authorities: Option<PathBuf>,
}

/// The credentials as they are now.
#[derive(Debug)]
pub struct Credentials {
    /// `None`: HTTP in plain text.
    pub tls: Option<Watched<ServerConfig>>,
    /// Whether clients must show a certificate; a wrong one ends the handshake, none at all the request.
    pub asks_for_certificate: bool,
    /// Of which clients must show one.
    pub tokens: Option<Watched<Tokens>>,
}

impl Files {
    /// Reads them, and follows them from then on.
    pub async fn follow(
        self,
        limits: FileLimits,
        tasks: &Tasks,
        reads: &ResultCounter,
    ) -> Result<Credentials, CredentialError> {
        let asks_for_certificate = self.tls.as_ref().is_some_and(|tls| tls.client_authorities.is_some());
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
        Ok(Credentials { tls, asks_for_certificate, tokens })
    }
}

/// `files` are the certificate, its key, and the authorities of clients if they are asked for certificates.
fn config(files: &[File]) -> Result<ServerConfig, CredentialError> {
    let refuse = |error: &dyn core::fmt::Display| CredentialError::new(&files[0].0, error.to_string());
    let (certificate, key) = (pem::certificates(&files[0])?, pem::key(&files[1])?);
    let builder = ServerConfig::builder_with_provider(pem::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(&error))?;
    let builder = match files.get(2) {
        Some(authorities) => {
            // Health checks show no certificate, so that none is asked for before the path is known.
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
        .map_err(|error| refuse(&format!("and {} do not go together: {error}", files[1].0.display())))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
