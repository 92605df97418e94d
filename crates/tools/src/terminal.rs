//! A pseudo-terminal for interactive commands.

use std::{io, os::fd::OwnedFd};

use rustix::{
    fs::{OFlags, fcntl_setfl},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt},
    termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};
use tokio::net::unix::pipe::{Receiver, Sender};

/// Size of the terminal as reported to the command.
const SIZE: Winsize = Winsize { ws_row: 30, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };

/// A new pseudo-terminal.
#[derive(Debug)]
pub(crate) struct PseudoTerminal {
    /// Output of the command. Reading fails when no process has the terminal open any more.
    pub(crate) output: Receiver,
    /// Input of the command.
    pub(crate) input: Sender,
    /// The command's side.
    pub(crate) slave: OwnedFd,
    /// Unique name among the open terminals.
    pub(crate) name: String,
}

impl PseudoTerminal {
    /// Opens a pseudo-terminal.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        let slave = ioctl_tiocgptpeer(&controller, flags)?;
        tcsetwinsize(&slave, SIZE)?;
        let mut settings = tcgetattr(&slave)?;
        // Lines end with LF, as in a pipe.
        settings.output_modes.remove(OutputModes::ONLCR);
        tcsetattr(&slave, OptionalActions::Now, &settings)?;
        fcntl_setfl(&controller, OFlags::RDWR | OFlags::NONBLOCK)?;
        let name = ptsname(&controller, Vec::new())?.to_string_lossy().into_owned();
        // Not a pipe, but it can be polled like one.
        let input = Sender::from_owned_fd_unchecked(controller.try_clone()?)?;
        let output = Receiver::from_owned_fd_unchecked(controller)?;
        Ok(Self { output, input, slave, name })
    }
}
