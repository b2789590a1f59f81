//! Keys and certificates of a cluster, and the token of its administrator.

use crate::namespace::HOST_ADDRESS;
use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};

/// The files; all are PEM.
#[derive(Debug)]
pub(super) struct Certificates {
    pub(super) authority: PathBuf,
    pub(super) server_certificate: PathBuf,
    pub(super) server_key: PathBuf,
    /// Signs the tokens of `ServiceAccounts`.
    pub(super) token_key: PathBuf,
    /// Verifies them.
    pub(super) token_public_key: PathBuf,
    /// Lists the administrator's token.
    pub(super) tokens: PathBuf,
    pub(super) admin_token: String,
}

impl Certificates {
    /// Writes new ones.
    pub(super) fn write(folder: &Path) -> Result<Self> {
        let file = |name: &str, content: &str| -> Result<PathBuf> {
            let path = folder.join(name);
            fs::write(&path, content)?;
            Ok(path)
        };
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let names = ["127.0.0.1", "localhost", "kubernetes.default", "kubernetes.default.svc"];
        let names = names.map(str::to_owned).into_iter().chain([HOST_ADDRESS.to_string()]);
        let mut params = CertificateParams::new(names.collect::<Vec<_>>())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;

        let token_key = KeyPair::generate()?;
        let admin_token = fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned();
        Ok(Self {
            authority: file("ca.crt", &authority.pem())?,
            server_certificate: file("api-server.crt", &certificate.pem())?,
            server_key: file("api-server.key", &key.serialize_pem())?,
            token_key: file("tokens.key", &token_key.serialize_pem())?,
            token_public_key: file("tokens.pub", &token_key.public_key_pem())?,
            tokens: file("tokens.csv", &format!("{admin_token},admin,admin,\"system:masters\"\n"))?,
            admin_token,
        })
    }
}
