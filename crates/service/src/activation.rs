//! Sockets that the service manager opened (`LISTEN_FDS`).

use std::{io, net::TcpListener};

use listenfd::ListenFd;

/// Takes the TCP listeners that the service manager passed to this process; empty without any. Must be called once, and
/// before another thread or a child process exists, because the variables are removed from the environment.
pub fn inherited_listeners() -> io::Result<Vec<TcpListener>> {
    let mut sockets = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..sockets.len() {
        listeners.extend(sockets.take_tcp_listener(index)?);
    }
    Ok(listeners)
}
