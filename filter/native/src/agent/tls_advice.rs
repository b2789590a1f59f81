//! Advice about a TLS connection to the agent that fails.

use core::fmt;

use rustls::{AlertDescription, CertificateError};

/// The error of a request, with advice if there is any.
pub(super) struct Explained(pub(super) ureq::Error);

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(error) = self;
        match tls_error(error).and_then(advice) {
            Some(advice) => write!(f, "{error}; {advice}"),
            None => error.fmt(f),
        }
    }
}

fn tls_error(error: &ureq::Error) -> Option<&rustls::Error> {
    match error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref(),
        _ => None,
    }
}

fn advice(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            // The second: an authority has the issuer's name, and another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Some(
                "no authority of agent.tls.caFile has issued the agent's certificate; name the file with its issuer, or with the \
                 certificate itself if it is self-signed",
            ),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Some("the agent's certificate has to contain the host of its address as subjectAltName")
            }
            // The type of this error is not part of rustls.
            CertificateError::Other(error) if error.to_string().contains("CaUsedAsEndEntity") => Some(
                "the agent presents the certificate of an authority as its own, as `openssl req -x509` makes it by default; make one \
                 with -addext basicConstraints=critical,CA:FALSE and its address as subjectAltName",
            ),
            _ => None,
        },
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA,
        ) => Some("the agent requires a client certificate that it trusts (agent.tls.certFile and keyFile)"),
        rustls::Error::InvalidMessage(_) => {
            Some("the agent does not speak TLS; use http:// in agent.addresses")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::Arc;
    use std::thread;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::crypto::ring;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, Stream};
    use ureq::tls::{Certificate, RootCerts, TlsConfig};

    use super::*;

    /// A certificate for 127.0.0.1 that signed itself, and its key.
    fn self_signed(is_ca: IsCa) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = is_ca;
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        (certificate, PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    /// Answers one connection, over TLS with this certificate.
    fn serve(tls: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            let Some((certificate, key)) = tls else {
                let _ = stream.read(&mut [0; 1024]);
                return stream.write_all(answer).unwrap_or_default();
            };
            let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)
                .unwrap();
            let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = Stream::new(&mut connection, &mut stream);
            if stream.read(&mut [0; 1024]).is_ok() {
                let _ = stream.write_all(answer);
            }
        });
        address
    }

    /// The result of a request by a client that trusts this certificate.
    fn request(address: SocketAddr, trusted: &CertificateDer<'_>) -> Result<u16, String> {
        let trusted = vec![Certificate::from_der(trusted).to_owned()];
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(trusted)))
            .build();
        let agent = ureq::Agent::new_with_config(ureq::Agent::config_builder().tls_config(tls).build());
        let response = agent.get(format!("https://{address}/")).call();
        response.map(|response| response.status().as_u16()).map_err(|error| Explained(error).to_string())
    }

    #[test]
    fn the_message_says_what_to_do_about_the_agents_certificate() {
        let authority = || self_signed(IsCa::Ca(BasicConstraints::Unconstrained));
        let own = || self_signed(IsCa::ExplicitNoCa);
        let (certificate, key) = authority();
        let refusal = request(serve(Some((certificate.clone(), key))), &certificate).unwrap_err();
        assert!(refusal.contains("-addext basicConstraints=critical,CA:FALSE"), "{refusal}");
        let refusal = request(serve(Some(own())), &authority().0).unwrap_err();
        assert!(refusal.contains("no authority of agent.tls.caFile has issued"), "{refusal}");
        let refusal = request(serve(None), &certificate).unwrap_err();
        assert!(refusal.contains("the agent does not speak TLS"), "{refusal}");
        // As the advice has it.
        let (certificate, key) = own();
        assert_eq!(request(serve(Some((certificate.clone(), key))), &certificate), Ok(200));
    }
}
