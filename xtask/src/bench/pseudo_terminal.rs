//! A program on a pseudo-terminal: what it writes, and when.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tokio::time::Instant;

/// Size of the terminal.
const ROWS: u16 = 30;
const COLUMNS: u16 = 100;

/// Queries of programs, and what a terminal answers: the position of the cursor, its kind, its colours, its keyboard.
const QUERIES: [(&[u8], &[u8]); 6] = [
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b[>c", b"\x1b[>0;276;0c"),
    (b"\x1b]10;?", b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
    (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
    (b"\x1b[?u", b"\x1b[?0u"),
];

/// A running program. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct TerminalProgram {
    child: Child,
    started_at: Instant,
    keyboard: File,
    output: Receiver<(Instant, Vec<u8>)>,
    /// What was written and not yet searched.
    pending: Vec<u8>,
}

impl TerminalProgram {
    /// Starts a program with a terminal as its input and output.
    pub(super) fn start(mut command: Command) -> Result<Self> {
        let (master, slave) = open().context("cannot open a pseudo-terminal")?;
        let keyboard = File::from(master);
        let (screen, answers) = (keyboard.try_clone()?, keyboard.try_clone()?);
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        let started_at = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        // Otherwise the terminal stays open on this side, and reading it never ends.
        drop(command);
        let (sender, output) = mpsc::channel();
        thread::spawn(move || read(screen, answers, &sender));
        Ok(Self { child, started_at, keyboard, output, pending: Vec::new() })
    }

    /// Returns its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns when it was started.
    pub(super) fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Types a text. Returns when.
    pub(super) fn types(&mut self, text: &str) -> Result<Instant> {
        let at = Instant::now();
        self.keyboard.write_all(text.as_bytes()).context("the terminal is closed")?;
        Ok(at)
    }

    /// Waits until it writes a text, and returns when the last byte of it came. What was written before is not searched
    /// again.
    pub(super) fn wait_for(&mut self, text: &str, limit: Duration) -> Result<Instant> {
        let until = Instant::now() + limit;
        let mut at = Instant::now();
        loop {
            if let Some(found) = find(&self.pending, text.as_bytes()) {
                self.pending.drain(..found + text.len());
                return Ok(at);
            }
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((read_at, bytes)) => {
                    at = read_at;
                    self.pending.extend(bytes);
                }
                Err(RecvTimeoutError::Timeout) => bail!("{text:?} was not shown within {limit:?}: {}", self.tail()),
                Err(RecvTimeoutError::Disconnected) => bail!("it ended before {text:?} was shown: {}", self.tail()),
            }
        }
    }

    /// Drops what was written so far.
    pub(super) fn forget(&mut self) {
        self.pending.clear();
        while self.output.try_recv().is_ok() {}
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        // The channel is closed when no process has the terminal any more.
        loop {
            match self.output.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("it did not end within {limit:?}"),
            }
        }
        self.child.wait()?;
        Ok(())
    }

    fn tail(&self) -> String {
        let start = self.pending.len().saturating_sub(600);
        String::from_utf8_lossy(&self.pending[start..]).escape_debug().to_string()
    }
}

impl Drop for TerminalProgram {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("cannot end process {}: {error}", self.child.id());
        }
    }
}

/// Opens a terminal: our side, and the program's side.
fn open() -> Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    tcsetwinsize(&slave, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 })?;
    Ok((master, slave))
}

/// Reads what the program writes, and answers its queries.
fn read(mut screen: File, mut answers: File, sender: &mpsc::Sender<(Instant, Vec<u8>)>) {
    let mut buffer = [0; 16_384];
    // Once all processes have closed the terminal, Linux reports EIO.
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        let at = Instant::now();
        for (query, answer) in QUERIES {
            if find(&buffer[..count], query).is_some() && answers.write_all(answer).is_err() {
                return;
            }
        }
        if sender.send((at, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_writes_is_seen_and_its_queries_are_answered() {
        let limit = Duration::from_secs(10);
        let mut command = Command::new("sh");
        command
            .args(["-c", "stty raw -echo; printf 'ready\\033[6n'; head -c 6 | od -An -c; head -c 3; echo; stty size"]);
        let mut program = TerminalProgram::start(command).unwrap();
        program.wait_for("ready", limit).unwrap();
        program.wait_for("1   ;   1   R", limit).unwrap();
        program.types("abc").unwrap();
        program.wait_for("abc", limit).unwrap();
        program.wait_for("30 100", limit).unwrap();
        program.wait(limit).unwrap();
        assert!(program.wait_for("more", limit).is_err());
    }
}
