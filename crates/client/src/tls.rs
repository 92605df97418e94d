//! How a client verifies the gateway's certificate.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::Error;

/// Why there is no TLS connection.
pub(super) type TlsFailure = Box<dyn std::error::Error + Send + Sync>;

/// SHA-256 fingerprint of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Parses a SHA-256 fingerprint: hex, with or without colons.
    pub fn read(text: &str) -> Result<Self, Error> {
        let bare = text.trim().to_ascii_lowercase();
        let bare = bare.strip_prefix("sha256:").or_else(|| bare.strip_prefix("sha256 ")).unwrap_or(&bare);
        let hex: String = bare.chars().filter(|char| *char != ':' && *char != ' ').collect();
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let problem = "is not a SHA-256 fingerprint of a certificate: 64 hex digits, with or without colons";
            return Err(Error::Target(format!("{text} {problem}")));
        }
        Ok(Self(hex))
    }
}

/// Performs the TLS handshake. With a fingerprint only that certificate is accepted; otherwise the system must trust it
/// for this host.
pub(super) async fn connect(
    stream: TcpStream,
    host: &str,
    pin: Option<&Fingerprint>,
) -> Result<TlsStream<TcpStream>, TlsFailure> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let config = match pin {
        Some(pin) => {
            let verifier = PinnedVerifier { pin: pin.clone(), provider };
            config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
        None => config.with_platform_verifier()?.with_no_client_auth(),
    };
    let name =
        ServerName::try_from(host.to_owned()).map_err(|error| format!("{host} is not a valid host name: {error}"))?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

/// Accepts exactly one certificate. Its issuer, names and validity are not checked.
#[derive(Debug)]
struct PinnedVerifier {
    pin: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let presented = Fingerprint::read(&homard_gateway::fingerprint(certificate));
        if presented.is_ok_and(|presented| presented == self.pin) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_parsed_with_and_without_separators() {
        let plain = "0f".repeat(32);
        let colons = vec!["0F"; 32].join(":");
        let read = |text: &str| Fingerprint::read(text).map_err(|error| error.to_string());
        for text in [&plain, &colons, &format!("sha256:{colons}"), &format!(" SHA256 {plain} ")] {
            assert_eq!(read(text), Ok(Fingerprint(plain.clone())), "{text}");
        }
        for text in ["", "0f", &plain[1..], &format!("{plain}0"), &"zz".repeat(32)] {
            let expected = "is not a SHA-256 fingerprint of a certificate: 64 hex digits, with or without colons";
            assert_eq!(read(text), Err(format!("{text} {expected}")));
        }
    }
}
