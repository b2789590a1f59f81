//! The certificates by which Envoy Gateway and the agents authenticate each other.

use std::path::PathBuf;
use std::sync::Arc;

use metrics_agent_doctor::doctor::Finding;
use metrics_agent_support::credentials;
use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;

/// The certificates of an entry in PEM, or why a Secret cannot be read.
#[derive(Debug)]
pub(super) struct Certificates {
    /// The authority, in the key `tls.crt` of a Secret.
    pub(super) authority: Result<Vec<u8>, String>,
    /// Envoy Gateway's own certificate.
    pub(super) client: Result<Vec<u8>, String>,
}

impl Certificates {
    /// Their mistakes at this time. `place` is where they are named.
    pub(super) fn findings(&self, place: &str, now: UnixTime) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut read = |field: &str, secret: &Result<Vec<u8>, String>| match secret {
            Ok(pem) => Some((PathBuf::from(field), pem.clone())),
            Err(problem) => {
                findings.push(Finding::error(
                    place,
                    format!("the Secret of {field} cannot be read, and changes of routes wait: {problem}"),
                    format!("let {field} name the chart's Secret, with tls.crt"),
                ));
                None
            }
        };
        let files = (read("certificateRef", &self.authority), read("clientCertificateRef", &self.client));
        let (Some(authority), Some(client)) = files else { return findings };
        let result =
            credentials::roots(&authority).and_then(|roots| Ok((roots, credentials::certificates(&client)?)));
        let (roots, chain) = match result {
            Ok(read) => read,
            Err(error) => {
                findings.push(Finding::error(
                    place,
                    error.to_string(),
                    "put a certificate in PEM into the Secret's tls.crt",
                ));
                return findings;
            }
        };
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), credentials::provider()).build();
        let verified = match (verifier, chain.split_first()) {
            (Ok(verifier), Some((own, issuers))) => {
                verifier.verify_client_cert(own, issuers, now).map(drop).map_err(|error| error.to_string())
            }
            (Err(error), _) => Err(error.to_string()),
            (Ok(_), None) => Ok(()),
        };
        if let Err(problem) = verified {
            findings.push(Finding::error(
                place,
                format!("the agents refuse Envoy Gateway's certificate, and changes of routes wait: {problem}"),
                "let both Secrets be of one authority, and renew what has expired: with the chart's own certificates, delete its three \
                 Secrets and upgrade it",
            ));
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    /// An authority and a certificate that it has issued, in PEM.
    fn pair(name: &str) -> (Vec<u8>, Vec<u8>) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut params = CertificateParams::new(vec!["envoy-gateway".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "envoy-gateway");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2025, 1, 1);
        let own = params.signed_by(&KeyPair::generate().unwrap(), &authority).unwrap();
        (authority.pem().into_bytes(), own.pem().into_bytes())
    }

    fn problems(
        authority: Result<Vec<u8>, String>,
        client: Result<Vec<u8>, String>,
        years: u32,
    ) -> Vec<String> {
        let now = UnixTime::since_unix_epoch(YEAR * years);
        let findings = Certificates { authority, client }.findings("here", now);
        findings.into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn certificates_of_one_authority_are_right_until_they_expire() {
        let (authority, client) = pair("authority");
        assert_eq!(problems(Ok(authority.clone()), Ok(client.clone()), 53), [""; 0]);
        let expired = problems(Ok(authority), Ok(client), 57);
        assert!(expired.len() == 1 && expired[0].contains("expired"), "{expired:?}");
    }

    #[test]
    fn other_authorities_and_secrets_that_cannot_be_read_are_found() {
        let ((authority, _), (_, other)) = (pair("authority"), pair("other"));
        let unknown = problems(Ok(authority.clone()), Ok(other), 53);
        assert!(unknown.len() == 1 && unknown[0].contains("UnknownIssuer"), "{unknown:?}");
        let missing = problems(Ok(authority.clone()), Err("404".to_owned()), 53);
        assert!(missing.len() == 1 && missing[0].contains("clientCertificateRef"), "{missing:?}");
        let malformed = problems(Ok(authority), Ok(b"x".to_vec()), 53);
        assert!(malformed.len() == 1 && malformed[0].contains("PEM"), "{malformed:?}");
    }
}
