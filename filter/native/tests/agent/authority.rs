//! A certificate authority, and the files of its certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tempfile::TempDir;

pub(crate) struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let authority = Self { directory: tempfile::tempdir().unwrap(), issuer };
        fs::write(authority.file("ca.pem"), authority.issuer.pem()).unwrap();
        authority
    }

    /// A file in the authority's directory. Its own certificate is `ca.pem`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes `<file>.pem` and `<file>.key` of a certificate for this DNS name or IP address.
    pub(crate) fn issue(&self, name: &str, file: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.file(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(self.file(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    /// A server with the certificate in this file, which requires certificates of this authority.
    pub(crate) fn server(&self, file: &str) -> Arc<ServerConfig> {
        let provider = Arc::new(default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.file("ca.pem"))).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build().unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file(&format!("{file}.key"))).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate(&self.file(&format!("{file}.pem")))], key)
            .unwrap();
        Arc::new(config)
    }
}

fn certificate(file: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(file).unwrap()
}
