//! TLS: the gateway's certificate, and a stream that performs the handshake while it is read.
//!
//! The handshake happens when the connection is read, not when it is accepted. A slow peer therefore blocks no other,
//! and the pre-authentication limits on time and bytes apply from the first byte.

use std::{
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{Accept, TlsAcceptor, server::TlsStream};

/// A certificate and its private key.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    fingerprint: String,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

/// Why a certificate and key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No certificate was found.
    #[error("the file contains no certificate: a PEM file with BEGIN CERTIFICATE is required")]
    NoCertificate,
    /// No private key was found.
    #[error("the file contains no private key: a PEM file with BEGIN PRIVATE KEY is required")]
    NoKey,
    /// They are rejected, most likely because the key does not belong to the certificate.
    #[error("the certificate and the private key cannot be used together: {0}")]
    Mismatch(rustls::Error),
}

impl Tls {
    /// Creates TLS settings from a PEM certificate chain and a PEM private key.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates).filter_map(Result::ok).collect();
        let leaf = chain.first().ok_or(TlsError::NoCertificate)?;
        let fingerprint = fingerprint(leaf);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_none| TlsError::NoKey)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(TlsError::Mismatch)?;
        let mut config = config.with_no_client_auth().with_single_cert(chain, key).map_err(TlsError::Mismatch)?;
        // WebSockets begin as HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint })
    }

    /// Returns the SHA-256 fingerprint of the certificate.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Wraps an accepted connection; the handshake follows on first use.
    pub(crate) fn accept<Io: AsyncRead + AsyncWrite + Unpin>(&self, io: Io) -> TlsConnection<Io> {
        TlsConnection::Handshaking(self.acceptor.accept(io))
    }
}

/// Computes the SHA-256 fingerprint of a certificate, as `openssl x509 -fingerprint -sha256` prints it.
pub fn fingerprint(certificate: &[u8]) -> String {
    let bytes: Vec<_> = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// Server side of a TLS connection.
pub(crate) enum TlsConnection<Io> {
    /// Handshake in progress.
    Handshaking(Accept<Io>),
    /// Handshake completed.
    Open(TlsStream<Io>),
    /// Handshake failed.
    Failed,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> TlsConnection<Io> {
    fn open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut TlsStream<Io>>>> {
        if let Self::Handshaking(accept) = self {
            let stream_result = ready!(Pin::new(accept).poll(cx));
            *self = Self::Failed;
            *self = Self::Open(stream_result?);
        }
        Poll::Ready(match self {
            Self::Open(stream) => Ok(Pin::new(stream)),
            Self::Handshaking(_) | Self::Failed => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsConnection<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.open(cx))?.poll_read(cx, buf)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsConnection<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.open(cx))?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Open(stream) => Pin::new(stream).poll_flush(cx),
            Self::Handshaking(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Open(stream) => Pin::new(stream).poll_shutdown(cx),
            // No data was sent, so there is nothing to shut down.
            Self::Handshaking(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_needs_its_own_key() {
        let pair = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (own, other) = (pair(), pair());
        let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let tls = Tls::new(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(tls.fingerprint(), fingerprint(own.cert.der()));
        assert_eq!((tls.fingerprint().len(), tls.fingerprint().matches(':').count()), (95, 31));
        assert!(!format!("{tls:?}").contains("PRIVATE"));
        assert!(matches!(Tls::new(b"", key.as_bytes()), Err(TlsError::NoCertificate)));
        assert!(matches!(Tls::new(key.as_bytes(), key.as_bytes()), Err(TlsError::NoCertificate)));
        assert!(matches!(Tls::new(certificate.as_bytes(), certificate.as_bytes()), Err(TlsError::NoKey)));
        let other_key = other.signing_key.serialize_pem();
        assert!(matches!(Tls::new(certificate.as_bytes(), other_key.as_bytes()), Err(TlsError::Mismatch(_))));
    }
}
