//! A certificate authority, and TLS servers and clients with its certificates.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// PEM files of a certificate and its key.
#[derive(Clone)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { directory: tempfile::tempdir().unwrap(), issuer };
        std::fs::write(authority.certificate(), authority.issuer.pem()).unwrap();
        authority
    }

    /// The authority's own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Issues a certificate for this DNS name or IP address. It replaces an earlier one of the same name.
    pub(crate) fn issue(&self, name: &str) -> CertificateFiles {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        // A certificate with the name of its authority would count as self-signed.
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |end: &str| self.directory.path().join(format!("{name}.{end}"));
        let issued = CertificateFiles { certificate: file("pem"), key: file("key") };
        std::fs::write(&issued.certificate, certificate.pem()).unwrap();
        std::fs::write(&issued.key, key.serialize_pem()).unwrap();
        issued
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.certificate()).unwrap()).unwrap();
        roots
    }

    /// Configuration of a server that presents `issued` and requires certificates of this authority.
    pub(crate) fn server(&self, issued: &CertificateFiles) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots().into(), Arc::clone(&provider)).build();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.unwrap())
            .with_single_cert(chain(&issued.certificate), key(&issued.key))
            .unwrap();
        Arc::new(config)
    }

    /// Connects to a server on 127.0.0.1 that has a certificate of this authority. The client presents
    /// `client`.
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        client: Option<&CertificateFiles>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots());
        let config = match client {
            Some(client) => {
                config.with_client_auth_cert(chain(&client.certificate), key(&client.key)).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(address).await?).await
    }
}

pub(crate) fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().map(Result::unwrap).collect()
}

pub(crate) fn key(path: &Path) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(path).unwrap()
}
