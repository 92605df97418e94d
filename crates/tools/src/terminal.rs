//! A terminal of our own, for commands that want to be talked to.

use std::{io, os::fd::OwnedFd};

use rustix::{
    fs::{OFlags, fcntl_setfl},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt},
    termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};
use tokio::net::unix::pipe::{Receiver, Sender};

/// How large it says that it is.
const SIZE: Winsize = Winsize { ws_row: 30, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };

/// A new terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// What is shown. An error when nobody has the terminal open any more.
    pub(crate) shown: Receiver,
    /// Where keys are typed.
    pub(crate) typed: Sender,
    /// The side for the command.
    pub(crate) theirs: OwnedFd,
    /// What no other open terminal is called.
    pub(crate) name: String,
}

impl Terminal {
    /// Makes one.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let theirs = ioctl_tiocgptpeer(&ours, flags)?;
        tcsetwinsize(&theirs, SIZE)?;
        let mut settings = tcgetattr(&theirs)?;
        // Lines end as they do in a pipe.
        settings.output_modes.remove(OutputModes::ONLCR);
        tcsetattr(&theirs, OptionalActions::Now, &settings)?;
        fcntl_setfl(&ours, OFlags::RDWR | OFlags::NONBLOCK)?;
        let name = ptsname(&ours, Vec::new())?.to_string_lossy().into_owned();
        // It is no pipe, but can be waited for like one.
        let typed = Sender::from_owned_fd_unchecked(ours.try_clone()?)?;
        let shown = Receiver::from_owned_fd_unchecked(ours)?;
        Ok(Self { shown, typed, theirs, name })
    }
}
