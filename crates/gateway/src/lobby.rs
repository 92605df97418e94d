//! Those who came in and have not said who they are: few at a time, for a short while, with little to say.
//!
//! A WebSocket's size limit cannot be changed once it is open, so it must be the large one of known clients. What a
//! stranger can make us keep is bounded here instead, below HTTP and below TLS: its bytes are counted as they come in.

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

/// How large a stranger's frame may be.
pub(crate) const FRAME: usize = 65_536;

/// How much a stranger may send in all: a head of HTTP and one frame.
const ALLOWANCE: usize = FRAME + 16_384;

/// How much is lent to strangers at once, for what they say to channels and plugins.
const LENT: usize = 64 * 1024 * 1024;

/// How long a stranger may stay. A little more than the handshake's own deadline, which says goodbye properly.
const STAY: Duration = Duration::from_secs(11);

/// How many strangers of one household there may be. One more, and the one of them who waits longest must go: so nobody
/// can fill the room, and nobody can empty it of others.
const CORNER: usize = 32;

/// How many strangers there may be in all; one more, and the one who waits longest must go.
const ROOM: usize = 1024;

/// How many bytes are read and discarded, at most, so that a peer that is still sending can read why it is closed. More
/// than twice the largest frame.
const DISCARDED: usize = 64 * 1024 * 1024;

/// A peer, from when it came in.
#[derive(Debug)]
pub(crate) struct Guest {
    /// Its socket, as long as that is open.
    socket: Weak<Socket>,
    address: SocketAddr,
    /// The address of ours by which it came.
    local: SocketAddr,
    /// Where it belongs; of somebody behind a proxy that is known when it has said for whom it asks.
    household: OnceLock<IpAddr>,
    is_known: AtomicBool,
    allowance: AtomicUsize,
    out: CancellationToken,
}

impl Guest {
    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of ours by which it came.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// It has said who it is: the room's rules do not bind it any more.
    pub(crate) fn welcome(&self) {
        self.is_known.store(true, Ordering::Release);
    }

    /// Whether it has sent more than a stranger may.
    pub(crate) fn is_spent(&self) -> bool {
        self.allowance.load(Ordering::Relaxed) == 0
    }

    /// Whether it is still a stranger who may stay.
    fn waits(&self) -> bool {
        !self.is_known.load(Ordering::Acquire) && !self.out.is_cancelled()
    }

    /// Ends our side of the connection: the peer reads the end of the stream behind what was sent.
    pub(crate) async fn finish_sending(&self) {
        if let Some(socket) = self.socket.upgrade()
            && let Err(error) = poll_fn(|cx| Pin::new(&mut *socket.lock()).poll_shutdown(cx)).await
        {
            tracing::debug!(%error, "the sending side of a connection was not closed");
        }
    }

    /// Reads and discards what the peer still sends until it closes its side, for a bounded number of bytes. If unread
    /// bytes are in the receive buffer when a socket is closed, TCP resets the connection, and the peer loses what it has
    /// not read yet. The caller bounds the time.
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
        // It never says no.
        self.allowance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
    }
}

/// The room. Clones are the same room.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lobby(Arc<Room>);

#[derive(Debug, Default)]
struct Room {
    strangers: Mutex<VecDeque<Weak<Guest>>>,
    /// How many bytes are lent.
    lent: AtomicUsize,
}

/// Room for what a stranger says to somebody who will look who it is; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Loan(Arc<Room>, usize);

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.lent.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Lobby {
    /// Lets a peer in, and sends away who must go for it.
    fn enter(&self, guest: &Arc<Guest>) {
        let mut room = self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        room.retain(|guest| guest.upgrade().is_some_and(|guest| guest.waits()));
        room.push_back(Arc::downgrade(guest));
        let oldest = if room.len() > ROOM { room.front().and_then(Weak::upgrade) } else { crowded(&room, guest) };
        if let Some(oldest) = oldest {
            oldest.out.cancel();
        }
    }

    /// Lets a stranger say so many bytes more; `None` if too much is lent already.
    pub(crate) fn lend(&self, guest: &Guest, bytes: usize) -> Option<Loan> {
        let more = |lent: usize| lent.checked_add(bytes).filter(|lent| *lent <= LENT);
        self.0.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        guest.allowance.fetch_add(bytes, Ordering::Relaxed);
        Some(Loan(self.0.clone(), bytes))
    }

    /// A proxy has said for whom it asks: that is who counts from here on.
    pub(crate) fn belongs(&self, guest: &Arc<Guest>, client: IpAddr) {
        guest.household.get_or_init(|| household(client));
        let room = self.0.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(oldest) = crowded(&room, guest) {
            oldest.out.cancel();
        }
    }
}

/// The guest of the same household who waits longest, if there are too many of them.
fn crowded(room: &VecDeque<Weak<Guest>>, guest: &Guest) -> Option<Arc<Guest>> {
    let household = guest.household.get()?;
    let same = |guest: &Arc<Guest>| guest.waits() && guest.household.get() == Some(household);
    let mut family = room.iter().filter_map(Weak::upgrade).filter(same);
    let oldest = family.next()?;
    (family.count() >= CORNER).then_some(oldest)
}

/// A listener whose peers wait in the lobby.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) lobby: Lobby,
    /// How peers are spoken to in secret, if they are.
    pub(crate) tls: Option<Tls>,
    /// Peers that ask for others.
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
                    // Out of file descriptors, most likely: try again when some may have been closed.
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
        // One that is gone already has no address of ours; nor will it ask anything.
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
            // Either way the stay is over.
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

/// A guest as the handlers of its requests see it.
#[derive(Debug, Clone)]
pub(crate) struct Peer(pub(crate) Arc<Guest>);

impl Connected<IncomingStream<'_, Door>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Self(stream.io().guest.clone())
    }
}

/// A peer's connection.
pub(crate) struct Line {
    guest: Arc<Guest>,
    way: Way,
}

enum Way {
    Plain(Entrance),
    /// It is large, and most connections are none.
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

/// A TCP stream that its guest can reach, too. One task polls it for reading at a time: the connection's, or
/// [`Guest::discard`] once the connection reads no more.
#[derive(Debug)]
struct Socket(Mutex<TcpStream>);

impl Socket {
    fn lock(&self) -> MutexGuard<'_, TcpStream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A peer's TCP stream, which ends for a stranger who stays too long or says too much.
pub(crate) struct Entrance {
    socket: Arc<Socket>,
    guest: Arc<Guest>,
    /// Ready when the stay is over; `None` once the peer is known.
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
