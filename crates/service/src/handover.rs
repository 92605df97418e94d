//! Hand-over: the process replaces itself with a new one, possibly of another version, and passes its listening sockets
//! on. Connections that arrive meanwhile wait in the sockets' queues.
//!
//! The process id stays the same, so service managers and supervisors see no end of the service, and the state
//! directory is unlocked before the new program starts: two processes never own it at once. The sockets travel as
//! messages in a socket pair whose other end is the standard input of the new program.

use std::{
    ffi::OsString,
    io,
    mem::MaybeUninit,
    net::TcpListener,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// Variable that names the process whose standard input carries sockets.
pub const VARIABLE: &str = "HOMARD_HANDOVER";
/// Arguments by which the old program asks the new one whether it can take over.
pub const CHECK: [&str; 2] = ["gateway", "check"];

/// How long active runs may take to end before a restart, unless the request says otherwise.
pub const RESTART_WAIT: Duration = Duration::from_secs(60);

/// How to start the program again.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
}

/// Why a hand-over was refused. The old process continues.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The program cannot be started.
    #[error("{} cannot be started: {error}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The program found a reason why it could not take over.
    #[error("{} cannot take over: {reason}", path.display())]
    Unfit {
        /// The program.
        path: PathBuf,
        /// What it wrote.
        reason: String,
    },
}

impl Program {
    /// Remembers where this program is. Must be called before its file may be replaced: afterwards the system reports
    /// the deleted file.
    pub fn current(args: impl IntoIterator<Item = OsString>) -> io::Result<Self> {
        Ok(Self { path: std::env::current_exe()?, args: args.into_iter().skip(1).collect() })
    }

    /// Returns the path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets the program that is at this path now check the config and the format of the state directory. Blocks.
    pub fn check(&self, state_format: usize) -> Result<(), Refusal> {
        let mut command = Command::new(&self.path);
        command.args(CHECK).arg("--state-format").arg(state_format.to_string()).stdin(Stdio::null());
        let output = command.output().map_err(|error| Refusal::Start { path: self.path.clone(), error })?;
        if output.status.success() {
            return Ok(());
        }
        Err(Refusal::Unfit { path: self.path.clone(), reason: reason(&output) })
    }

    /// Replaces this process and passes the listeners on. Returns only if that failed.
    pub fn replace(&self, listeners: &[TcpListener]) -> io::Error {
        match pass_on(listeners) {
            Ok(carrier) => Command::new(&self.path)
                .args(&self.args)
                .env(VARIABLE, std::process::id().to_string())
                // The sockets of the service manager travel with the others; their numbers mean nothing any more.
                .env_remove("LISTEN_FDS")
                .env_remove("LISTEN_PID")
                .stdin(Stdio::from(carrier))
                .exec(),
            Err(error) => error,
        }
    }
}

/// Returns what a program wrote, else how it ended.
fn reason(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim().trim_start_matches("error: ");
    if text.is_empty() { output.status.to_string() } else { text.to_owned() }
}

/// Returns the end of a socket pair that carries the listeners. They stay in it when the other end is closed.
fn pass_on(listeners: &[TcpListener]) -> io::Result<OwnedFd> {
    let (sender, carrier) = UnixStream::pair()?;
    for listener in listeners {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [listener.as_fd()];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::Error::other("no space for a descriptor"));
        }
        sendmsg(&sender, &[io::IoSlice::new(b"L")], &mut control, SendFlags::empty())?;
    }
    Ok(carrier.into())
}

/// Takes the listeners of the previous process, if `VARIABLE` (its value is `process`) names this one.
pub fn received_listeners(process: Option<&str>) -> io::Result<Vec<TcpListener>> {
    // Children inherit the variable, but not the process id.
    if process.and_then(|process| process.parse().ok()) != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    receive(io::stdin().as_fd())
}

fn receive(carrier: impl AsFd) -> io::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0; 1];
        let message = recvmsg(
            &carrier,
            &mut [io::IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        )?;
        for received in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = received {
                listeners.extend(descriptors.map(TcpListener::from));
            }
        }
        // The other end is closed.
        if message.bytes == 0 {
            return Ok(listeners);
        }
    }
}

/// A request to hand over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoverRequest {
    /// How long active runs may take to end; the new process resumes the others.
    pub wait: Duration,
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, net::TcpStream};

    use super::*;

    #[test]
    fn a_connection_that_arrives_during_the_hand_over_is_accepted_afterwards() {
        let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let carrier = pass_on(&listeners).unwrap();
        drop(listeners);
        let mut client = TcpStream::connect(addresses[1]).unwrap();
        client.write_all(b"x").unwrap();
        let received = receive(carrier).unwrap();
        assert_eq!(received.iter().map(|listener| listener.local_addr().unwrap()).collect::<Vec<_>>(), addresses);
        assert_eq!(received[1].accept().unwrap().1, client.local_addr().unwrap());
    }

    #[test]
    fn standard_input_is_read_only_by_the_process_that_was_replaced() {
        for process in [None, Some("1"), Some("x"), Some("")] {
            assert!(received_listeners(process).unwrap().is_empty());
        }
    }

    #[test]
    fn a_program_that_refuses_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("homard");
        // Written by another process: a child of another test could inherit the open file, which could then not be
        // executed.
        let script =
            r#"printf '%s\n' '#!/bin/sh' 'echo "error: format $4 is too new" >&2' 'exit 1' > "$0"; chmod 755 "$0""#;
        assert!(Command::new("sh").arg("-c").arg(script).arg(&path).status().unwrap().success());
        let program = Program { path: path.clone(), args: Vec::new() };
        let refusal = program.check(9).unwrap_err().to_string();
        assert_eq!(refusal, format!("{} cannot take over: format 9 is too new", path.display()));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(program.check(9), Err(Refusal::Start { .. })));
    }
}
