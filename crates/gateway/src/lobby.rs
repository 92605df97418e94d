//! Those who came in and have not said who they are: few at a time, for a short while, with little to say.
//!
//! A WebSocket's size limit cannot be changed once it is open, so it must be the large one of known clients. What a
//! stranger can make us keep is bounded here instead, below HTTP: its bytes are counted as they come in.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError, Weak,
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

/// How large a stranger's frame may be.
pub(crate) const FRAME: usize = 65_536;

/// How much a stranger may send in all: a head of HTTP and one frame.
const ALLOWANCE: usize = FRAME + 16_384;

/// How long a stranger may stay. A little more than the handshake's own deadline, which says goodbye properly.
const STAY: Duration = Duration::from_secs(11);

/// How many strangers there may be. One more, and the one who waits longest must go: so nobody can fill the room.
const ROOM: usize = 32;

/// A peer, from when it came in.
#[derive(Debug)]
pub(crate) struct Guest {
    address: SocketAddr,
    is_known: AtomicBool,
    allowance: AtomicUsize,
    out: CancellationToken,
}

impl Guest {
    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// It has said who it is: the room's rules do not bind it any more.
    pub(crate) fn welcome(&self) {
        self.is_known.store(true, Ordering::Release);
    }

    /// Whether it has sent more than a stranger may.
    pub(crate) fn is_spent(&self) -> bool {
        self.allowance.load(Ordering::Relaxed) == 0
    }

    fn spend(&self, bytes: usize) {
        let left = self.allowance.load(Ordering::Relaxed);
        self.allowance.store(left.saturating_sub(bytes), Ordering::Relaxed);
    }
}

/// The room. Clones are the same room.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lobby(Arc<Mutex<VecDeque<Weak<Guest>>>>);

impl Lobby {
    /// Lets a peer in; returns the one who must go for it, if any.
    fn enter(&self, guest: &Arc<Guest>) -> Option<Arc<Guest>> {
        let mut room = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stays = |guest: &Weak<Guest>| {
            guest.upgrade().is_some_and(|guest| !guest.is_known.load(Ordering::Acquire) && !guest.out.is_cancelled())
        };
        room.retain(stays);
        room.push_back(Arc::downgrade(guest));
        if room.len() > ROOM { room.pop_front()?.upgrade() } else { None }
    }
}

/// A listener whose peers wait in the lobby.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) listener: TcpListener,
    pub(crate) lobby: Lobby,
    pub(crate) stop: CancellationToken,
}

impl Listener for Door {
    type Io = Entrance;
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
    fn receive(&self, stream: TcpStream, address: SocketAddr) -> Entrance {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY was not set");
        }
        let out = self.stop.child_token();
        let guest = Arc::new(Guest {
            address,
            is_known: AtomicBool::new(false),
            allowance: AtomicUsize::new(ALLOWANCE),
            out: out.clone(),
        });
        if let Some(oldest) = self.lobby.enter(&guest) {
            oldest.out.cancel();
        }
        let until = async move {
            // Either way the stay is over.
            tokio::time::timeout(STAY, out.cancelled()).await.ok();
        };
        Entrance { stream, guest, until: Some(Box::pin(until)) }
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

/// A peer's TCP stream, which ends for a stranger who stays too long or says too much.
pub(crate) struct Entrance {
    stream: TcpStream,
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
        let Some(until) = &mut this.until else { return Pin::new(&mut this.stream).poll_read(cx, buf) };
        if this.guest.out.is_cancelled() || until.as_mut().poll(cx).is_ready() {
            this.guest.out.cancel();
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer did not say who it is")));
        }
        if this.guest.is_spent() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::QuotaExceeded, "the peer said too much")));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.guest.spend(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Entrance {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
