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
    auth::household,
    tls::{Secured, Tls},
};

/// Maximum size of a frame before authentication.
pub(crate) const FRAME: usize = 65_536;

/// Maximum bytes a peer may send before authentication: an HTTP head and one frame.
const ALLOWANCE: usize = FRAME + 16_384;

/// Total memory for unauthenticated request bodies (channel webhooks, plugin routes), across all peers.
const LENT: usize = 64 * 1024 * 1024;

/// Time a peer has to authenticate. Slightly longer than the handshake's own deadline, which sends a proper close
/// frame.
const STAY: Duration = Duration::from_secs(11);

/// Maximum unauthenticated connections per IP prefix. When exceeded, the oldest of that prefix is closed, so that one
/// network can neither fill the table nor evict others.
const CORNER: usize = 32;

/// Maximum unauthenticated connections in total. When exceeded, the oldest is closed.
const ROOM: usize = 1024;

/// Maximum number of bytes that are read and discarded, so that a peer that is still sending can read the close frame.
/// More than twice the largest frame.
const DISCARDED: usize = 64 * 1024 * 1024;

/// A connection and its pre-authentication limits.
#[derive(Debug)]
pub(crate) struct Guest {
    /// The TCP socket, while it is open.
    socket: Weak<Socket>,
    address: SocketAddr,
    /// Local address the connection was accepted on.
    local: SocketAddr,
    /// IP prefix used for the limits. For connections through a trusted proxy it is set once the forwarded address is
    /// known.
    household: OnceLock<IpAddr>,
    is_known: AtomicBool,
    allowance: AtomicUsize,
    out: CancellationToken,
}

impl Guest {
    /// Returns the peer's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the local address the connection was accepted on.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// Marks the connection as authenticated; limits no longer apply.
    pub(crate) fn welcome(&self) {
        self.is_known.store(true, Ordering::Release);
    }

    /// Returns true once the peer has used up its pre-authentication bytes.
    pub(crate) fn is_spent(&self) -> bool {
        self.allowance.load(Ordering::Relaxed) == 0
    }

    /// True if the peer is unauthenticated and not evicted.
    fn waits(&self) -> bool {
        !self.is_known.load(Ordering::Acquire) && !self.out.is_cancelled()
    }

    /// Shuts down the sending side: the peer reads the end of the stream after the data sent so far.
    pub(crate) async fn finish_sending(&self) {
        if let Some(socket) = self.socket.upgrade()
            && let Err(error) = poll_fn(|cx| Pin::new(&mut *socket.lock()).poll_shutdown(cx)).await
        {
            tracing::debug!(%error, "the sending side of a connection was not closed");
        }
    }

    /// Reads and discards what the peer still sends until it closes its side, for a bounded number of bytes. If unread
    /// bytes are in the receive buffer when a socket is closed, TCP resets the connection, and the peer loses what it
    /// has not read yet. The caller bounds the time.
    pub(crate) async fn discard(&self) {
        let Some(socket) = self.socket.upgrade() else { return };
        let mut scratch = vec![0; 16_384];
        let mut left = DISCARDED;
        while left > 0 {
            let read = poll_fn(|cx| {
                let mut scratch = ReadBuf::new(&mut scratch);
                ready!(Pin::new(&mut *socket.lock()).poll_read(cx, &mut scratch))?;
                Poll::Ready(io::Result::Ok(scratch.filled().len()))
            });
            let read = tokio::select! {
                biased;
                () = self.out.cancelled() => return,
                read = read => read.unwrap_or(0),
            };
            if read == 0 {
                return;
            }
            left = left.saturating_sub(read);
        }
    }

    fn spend(&self, bytes: usize) {
        let less = |left: usize| Some(left.saturating_sub(bytes));
        // The closure never returns `None`, so this cannot fail.
        self.allowance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }
}

/// Table of unauthenticated connections. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lobby(Arc<Room>);

#[derive(Debug, Default)]
struct Room {
    strangers: Mutex<VecDeque<Weak<Guest>>>,
    /// Bytes reserved for request bodies.
    lent: AtomicUsize,
}

/// Reservation of bytes for an unauthenticated request body; released on drop.
#[derive(Debug)]
pub(crate) struct Loan(Arc<Room>, usize);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.lent.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Lobby {
    /// Adds a connection and evicts another if a limit is exceeded.
    fn enter(&self, guest: &Arc<Guest>) {
        let mut room = self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        room.retain(|guest| guest.upgrade().is_some_and(|guest| guest.waits()));
        room.push_back(Arc::downgrade(guest));
        let oldest = if room.len() > ROOM { room.front().and_then(Weak::upgrade) } else { crowded(&room, guest) };
        if let Some(oldest) = oldest {
            oldest.out.cancel();
        }
    }

