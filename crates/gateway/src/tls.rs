//! TLS at the door: the gateway's certificate, and a connection that becomes a secret one while it is read.
//!
//! The handshake goes on where the connection is read, not where it is accepted: so a peer that is slow at it holds up
//! nobody, and the lobby's rules (how long, how much) bind it from its first byte.

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

/// A certificate and its key, by which a gateway shows who it is.
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

/// Why a certificate and a key are of no use.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// There is no certificate.
    #[error("there is no certificate in it: a PEM file with BEGIN CERTIFICATE is needed")]
    NoCertificate,
    /// There is no key.
    #[error("there is no private key in it: a PEM file with BEGIN PRIVATE KEY is needed")]
    NoKey,
    /// They cannot be used, most likely because one is not the other's.
    #[error("the certificate and the key do not work together: {0}")]
    Unfit(#[source] rustls::Error),
}

impl Tls {
    /// TLS with this certificate (and those that vouch for it) and this key, as PEM files have them.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates).filter_map(Result::ok).collect();
        let own = chain.first().ok_or(TlsError::NoCertificate)?;
        let fingerprint = fingerprint(own);
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_none| TlsError::NoKey)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().map_err(TlsError::Unfit)?;
        let mut config = config.with_no_client_auth().with_single_cert(chain, key).map_err(TlsError::Unfit)?;
        // WebSockets begin as HTTP/1.1.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint })
    }

    /// What clients may know the certificate by.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// A connection on which both sides have yet to agree.
    pub(crate) fn accept<Io: AsyncRead + AsyncWrite + Unpin>(&self, io: Io) -> Secured<Io> {
        Secured::Agreeing(self.acceptor.accept(io))
    }
}

/// What a certificate is known by: its SHA-256, as `openssl x509 -fingerprint -sha256` writes it.
pub fn fingerprint(certificate: &[u8]) -> String {
    let bytes: Vec<_> = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// One end of a TLS connection.
pub(crate) enum Secured<Io> {
    /// The two sides agree on keys.
    Agreeing(Accept<Io>),
    /// What is said is secret.
    Open(TlsStream<Io>),
    /// They did not agree.
    Failed,
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Secured<Io> {
    fn open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut TlsStream<Io>>>> {
        if let Self::Agreeing(accept) = self {
            let agreed = ready!(Pin::new(accept).poll(cx));
            *self = Self::Failed;
            *self = Self::Open(agreed?);
        }
        Poll::Ready(match self {
            Self::Open(stream) => Ok(Pin::new(stream)),
            Self::Agreeing(_) | Self::Failed => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.open(cx))?.poll_read(cx, buf)
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.open(cx))?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Open(stream) => Pin::new(stream).poll_flush(cx),
            Self::Agreeing(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Open(stream) => Pin::new(stream).poll_shutdown(cx),
            // Nothing was said that could be cut short.
            Self::Agreeing(_) | Self::Failed => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_needs_its_own_key() {
        let pair = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (one, other) = (pair(), pair());
        let (certificate, key) = (one.cert.pem(), one.signing_key.serialize_pem());
        let tls = Tls::new(certificate.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(tls.fingerprint(), fingerprint(one.cert.der()));
        assert_eq!((tls.fingerprint().len(), tls.fingerprint().matches(':').count()), (95, 31));
        assert!(!format!("{tls:?}").contains("PRIVATE"));
        assert!(matches!(Tls::new(b"", key.as_bytes()), Err(TlsError::NoCertificate)));
        assert!(matches!(Tls::new(key.as_bytes(), key.as_bytes()), Err(TlsError::NoCertificate)));
        assert!(matches!(Tls::new(certificate.as_bytes(), certificate.as_bytes()), Err(TlsError::NoKey)));
        let of_another = other.signing_key.serialize_pem();
        assert!(matches!(Tls::new(certificate.as_bytes(), of_another.as_bytes()), Err(TlsError::Unfit(_))));
    }
}
