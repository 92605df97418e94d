//! Limits for connections that have not authenticated yet.
//!
//! A WebSocket's maximum frame size cannot be changed after the upgrade, so it has to be the large one that
//! authenticated clients need. This module therefore bounds what an unauthenticated peer can make the gateway buffer
//! one layer further down, below HTTP and TLS: it counts bytes as they are read from the socket.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::ip_prefix,
    tls::{Tls, TlsConnection},
};

/// Maximum size of a frame before authentication.
pub(crate) const MAX_FRAME: usize = 65_536;

/// Maximum bytes a peer may send before authentication: an HTTP head and one frame.
const PREAUTH_MAX_BYTES: usize = MAX_FRAME + 16_384;

/// Total memory for unauthenticated request bodies (channel webhooks, plugin routes), across all peers.
const BODY_POOL_BYTES: usize = 64 * 1024 * 1024;

/// Time a peer has to authenticate. Slightly longer than the handshake's own deadline, which sends a proper close
/// frame.
const PREAUTH_TIMEOUT: Duration = Duration::from_secs(11);

/// Maximum unauthenticated connections per IP prefix. When exceeded, the oldest of that prefix is closed, so that one
/// network can neither fill the table nor evict others.
const MAX_PER_PREFIX: usize = 32;

/// Maximum unauthenticated connections in total. When exceeded, the oldest is closed.
const MAX_PREAUTH: usize = 1024;

/// Maximum number of bytes that are read and discarded, so that a peer that is still sending can read the close frame.
/// More than twice the largest frame.
const MAX_DISCARD_BYTES: usize = 64 * 1024 * 1024;

/// A connection and its pre-authentication limits.
#[derive(Debug)]
pub(crate) struct PendingConnection {
    /// The TCP socket, while it is open.
    socket: Weak<Socket>,
    address: SocketAddr,
    /// Local address the connection was accepted on.
    local: SocketAddr,
    /// IP prefix used for the limits. For connections through a trusted proxy it is set once the forwarded address is
    /// known.
    prefix: OnceLock<IpAddr>,
    is_authenticated: AtomicBool,
    bytes_left: AtomicUsize,
    closed: CancellationToken,
}

impl PendingConnection {
    /// Returns the peer's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the local address the connection was accepted on.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Marks the connection as authenticated; limits no longer apply.
    pub(crate) fn mark_authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Release);
    }

    /// Returns true once the peer has used up its pre-authentication bytes.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.bytes_left.load(Ordering::Relaxed) == 0
    }

    /// True if the peer is unauthenticated and not evicted.
    fn is_pending(&self) -> bool {
        !self.is_authenticated.load(Ordering::Acquire) && !self.closed.is_cancelled()
    }

    /// Shuts down the sending side: the peer reads the end of the stream after the data sent so far.
    pub(crate) async fn finish_sending(&self) {
        if let Some(socket) = self.socket.upgrade()
            && let Err(error) = poll_fn(|cx| Pin::new(&mut *socket.lock()).poll_shutdown(cx)).await
        {
            tracing::debug!(%error, "failed to shut down the sending side of a connection");
        }
    }

    /// Reads and discards what the peer still sends until it closes its side, for a bounded number of bytes. If unread
    /// bytes are in the receive buffer when a socket is closed, TCP resets the connection, and the peer loses what it
    /// has not read yet. The caller bounds the time.
    pub(crate) async fn discard(&self) {
        let Some(socket) = self.socket.upgrade() else { return };
        let mut buffer = vec![0; 16_384];
        let mut remaining = MAX_DISCARD_BYTES;
        while remaining > 0 {
            let read = poll_fn(|cx| {
                let mut buffer = ReadBuf::new(&mut buffer);
                ready!(Pin::new(&mut *socket.lock()).poll_read(cx, &mut buffer))?;
                Poll::Ready(io::Result::Ok(buffer.filled().len()))
            });
            let read = tokio::select! {
                biased;
                () = self.closed.cancelled() => return,
                read = read => read.unwrap_or(0),
            };
            if read == 0 {
                return;
            }
            remaining = remaining.saturating_sub(read);
        }
    }

    fn consume(&self, bytes: usize) {
        let subtract = |bytes_left: usize| Some(bytes_left.saturating_sub(bytes));
        // The closure never returns `None`, so this cannot fail.
        self.bytes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract).ok();
    }
}

