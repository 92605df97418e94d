//! Progress: a bar on a terminal, an occasional line elsewhere. Both go to stderr.

use std::io::{self, IsTerminal, Write};

use homard_chaos::Progress;
use tokio::time::Instant;

use crate::render;

/// Width of the bar.
const WIDTH: usize = 30;
/// Number of lines written without a terminal.
const LINES: usize = 10;

/// Progress of the kills.
#[derive(Debug)]
pub(super) struct KillProgress {
    started_at: Instant,
    is_terminal: bool,
}

impl KillProgress {
    /// Starts at zero kills.
    pub(super) fn start() -> Self {
        Self { started_at: Instant::now(), is_terminal: io::stderr().is_terminal() }
    }

    /// Shows the progress.
    pub(super) fn show(&self, now: &Progress) {
        let Progress { killed, kills, .. } = *now;
        let step = (kills / LINES).max(1);
        if !self.is_terminal && !killed.is_multiple_of(step) && killed != kills {
            return;
        }
        let seconds = self.started_at.elapsed().as_secs();
        let line = line(now, seconds);
        if self.is_terminal {
            let end = if killed == kills { "\n" } else { "" };
            // A failure cannot be reported and is ignored.
            write!(io::stderr().lock(), "\r{}{line}\x1b[K{end}", bar(killed, kills)).ok();
        } else {
            render::remark(&line);
        }
    }
}

fn bar(done: usize, all: usize) -> String {
    let filled = done * WIDTH / all.max(1);
    format!("[{}{}] ", "#".repeat(filled), "-".repeat(WIDTH.saturating_sub(filled)))
}

fn line(now: &Progress, seconds: u64) -> String {
    let problems = match now.problems {
        0 => String::new(),
        count => format!(", {}", render::count(count, "problem")),
    };
    let (accepted, ended) = (render::count(now.accepted, "run"), now.ended);
    let (killed, kills) = (now.killed, render::count(now.kills, "kill"));
    format!("{killed}/{kills}, {accepted} accepted, {ended} ended{problems} ({})", render::duration_ms(seconds * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar(0, 10), format!("[{}] ", "-".repeat(30)));
        assert_eq!(bar(5, 10), format!("[{}{}] ", "#".repeat(15), "-".repeat(15)));
        assert_eq!(
            line(&Progress { killed: 5, kills: 10, ..Progress::default() }, 7),
            "5/10 kills, 0 runs accepted, 0 ended (7s)"
        );
    }
}
