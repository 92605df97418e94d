//! Tier B: the process between the gateway and a command, which ends all that the command started.
//!
//! There is no namespace to end, so this process is the subreaper of the command: a process whose parent is gone becomes
//! its child, whatever session, group or environment it has given itself. Not confined itself, it waits for the end of
//! the command or of the gateway, and then kills its children until the kernel says that it has none.

use std::{
    io,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, pidfd_open, pidfd_send_signal,
        set_child_subreaper, wait,
    },
};

use crate::tree::children;

/// How long between two looks for children that do not react to a signal at once.
const LOOK: Duration = Duration::from_millis(1);

/// How often it looks without a pause: faster than a process that forks and ends all the time.
const IN_A_ROW: usize = 1000;

/// Runs a command as a child of this process, and ends with its exit code when none of its processes is left.
pub(super) fn supervise(gateway: u32, command: &mut Command) -> io::Result<ExitCode> {
    set_child_subreaper(Some(getpid()))?;
    let gateway = Pid::from_raw(gateway.cast_signed()).ok_or(Errno::SRCH)?;
    let opened = pidfd_open(gateway, PidfdFlags::empty())?;
    // Only now is it sure that the number was not given to another process meanwhile.
    if getppid() != Some(gateway) {
        return Err(io::Error::other("the gateway is gone"));
    }
    let leader = Pid::from_child(&command.spawn()?);
    let ended = pidfd_open(leader, PidfdFlags::empty())?;
    thread::Builder::new().spawn(move || {
        let mut gateway = [PollFd::new(&opened, PollFlags::IN)];
        while poll(&mut gateway, None) == Err(Errno::INTR) {}
        // An error means that the command is over by itself.
        pidfd_send_signal(&ended, Signal::KILL).ok();
    })?;
    let status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == leader => break Some(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break None,
        }
    };
    end_all();
    Ok(status.map_or(ExitCode::FAILURE, exit_code))
}

/// Kills the children of this process, and those that become its children by that, until there are none.
fn end_all() {
    for look in 0.. {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        // None of them is reaped before the next round, so no number can mean another process.
        for child in children(getpid()) {
            kill_process(child, Signal::KILL).ok();
        }
        if look > IN_A_ROW {
            thread::sleep(LOOK);
        }
    }
}

/// What a shell says of a program: its code, or 128 and the number of the signal.
fn exit_code(status: WaitStatus) -> ExitCode {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
