//! Tier B supervisor: the process between the gateway and a command that ends all processes of the command.
//!
//! Without a PID namespace, this process makes itself the subreaper of the command: orphaned processes become its
//! children, whatever session, group or environment they have set. It is not confined itself. It waits until the
//! command or the gateway ends, and then kills its children until the kernel reports none.

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

use crate::command_tree::children;

/// Pause between two checks for children that have not exited after a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Number of checks without a pause, in order to outpace a process that forks and exits in a loop.
const UNPAUSED_CHECKS: usize = 1000;

/// Runs a command as a child of this process, and returns its exit code when all of its processes have ended.
pub(crate) fn supervise(gateway: u32, command: &mut Command) -> io::Result<ExitCode> {
    set_child_subreaper(Some(getpid()))?;
    let gateway = Pid::from_raw(gateway.cast_signed()).ok_or(Errno::SRCH)?;
    let opened = pidfd_open(gateway, PidfdFlags::empty())?;
    // After opening the pidfd, this check rules out that the process id was reused in the meantime.
    if getppid() != Some(gateway) {
        return Err(io::Error::other("the gateway has exited"));
    }
    let leader = Pid::from_child(&command.spawn()?);
    let ended = pidfd_open(leader, PidfdFlags::empty())?;
    thread::Builder::new().spawn(move || {
        let mut gateway = [PollFd::new(&opened, PollFlags::IN)];
        while poll(&mut gateway, None) == Err(Errno::INTR) {}
        // An error means that the command has already exited.
        pidfd_send_signal(&ended, Signal::KILL).ok();
    })?;
    let status = loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == leader => break Some(status),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break None,
        }
    };
    kill_all();
    Ok(status.map_or(ExitCode::FAILURE, exit_code))
}

/// Kills the children of this process and their orphaned descendants until there are none.
fn kill_all() {
    for check in 0.. {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        // Children are only reaped in the next iteration, so none of these process ids can have been reused.
        for child in children(getpid()) {
            kill_process(child, Signal::KILL).ok();
        }
        if check > UNPAUSED_CHECKS {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the exit code as a shell reports it: the code itself, or 128 plus the number of the signal.
fn exit_code(status: WaitStatus) -> ExitCode {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
