//! The lines of the table: their names, their targets, and published values of ZeroClaw.

use clap::ValueEnum;

use crate::bench::report::BenchTarget::{self, AtLeast, AtMost};

/// A group of measurements that can be run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub(in crate::bench) enum PeerRow {
    /// Size of an installation on disk
    Install,
    /// Time from process start to an accepted handshake, and memory then
    Start,
    /// The same with 10,000 sessions and 50 plugins
    FullStart,
    /// Sequential warm runs, without the disk
    Runs,
    /// The same with files on the disk
    Commit,
    /// Runs per second, with 1 to 1,000 concurrent sessions
    Load,
    /// Memory and CPU time after many runs
    After,
    /// Long streams
    Stream,
    /// Messages to one busy session
    Busy,
    /// A turn after a long history
    History,
    /// One run watched by many sockets
    Fanout,
    /// File writes of a run
    Writes,
    /// One message from the command line
    Once,
    /// Memory of idle sockets and sessions
    Idle,
}

/// One line of the table.
#[derive(Debug)]
pub(super) struct TableLine {
    pub(super) row: PeerRow,
    /// Key of the value.
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) target: BenchTarget,
    /// Value of ZeroClaw 0.8.4, measured on another day: as quoted, and as compared.
    pub(super) zeroclaw: Option<(&'static str, f64)>,
}

const fn line(
    row: PeerRow,
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    target: BenchTarget,
) -> TableLine {
    TableLine { row, key, title, unit, target, zeroclaw: None }
}

impl TableLine {
    const fn zeroclaw(mut self, quoted: &'static str, value: f64) -> Self {
        self.zeroclaw = Some((quoted, value));
        self
    }
}

/// All lines, in the order of the table.
pub(super) const LINES: &[TableLine] = &[
    line(PeerRow::Install, "install", "install", "MB", AtMost(30.0)).zeroclaw("52", 52.0),
    line(PeerRow::Start, "start", "cold start to an accepted handshake", "ms", AtMost(40.0)).zeroclaw("34–40", 34.0),
    line(PeerRow::FullStart, "full-start", "… with 10,000 sessions and 50 plugins", "ms", AtMost(40.0)),
    line(PeerRow::Start, "idle-rss", "memory, idle", "MB", AtMost(25.0)).zeroclaw("37", 37.0),
    line(PeerRow::After, "rss-after", "memory after load", "MB", AtMost(60.0)).zeroclaw("136", 136.0),
    line(PeerRow::After, "runs-before", "… number of runs in that load", "", BenchTarget::None),
    line(PeerRow::Runs, "overhead-50", "overhead of a run, p50", "ms", AtMost(2.0)).zeroclaw("10.9", 10.9),
    line(PeerRow::Runs, "overhead-95", "… p95", "ms", BenchTarget::None).zeroclaw("19.8", 19.8),
    line(PeerRow::Runs, "overhead-99", "… p99", "ms", AtMost(10.0)),
    line(PeerRow::Commit, "commit-50", "… with the commits, p50", "ms", BenchTarget::None),
    line(PeerRow::Commit, "commit-99", "… with the commits, p99", "ms", BenchTarget::None),
    line(PeerRow::Commit, "sync", "… a single disk sync at that time", "ms", BenchTarget::None),
    line(PeerRow::Runs, "cpu", "processor time of a run", "ms", AtMost(2.0)).zeroclaw("10.7", 10.7),
    line(PeerRow::After, "cpu-after", "… after that load", "ms", AtMost(2.0)).zeroclaw("24", 24.0),
    line(PeerRow::Load, "load-1", "runs a second, 1 session", "/s", AtLeast(500.0)),
    line(PeerRow::Load, "load-10", "… 10 sessions", "/s", AtLeast(500.0)).zeroclaw("135", 135.0),
    line(PeerRow::Load, "load-100", "… 100 sessions", "/s", AtLeast(500.0)).zeroclaw("119", 119.0),
    line(PeerRow::Load, "load-1000", "… 1,000 sessions", "/s", AtLeast(500.0)),
    line(PeerRow::Load, "load-bad", "… runs that failed", "", AtMost(0.0)),
    line(PeerRow::Stream, "stream", "4,000-chunk stream, processor time", "ms", AtMost(80.0)),
    line(PeerRow::Stream, "chunk-250", "… per chunk of a stream of 250 chunks", "µs", AtMost(20.0)),
    line(PeerRow::Stream, "chunk-4000", "… per chunk of a stream of 4,000 chunks", "µs", AtMost(20.0)),
    line(PeerRow::Busy, "busy", "50 messages to one busy session (model: 1.0 s)", "s", AtMost(1.2)),
    line(PeerRow::Busy, "disorder", "… replies out of order", "", AtMost(0.0)),
    line(PeerRow::History, "history", "history of 5,000 × 1 KB, additional time per turn", "ms", AtMost(20.0)),
    line(PeerRow::Fanout, "fanout", "fan-out, processor time of a delivered frame", "µs", AtMost(6.0)),
    line(PeerRow::Fanout, "sockets", "… number of sockets", "", BenchTarget::None),
    line(PeerRow::Writes, "write-calls", "write calls of a run", "", AtMost(10.0)).zeroclaw("124", 124.0),
    line(PeerRow::Writes, "written", "KB written by a run", "KB", AtMost(6.0)).zeroclaw("663", 663.0),
    line(PeerRow::Once, "once", "one question on the command line", "ms", AtMost(40.0)).zeroclaw("183", 183.0),
    line(PeerRow::Idle, "session", "memory of an idle session", "KB", AtMost(1.0)),
    line(PeerRow::Idle, "session-files", "… its open files", "", AtMost(0.0)),
    line(PeerRow::Idle, "socket", "memory of an idle socket", "KB", AtMost(70.0)),
];

/// Returns the lines of a row.
pub(super) fn of(row: PeerRow) -> impl Iterator<Item = &'static TableLine> {
    LINES.iter().filter(move |line| line.row == row)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_row_has_lines_and_keys_are_unique() {
        assert!(PeerRow::value_variants().iter().all(|row| of(*row).next().is_some()));
        let keys: HashSet<&str> = LINES.iter().map(|line| line.key).collect();
        assert_eq!(keys.len(), LINES.len());
    }
}
