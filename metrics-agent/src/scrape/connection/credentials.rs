//! Credentials for model servers.

use std::path::PathBuf;
use std::sync::Arc;

use hyper::header::HeaderValue;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::credentials::{self, CredentialError, File, Tokens, Watched};
use crate::files::FileLimits;
use crate::runtime::{ResultCounter, Tasks};

/// The files with credentials for model servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The trusted certificates; `None`: no TLS.
    pub trust: Option<Trust>,
    /// The agent's certificate chain and its key, in PEM.
    pub certificate_and_key: Option<(PathBuf, PathBuf)>,
    /// The name in servers' certificates; `None`: their IP address.
    pub server_name: Option<ServerName<'static>>,
    /// The file with the token, on its first line.
    pub token: Option<PathBuf>,
}

/// Which model servers are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Those with a certificate of one of the authorities in this file.
    Authorities(PathBuf),
    /// Every server.
    All,
}

/// The current credentials.
#[derive(Debug, Default)]
pub struct Credentials {
    /// `None`: no TLS.
    pub tls: Option<Watched<ClientConfig>>,
    /// As in [`Files::server_name`].
    pub server_name: Option<ServerName<'static>>,
    /// The value of the `authorization` header.
    pub authorization: Option<Watched<HeaderValue>>,
}

impl Files {
    /// Reads the files now, and again whenever they change.
    pub async fn watch(
        self,
        limits: FileLimits,
        tasks: &Tasks,
        reads: &ResultCounter,
    ) -> Result<Credentials, CredentialError> {
        let Self { trust, certificate_and_key, server_name, token } = self;
        let tls = match trust {
            Some(trust) => {
                let (files, trusts_all) = tls_files(trust, certificate_and_key);
                Some(
                    Watched::start(files, limits, tasks, reads, move |files| config(trusts_all, files))
                        .await?,
                )
            }
            None => None,
        };
        let authorization = match token {
            Some(file) => Some(
                Watched::start(vec![file], limits, tasks, reads, |files| {
                    Ok(Tokens::read(&files[0])?.header())
                })
                .await?,
            ),
            None => None,
        };
        Ok(Credentials { tls, server_name, authorization })
    }
}

/// The files for [`config`], and whether every server is trusted.
pub(crate) fn tls_files(
    trust: Trust,
    certificate_and_key: Option<(PathBuf, PathBuf)>,
) -> (Vec<PathBuf>, bool) {
    let own = certificate_and_key.into_iter().flat_map(|(certificate, key)| [certificate, key]);
    match trust {
        Trust::Authorities(authorities) => (core::iter::once(authorities).chain(own).collect(), false),
        Trust::All => (own.collect(), true),
    }
}

/// `files` are the authorities, unless every server is trusted, then the agent's certificate and its key, if it has one.
pub(crate) fn config(trusts_all: bool, files: &[File]) -> Result<ClientConfig, CredentialError> {
    let builder = ClientConfig::builder_with_provider(credentials::provider())
        .with_safe_default_protocol_versions()
        .expect("the provider supports the default versions");
    let (builder, own) = match files {
        [authorities, own @ ..] if !trusts_all => {
            (builder.with_root_certificates(credentials::roots(authorities)?), own)
        }
        own => {
            let verifier = TrustAll(credentials::provider());
            (builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)), own)
        }
    };
    let [certificate, key] = own else { return Ok(builder.with_no_client_auth()) };
    builder.with_client_auth_cert(credentials::certificates(certificate)?, credentials::key(key)?).map_err(
        |error| {
            let problem = format!("and {} do not match: {error}", key.0.display());
            CredentialError::new(&certificate.0, problem)
        },
    )
}

/// Accepts every certificate, as long as the server has its key.
#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