/// Table of unauthenticated connections. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreAuthLimiter(Arc<PreAuthTable>);

#[derive(Debug, Default)]
struct PreAuthTable {
    pending: Mutex<VecDeque<Weak<PendingConnection>>>,
    /// Bytes reserved for request bodies.
    reserved: AtomicUsize,
}

/// Reservation of bytes for an unauthenticated request body; released on drop.
#[derive(Debug)]
pub(crate) struct BodyReservation(Arc<PreAuthTable>, usize);

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.0.reserved.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl PreAuthLimiter {
    /// Adds a connection and evicts another if a limit is exceeded.
    fn add(&self, connection: &Arc<PendingConnection>) {
        let mut pending = self.0.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|connection| connection.upgrade().is_some_and(|connection| connection.is_pending()));
        pending.push_back(Arc::downgrade(connection));
        let oldest = if pending.len() > MAX_PREAUTH {
            pending.front().and_then(Weak::upgrade)
        } else {
            oldest_over_limit(&pending, connection)
        };
        if let Some(oldest) = oldest {
            oldest.closed.cancel();
        }
    }

    /// Allows a peer to send more bytes; `None` if the shared pool is exhausted.
    pub(crate) fn reserve(&self, connection: &PendingConnection, bytes: usize) -> Option<BodyReservation> {
        let add = |reserved: usize| reserved.checked_add(bytes).filter(|reserved| *reserved <= BODY_POOL_BYTES);
        self.0.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        connection.bytes_left.fetch_add(bytes, Ordering::Relaxed);
        Some(BodyReservation(self.0.clone(), bytes))
    }

    /// Sets the client address that a proxy reported; the limits apply to its prefix from now on.
    pub(crate) fn set_client(&self, connection: &Arc<PendingConnection>, client: IpAddr) {
        connection.prefix.get_or_init(|| ip_prefix(client));
        let pending = self.0.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(oldest) = oldest_over_limit(&pending, connection) {
            oldest.closed.cancel();
        }
    }
}

/// Returns the oldest connection of the same prefix, if there are too many of them.
fn oldest_over_limit(
    pending: &VecDeque<Weak<PendingConnection>>,
    connection: &PendingConnection,
) -> Option<Arc<PendingConnection>> {
    let prefix = connection.prefix.get()?;
    let has_prefix =
        |connection: &Arc<PendingConnection>| connection.is_pending() && connection.prefix.get() == Some(prefix);
    let mut peers = pending.iter().filter_map(Weak::upgrade).filter(has_prefix);
    let oldest = peers.next()?;
    (peers.count() >= MAX_PER_PREFIX).then_some(oldest)
}

/// A TCP listener that applies the pre-authentication limits.
#[derive(Debug)]
pub(crate) struct PreAuthListener {
    pub(crate) listener: TcpListener,
    pub(crate) limiter: PreAuthLimiter,
    /// TLS settings, if enabled.
    pub(crate) tls: Option<Tls>,
    /// Trusted proxies.
    pub(crate) proxies: Arc<[IpAddr]>,
    pub(crate) stop: CancellationToken,
    /// Cancelled before `stop`: no further connections are accepted.
    pub(crate) ending: CancellationToken,
}