    /// Allows a peer to send more bytes; `None` if the shared pool is exhausted.
    pub(crate) fn lend(&self, guest: &Guest, bytes: usize) -> Option<Loan> {
        let more = |lent: usize| lent.checked_add(bytes).filter(|lent| *lent <= LENT);
        self.0.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        guest.allowance.fetch_add(bytes, Ordering::Relaxed);
        Some(Loan(self.0.clone(), bytes))
    }

    /// Sets the client address that a proxy reported; the limits apply to its prefix from now on.
    pub(crate) fn belongs(&self, guest: &Arc<Guest>, client: IpAddr) {
        guest.household.get_or_init(|| household(client));
        let room = self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(oldest) = crowded(&room, guest) {
            oldest.out.cancel();
        }
    }
}

/// Returns the oldest connection of the same prefix, if there are too many of them.
fn crowded(room: &VecDeque<Weak<Guest>>, guest: &Guest) -> Option<Arc<Guest>> {
    let household = guest.household.get()?;
    let same = |guest: &Arc<Guest>| guest.waits() && guest.household.get() == Some(household);
    let mut family = room.iter().filter_map(Weak::upgrade).filter(same);
    let oldest = family.next()?;
    (family.count() >= CORNER).then_some(oldest)
}

/// A TCP listener that applies the pre-authentication limits.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) lobby: Lobby,
    /// TLS settings, if enabled.
    pub(crate) tls: Option<Tls>,
    /// Trusted proxies.
    pub(crate) proxies: Arc<[IpAddr]>,
    pub(crate) stop: CancellationToken,
}

impl Listener for Door {
    type Io = Line;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (self.receive(stream, address), address),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
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

impl Door {
    fn receive(&self, stream: TcpStream, address: SocketAddr) -> Line {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was not set");
        }
        let out = self.stop.child_token();
        let peer = address.ip().to_canonical();
        // A peer that has disconnected already has no local address; it will not send a request either.
        let local = stream.local_addr().unwrap_or(address);
        let home = OnceLock::new();
        if !self.proxies.contains(&peer) {
            home.get_or_init(|| household(peer));
        }
        let socket = Arc::new(Socket(Mutex::new(stream)));
        let guest = Arc::new(Guest {
            socket: Arc::downgrade(&socket),
            address,
            local,
            household: home,
            is_known: AtomicBool::new(false),
            allowance: AtomicUsize::new(ALLOWANCE),
            out: out.clone(),
        });
        self.lobby.enter(&guest);
        let until = async move {
            // Timeout and eviction both end the stay.
            tokio::time::timeout(STAY, out.cancelled()).await.ok();
        };
        let entrance = Entrance { socket, guest: guest.clone(), until: Some(Box::pin(until)) };
        let way = match &self.tls {
            Some(tls) => Way::Secret(Box::new(tls.accept(entrance))),
            None => Way::Plain(entrance),
        };
        Line { guest, way }
    }
}

/// Connection info for request handlers.
#[derive(Debug, Clone)]
pub(crate) struct Peer(pub(crate) Arc<Guest>);

impl Connected<IncomingStream<'_, Door>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Self(stream.io().guest.clone())
    }
}

/// An accepted connection, with or without TLS.
pub(crate) struct Line {
    guest: Arc<Guest>,
    way: Way,
}

enum Way {
    Plain(Entrance),
    /// Boxed, because it is large and most connections do not use TLS.
    Secret(Box<Secured<Entrance>>),
}

impl AsyncRead for Line {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Way::Secret(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Way::Secret(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Way::Secret(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Way::Secret(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A TCP stream shared with its [`Guest`]. One task at a time polls it for reading: the connection's, or
/// [`Guest::discard`] once the connection reads no more.
#[derive(Debug)]
struct Socket(Mutex<TcpStream>);

impl Socket {
    fn lock(&self) -> MutexGuard<'_, TcpStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The peer's TCP stream; ends for an unauthenticated peer that exceeds its time or bytes.
pub(crate) struct Entrance {
    socket: Arc<Socket>,
    guest: Arc<Guest>,
    /// Resolves when the time is up or the peer is evicted; `None` once the peer is authenticated.
    until: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl AsyncRead for Entrance {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.guest.is_known.load(Ordering::Acquire) {
            self.until = None;
        }
        let this = &mut *self;
        let Some(until) = &mut this.until else { return Pin::new(&mut *this.socket.lock()).poll_read(cx, buf) };
        if this.guest.out.is_cancelled() || until.as_mut().poll(cx).is_ready() {
            this.guest.out.cancel();
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not say who it is")));
        }
        if this.guest.is_spent() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the peer said too much")));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut *this.socket.lock()).poll_read(cx, buf))?;
        this.guest.spend(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Entrance {
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
