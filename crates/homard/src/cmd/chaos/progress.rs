//! Progress: a bar on a terminal, an occasional line elsewhere. Both go to stderr.

use std::io::{self, IsTerminal, Write};

use tokio::time::Instant;

use super::state::{ChaosState, ClientHistory};
use crate::render;

/// Width of the bar.
const WIDTH: usize = 30;
/// Number of lines written without a terminal.
const LINES: usize = 10;

/// Progress of the kills.
#[derive(Debug)]
pub(super) struct KillProgress {
    kills: usize,
    started_at: Instant,
    is_terminal: bool,
}

impl KillProgress {
    /// Starts at zero kills.
    pub(super) fn new(kills: usize) -> Self {
        Self { kills, started_at: Instant::now(), is_terminal: io::stderr().is_terminal() }
    }

    /// Shows the progress.
    pub(super) fn show(&self, killed: usize, state: &ChaosState) {
        let step = (self.kills / LINES).max(1);
        if !self.is_terminal && !killed.is_multiple_of(step) && killed != self.kills {
            return;
        }
        let seconds = self.started_at.elapsed().as_secs();
        let line = line((killed, self.kills), &state.history(), seconds);
        if self.is_terminal {
            let end = if killed == self.kills { "\n" } else { "" };
            // A failure cannot be reported and is ignored.
            write!(io::stderr().lock(), "\r{}{line}\x1b[K{end}", bar(killed, self.kills)).ok();
        } else {
            render::remark(&line);
        }
    }
}

fn bar(done: usize, all: usize) -> String {
    let filled = done * WIDTH / all.max(1);
    format!("[{}{}] ", "#".repeat(filled), "-".repeat(WIDTH.saturating_sub(filled)))
}

fn line((killed, kills): (usize, usize), history: &ClientHistory, seconds: u64) -> String {
    let accepted = history.runs.values().filter(|run| run.is_accepted).count();
    let ended = history.runs.values().filter(|run| run.result.is_some()).count();
    let problems = match history.problems.len() {
        0 => String::new(),
        count => format!(", {}", render::count(count, "problem")),
    };
    let (accepted, elapsed) = (render::count(accepted, "run"), render::duration_ms(seconds * 1000));
    format!("{killed}/{}, {accepted} accepted, {ended} ended{problems} ({elapsed})", render::count(kills, "kill"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar(0, 10), format!("[{}] ", "-".repeat(30)));
        assert_eq!(bar(5, 10), format!("[{}{}] ", "#".repeat(15), "-".repeat(15)));
        assert_eq!(line((5, 10), &ClientHistory::default(), 7), "5/10 kills, 0 runs accepted, 0 ended (7s)");
    }
}