impl Listener for PreAuthListener {
    type Io = AcceptedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let accepted = tokio::select! {
                biased;
                // Connections that arrive from now on belong to the next process.
                () = self.ending.cancelled() => std::future::pending().await,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, address)) => return (self.wrap(stream, address), address),
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    // Most likely out of file descriptors: retry when some may have been closed.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl PreAuthListener {
    fn wrap(&self, stream: TcpStream, address: SocketAddr) -> AcceptedStream {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set TCP_NODELAY");
        }
        let closed = self.stop.child_token();
        let peer = address.ip().to_canonical();
        // A peer that has disconnected already has no local address; it will not send a request either.
        let local = stream.local_addr().unwrap_or(address);
        let prefix = OnceLock::new();
        if !self.proxies.contains(&peer) {
            prefix.get_or_init(|| ip_prefix(peer));
        }
        let socket = Arc::new(Socket(Mutex::new(stream)));
        let connection = Arc::new(PendingConnection {
            socket: Arc::downgrade(&socket),
            address,
            local,
            prefix,
            is_authenticated: AtomicBool::new(false),
            bytes_left: AtomicUsize::new(PREAUTH_MAX_BYTES),
            closed: closed.clone(),
        });
        self.limiter.add(&connection);
        let deadline = async move {
            // Timeout and eviction both end the stay.
            tokio::time::timeout(PREAUTH_TIMEOUT, closed.cancelled()).await.ok();
        };
        let limited = LimitedStream { socket, connection: connection.clone(), deadline: Some(Box::pin(deadline)) };
        let transport = match &self.tls {
            Some(tls) => StreamTransport::Tls(Box::new(tls.accept(limited))),
            None => StreamTransport::Plain(limited),
        };
        AcceptedStream { connection, transport }
    }
}

/// Connection info for request handlers.
#[derive(Debug, Clone)]
pub(crate) struct PeerInfo(pub(crate) Arc<PendingConnection>);

impl Connected<IncomingStream<'_, PreAuthListener>> for PeerInfo {
    fn connect_info(stream: IncomingStream<'_, PreAuthListener>) -> Self {
        Self(stream.io().connection.clone())
    }
}

/// An accepted connection, with or without TLS.
pub(crate) struct AcceptedStream {
    connection: Arc<PendingConnection>,
    transport: StreamTransport,
}

enum StreamTransport {
    Plain(LimitedStream),
    /// Boxed, because it is large and most connections do not use TLS.
    Tls(Box<TlsConnection<LimitedStream>>),
}

impl AsyncRead for AcceptedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            StreamTransport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            StreamTransport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for AcceptedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            StreamTransport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            StreamTransport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            StreamTransport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            StreamTransport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            StreamTransport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            StreamTransport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A TCP stream shared with its [`PendingConnection`]. One task at a time polls it for reading: the connection's, or
/// [`PendingConnection::discard`] once the connection reads no more.
#[derive(Debug)]
struct Socket(Mutex<TcpStream>);

impl Socket {
    fn lock(&self) -> MutexGuard<'_, TcpStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The peer's TCP stream; ends for an unauthenticated peer that exceeds its time or bytes.
pub(crate) struct LimitedStream {
    socket: Arc<Socket>,
    connection: Arc<PendingConnection>,
    /// Resolves when the time is up or the peer is evicted; `None` once the peer is authenticated.
    deadline: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl AsyncRead for LimitedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.connection.is_authenticated.load(Ordering::Acquire) {
            self.deadline = None;
        }
        let this = &mut *self;
        let Some(deadline) = &mut this.deadline else { return Pin::new(&mut *this.socket.lock()).poll_read(cx, buf) };
        if this.connection.closed.is_cancelled() || deadline.as_mut().poll(cx).is_ready() {
            this.connection.closed.cancel();
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not authenticate in time")));
        }
        if this.connection.is_exhausted() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the peer sent too many bytes before authenticating",
            )));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut *this.socket.lock()).poll_read(cx, buf))?;
        this.connection.consume(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket.lock()).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.lock()).poll_shutdown(cx)
    }
}
