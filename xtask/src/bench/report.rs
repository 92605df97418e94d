//! Measured values and their targets.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Map, Value, json};

use super::{
    chat::ChatFigures, exec::Comparison, sockets::SocketsResult, stalled::StalledResult, wire::WireMeasurement,
};

/// Target of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BenchTarget {
    AtMost(f64),
    AtLeast(f64),
    /// None; the value is only printed for comparison.
    None,
}

impl BenchTarget {
    /// Returns whether a value meets the target, if there is one.
    pub(super) fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(max) => Some(value <= max),
            Self::AtLeast(min) => Some(value >= min),
            Self::None => None,
        }
    }
}

#[derive(Debug, PartialEq)]
struct BenchRow {
    name: String,
    value: f64,
    unit: &'static str,
    target: BenchTarget,
}

/// All values, in the order of measurement.
#[derive(Debug, Default)]
pub(super) struct BenchReport {
    rows: Vec<BenchRow>,
    /// What was not measured, and why.
    notes: Vec<String>,
    /// CPU time per chunk of the shortest stream, to compare longer ones with.
    shortest: Option<f64>,
    /// Length of the previous stream of the wire benchmark, and its CPU time.
    wire: Option<(usize, f64)>,
    /// Time of a warm turn in the shortest transcript.
    warm: Option<f64>,
    /// Length of the previous transcript, and the time of a cold turn in it.
    cold: Option<(usize, f64)>,
    /// Number of sockets of the previous fan-out, and CPU time per frame.
    fanout: Option<(usize, f64)>,
}

impl BenchReport {
    fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str, target: BenchTarget) {
        self.rows.push(BenchRow { name: name.into(), value, unit, target });
    }

    /// Adds the times from process start to readiness.
    pub(super) fn start(&mut self, times: &[Duration]) {
        self.add("cold start to ready, median", percentile(times, 50), "ms", BenchTarget::AtMost(50.0));
    }

    /// Adds the figures of a terminal program. The targets are those of the chat.
    pub(super) fn chat(&mut self, figures: &ChatFigures) {
        let name = &figures.name;
        let is_ours = name.starts_with("chat");
        let target = |max| if is_ours { BenchTarget::AtMost(max) } else { BenchTarget::None };
        self.add(format!("{name}: first frame, median"), percentile(&figures.first_frames, 50), "ms", target(40.0));
        // On a busy machine, the fastest start is closest to what the program itself needs.
        self.add(
            format!("{name}: first frame, fastest"),
            percentile(&figures.first_frames, 1),
            "ms",
            BenchTarget::None,
        );
        for (what, times) in [("nothing runs", &figures.idle_keys), ("100 chunks/s stream", &figures.streaming_keys)] {
            if !times.is_empty() {
                self.add(
                    format!("{name}: key drawn while {what}, median"),
                    percentile(times, 50),
                    "ms",
                    BenchTarget::None,
                );
                self.add(format!("{name}: key drawn while {what}, p99"), percentile(times, 99), "ms", target(16.0));
            }
        }
        if let Some(memory) = figures.memory {
            let title = format!("{name}: memory, idle, processes {}", memory.processes);
            self.add(format!("{title}, shared pages once"), mebibytes(memory.proportional), "MiB", target(30.0));
            self.add(format!("{title}, resident"), mebibytes(memory.resident), "MiB", BenchTarget::None);
        }
    }

    /// Adds the time until a chat is connected to the gateway that it starts.
    pub(super) fn chat_connected(&mut self, times: &[Duration]) {
        self.add("chat with its own gateway: connected, median", percentile(times, 50), "ms", BenchTarget::None);
    }

    /// Adds a sentence about what was not measured.
    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Adds the memory before any run.
    pub(super) fn idle_memory(&mut self, bytes: u64) {
        self.add("memory, idle", mebibytes(bytes), "MiB", BenchTarget::AtMost(25.0));
    }

    /// Adds sequential warm runs, through the gateway and direct, and the CPU time of the former.
    pub(super) fn runs(&mut self, through: &[Duration], direct: &[Duration], cpu_time: Duration) {
        let runs = through.len() as f64;
        for (percent, target) in [(50, BenchTarget::AtMost(2.0)), (95, BenchTarget::None)] {
            let (with, without) = (percentile(through, percent), percentile(direct, percent));
            self.add(format!("run through the gateway, p{percent}"), with, "ms", BenchTarget::None);
            self.add(format!("same stream read directly, p{percent}"), without, "ms", BenchTarget::None);
            self.add(format!("overhead of a run, p{percent}"), with - without, "ms", target);
            self.add(format!("overhead of a run, p{percent}, ratio"), with / without, "x", BenchTarget::None);
        }
        self.add("processor time of a run", milliseconds(cpu_time) / runs, "ms", BenchTarget::AtMost(2.0));
    }

    /// Adds the CPU time of streams of one size, for all chunks together.
    pub(super) fn stream(&mut self, size: usize, cpu_time: Duration, chunks: usize) {
        let each = cpu_time.as_secs_f64() * 1e6 / chunks as f64;
        self.add(format!("processor time of a chunk, {size} a run"), each, "µs", BenchTarget::AtMost(20.0));
        match self.shortest {
            None => self.shortest = Some(each),
            // Constant within the tolerance of a coarse clock and a busy machine.
            Some(shortest) => {
                self.add(
                    format!("… against the shortest stream, {size}"),
                    each / shortest,
                    "x",
                    BenchTarget::AtMost(1.5),
                );
            }
        }
    }

    /// Adds a stream of this many chunks, parsed by the wire decoder and read without parsing.
    pub(super) fn wire(&mut self, chunks: usize, wire: WireMeasurement, bare: WireMeasurement) {
        let thousand = |read: WireMeasurement| read.cpu_time / chunks as f64;
        self.add(format!("wire, processor time of 1000, {chunks} chunks"), thousand(wire), "ms", BenchTarget::None);
        self.add("… bare reqwest", thousand(bare), "ms", BenchTarget::None);
        self.add("… first delta, median", wire.first / 1e3, "ms", BenchTarget::None);
        self.add("… first bytes of bare reqwest, median", bare.first / 1e3, "ms", BenchTarget::None);
        // Linear: twice the chunks cost about twice as much.
        if let Some((shorter, used)) = self.wire.replace((chunks, wire.cpu_time))
            && chunks == 2 * shorter
        {
            self.add(
                format!("… {chunks} chunks against {shorter}"),
                wire.cpu_time / used,
                "x",
                BenchTarget::AtMost(2.2),
            );
        }
    }

    /// Adds runs in concurrent sessions.
    pub(super) fn load(&mut self, sessions: usize, runs: usize, elapsed: Duration) {
        let rate = runs as f64 / elapsed.as_secs_f64();
        let name = format!("runs a second, {sessions} session{}", if sessions == 1 { "" } else { "s" });
        self.add(name, rate, "/s", BenchTarget::AtLeast(500.0));
    }

    /// Adds the time until all messages queued in one session were answered, and of the same streams read directly.
    pub(super) fn drain(&mut self, messages: usize, elapsed: Duration, direct: Duration) {
        self.add(
            format!("{messages} messages to a busy session, drained"),
            milliseconds(elapsed),
            "ms",
            BenchTarget::None,
        );
        self.add("… the same streams read directly", milliseconds(direct), "ms", BenchTarget::None);
        let each = (milliseconds(elapsed) - milliseconds(direct)) / messages as f64;
        self.add("… each, beside the model", each, "ms", BenchTarget::AtMost(2.0));
    }

    /// Adds runs watched by this many sockets: the CPU time of the delivered frames.
    pub(super) fn fanout(&mut self, sockets: usize, cpu_time: Duration, frames: usize) {
        let each = cpu_time.as_secs_f64() * 1e6 / frames as f64;
        let label = format!("{sockets} socket{}", if sockets == 1 { "" } else { "s" });
        self.add(format!("processor time of a frame, {label}"), each, "µs", BenchTarget::None);
        // Flat or falling: the shared part of the work is spread over more sockets.
        if let Some((fewer, before)) = self.fanout.replace((sockets, each)) {
            self.add(format!("… against {fewer}, {label}"), each / before, "x", BenchTarget::AtMost(1.5));
        }
    }

    /// Adds the time of a run for a reader: alone, and beside a client that does not read.
    pub(super) fn beside_silent(&mut self, alone: Duration, beside: Duration) {
        self.add("run with one reader", milliseconds(alone), "ms", BenchTarget::None);
        self.add("… beside one that does not read", milliseconds(beside), "ms", BenchTarget::None);
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        self.add("… against the reader alone", ratio, "x", BenchTarget::AtMost(1.1));
    }

    /// Adds the results of the benchmark of idle sockets (R28).
    pub(super) fn sockets(&mut self, result: &SocketsResult) {
        let (count, memory) = (result.sockets, result.memory as f64 / 1024.0);
        self.add(format!("{count} sockets, connected"), result.connected.as_secs_f64(), "s", BenchTarget::AtMost(20.0));
        self.add("… memory of each", memory / count as f64, "KiB", BenchTarget::AtMost(16.0));
        self.add("health, p99, before", percentile(&result.alone, 99), "ms", BenchTarget::None);
        self.add("… while they connect", percentile(&result.storm, 99), "ms", BenchTarget::AtMost(50.0));
        self.add("… while they listen", percentile(&result.idle, 99), "ms", BenchTarget::AtMost(50.0));
    }

    /// Adds the results of the benchmark of stalled readers (R26).
    pub(super) fn stopped(&mut self, result: &StalledResult) {
        let (count, memory) = (result.readers, result.memory as f64 / 1024.0);
        let [alone, beside] = [&result.alone, &result.beside].map(|gaps| percentile(gaps, 99));
        self.add(
            format!("{count} stopped readers, memory of each"),
            memory / count as f64,
            "KiB",
            BenchTarget::AtMost(1024.0),
        );
        self.add("between two deltas, p99, alone", alone, "ms", BenchTarget::None);
        self.add("… beside stopped readers", beside, "ms", BenchTarget::None);
        self.add("… against alone", beside / alone, "x", BenchTarget::AtMost(1.2));
    }

    /// Adds a list of ten thousand sessions, a page of it, and an empty request.
    pub(super) fn sessions(&mut self, all: &[Duration], page: &[Duration], empty: &[Duration]) {
        for percent in [50, 99] {
            let [all, page, empty] = [all, page, empty].map(|times| percentile(times, percent));
            self.add(format!("sessions.list, 10,000 rows, p{percent}"), all, "ms", BenchTarget::None);
            self.add(format!("… a page of 100, p{percent}"), page, "ms", BenchTarget::None);
            self.add(format!("… a call that needs nothing, p{percent}"), empty, "ms", BenchTarget::None);
        }
    }

    /// Adds the response times of a request, of which the slowest percent may not take longer than the limit.
    pub(super) fn response(&mut self, name: &str, times: &[Duration], limit_ms: f64) {
        self.add(format!("{name}, p50"), percentile(times, 50), "ms", BenchTarget::None);
        self.add(format!("{name}, p99"), percentile(times, 99), "ms", BenchTarget::AtMost(limit_ms));
    }

    /// Adds messages that this many clients got accepted, the time of each, and the sync rate of the bare disk just
    /// before.
    pub(super) fn acks(&mut self, clients: usize, times: &[Duration], elapsed: Duration, bare: f64) {
        let rate = times.len() as f64 / elapsed.as_secs_f64();
        let label = format!("{clients} client{}", if clients == 1 { "" } else { "s" });
        self.add(format!("bare syncs a second, before {label}"), bare, "/s", BenchTarget::None);
        self.add(format!("durable acks a second, {label}"), rate, "/s", BenchTarget::None);
        // If the disk itself is fast, there is little to gain by sharing its syncs.
        let target = if clients >= 256 && bare < 1_000.0 { BenchTarget::AtLeast(10.0) } else { BenchTarget::None };
        self.add(format!("… against bare syncs, {label}"), rate / bare, "x", target);
        self.add(format!("… p50, {label}"), percentile(times, 50), "ms", BenchTarget::None);
        self.add(format!("… p99, {label}"), percentile(times, 99), "ms", BenchTarget::None);
    }

    /// Adds the file writes of a plain run, which is one streamed answer without tool calls.
    pub(super) fn written(&mut self, syncs: f64, calls: f64, bytes: f64) {
        // A run syncs twice; the rest is for background work.
        self.add("syncs of a plain run", syncs, "", BenchTarget::AtMost(2.5));
        self.add("write calls of a plain run", calls, "", BenchTarget::AtMost(12.0));
        self.add("bytes written by a plain run", bytes / 1024.0, "KiB", BenchTarget::AtMost(24.0));
    }

    /// Adds the bytes of a plain run, where only the kernel's count is available.
    pub(super) fn bytes_only(&mut self, bytes: u64) {
        self.add("bytes of a plain run (no strace here)", bytes as f64 / 1024.0, "KiB", BenchTarget::None);
    }

    /// Adds the time until a killed gateway is ready again.
    pub(super) fn ready(&mut self, with: &str, elapsed: Duration, target: f64) {
        self.add(format!("ready after a kill, {with}"), milliseconds(elapsed), "ms", BenchTarget::AtMost(target));
    }

    /// Adds turns in transcripts of one length: the first ones, which read it from disk, and later ones.
    pub(super) fn turn(&mut self, length: usize, cold: &[Duration], warm: &[Duration]) {
        let (cold, warm) = (percentile(cold, 50), percentile(warm, 50));
        self.add(format!("turn after {length} messages, warm, median"), warm, "ms", BenchTarget::None);
        match self.warm {
            None => self.warm = Some(warm),
            // Flat: only the length of the prompt matters.
            Some(shortest) => {
                self.add(
                    format!("… against the shortest, warm, {length}"),
                    warm / shortest,
                    "x",
                    BenchTarget::AtMost(1.5),
                );
            }
        }
        self.add(format!("turn after {length} messages, cold, median"), cold, "ms", BenchTarget::None);
        if let Some((shorter, before)) = self.cold.replace((length, cold)) {
            // Linear: the time grows at most like the number of messages.
            let target = BenchTarget::AtMost(length as f64 / shorter as f64 * 1.2);
            self.add(format!("… against {shorter}, cold, {length}"), cold / before, "x", target);
        }
    }

    /// Adds the compaction of a huge session, and the peak memory of the gateway.
    pub(super) fn compaction(&mut self, elapsed: Duration, memory: u64) {
        self.add("compaction of 100 MB", milliseconds(elapsed), "ms", BenchTarget::None);
        self.add("… memory, at most", mebibytes(memory), "MiB", BenchTarget::None);
    }

    /// Adds a no-op command, for each kind of sandbox; the last one is the bare shell.
    pub(super) fn exec(&mut self, comparison: &Comparison) {
        let Some(((shell, bare), kinds)) = comparison.times.split_last() else { return };
        let bare = percentile(bare, 50);
        self.add(format!("{shell}, median"), bare, "ms", BenchTarget::None);
        for (kind, times) in kinds {
            let median = percentile(times, 50);
            self.add(format!("exec, {kind}, median"), median, "ms", BenchTarget::None);
            self.add(format!("… {kind} against {shell}"), median / bare, "x", BenchTarget::None);
        }
    }

    /// R73: adds the redaction of secrets in a text, compared with its serialization.
    pub(super) fn secrets(&mut self, comparison: &Comparison) {
        let [(_, ours), (other, theirs)] = &comparison.times[..] else { return };
        let (ours, theirs) = (percentile(ours, 50), percentile(theirs, 50));
        self.add(format!("{}, median", comparison.what), ours, "ms", BenchTarget::AtMost(5.0));
        self.add(format!("… against {other}, {}", comparison.what), ours / theirs, "x", BenchTarget::None);
    }

    /// Adds a search by our tool and by another program.
    pub(super) fn search(&mut self, comparison: &Comparison) {
        let [(_, ours), (program, theirs)] = &comparison.times[..] else { return };
        let (ours, theirs) = (percentile(ours, 50), percentile(theirs, 50));
        self.add(format!("{}, median", comparison.what), ours, "ms", BenchTarget::None);
        // In JSON output each row needs a unique name.
        self.add(format!("… {program}, {}", comparison.what), theirs, "ms", BenchTarget::None);
        self.add(format!("… against {program}, {}", comparison.what), ours / theirs, "x", BenchTarget::AtMost(1.5));
    }

    /// Adds the calls of a hook of each kind, in relation to a run without hooks.
    pub(super) fn hook(&mut self, comparison: &Comparison, run: &[Duration]) {
        let run = percentile(run, 50);
        for (kind, times) in &comparison.times {
            let median = percentile(times, 50);
            self.add(format!("hook call, {kind}, {}", comparison.what), median * 1e3, "µs", BenchTarget::None);
            self.add(
                format!("… of a run without, {kind}, {}", comparison.what),
                median / run * 100.0,
                "%",
                BenchTarget::None,
            );
        }
    }

    /// Adds runs with hooks at every point, of each kind; the first kind has none.
    pub(super) fn hooked(&mut self, comparison: &Comparison) {
        let Some(((_, bare), kinds)) = comparison.times.split_first() else { return };
        let bare = percentile(bare, 50);
        self.add(format!("{}, without hooks, median", comparison.what), bare, "ms", BenchTarget::None);
        for (kind, times) in kinds {
            let median = percentile(times, 50);
            self.add(format!("… with 21 in {kind}, median"), median, "ms", BenchTarget::None);
            self.add(format!("… with 21 in {kind}, against none"), median / bare, "x", BenchTarget::None);
        }
    }

    /// Adds starts without and with plugins.
    pub(super) fn start_with(&mut self, plugins: &str, without: &[Duration], with: &[Duration]) {
        let (without, with) = (percentile(without, 50), percentile(with, 50));
        self.add(format!("start to ready, before {plugins}, median"), without, "ms", BenchTarget::None);
        self.add(format!("… with {plugins}, median"), with, "ms", BenchTarget::None);
        self.add(format!("… more with {plugins}"), with - without, "ms", BenchTarget::AtMost(20.0));
    }

    /// Adds the memory after everything.
    pub(super) fn memory_after(&mut self, bytes: u64) {
        self.add("memory, after all that", mebibytes(bytes), "MiB", BenchTarget::AtMost(60.0));
    }

    /// True if all targets are met.
    pub(super) fn is_met(&self) -> bool {
        self.rows.iter().all(|row| row.target.is_met(row.value) != Some(false))
    }

    /// Formats a table.
    pub(super) fn to_table(&self) -> String {
        let mut table = String::new();
        for row in &self.rows {
            let target = match row.target {
                BenchTarget::AtMost(max) => format!("≤ {max}"),
                BenchTarget::AtLeast(min) => format!("≥ {min}"),
                BenchTarget::None => String::new(),
            };
            let verdict = match row.target.is_met(row.value) {
                Some(true) => "ok",
                Some(false) => "MISSED",
                None => "",
            };
            let BenchRow { name, value, unit, .. } = row;
            // Writing to a `String` cannot fail.
            writeln!(table, "{}", format!("{name:<45} {value:>10.2} {unit:<4} {target:<7} {verdict}").trim_end()).ok();
        }
        table.extend(self.notes.iter().map(|note| format!("{note}\n")));
        table
    }

    /// Returns the rows as JSON: value, unit, target, and whether the target is met.
    pub(super) fn to_json(&self) -> Value {
        let row_json = |row: &BenchRow| {
            let target = match row.target {
                BenchTarget::AtMost(max) => json!({"atMost": max}),
                BenchTarget::AtLeast(min) => json!({"atLeast": min}),
                BenchTarget::None => Value::Null,
            };
            let met = row.target.is_met(row.value);
            (row.name.clone(), json!({"value": row.value, "unit": row.unit, "aim": target, "met": met}))
        };
        Value::Object(self.rows.iter().map(row_json).collect::<Map<_, _>>())
    }
}

/// Returns a percentile by the nearest-rank method, in milliseconds.
pub(super) fn percentile(times: &[Duration], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).map_or(f64::NAN, |time| milliseconds(*time))
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(times: &[u64]) -> Vec<Duration> {
        times.iter().map(|&ms| Duration::from_millis(ms)).collect()
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        assert_eq!(percentile(&ms(&[5, 1, 4, 2, 3]), 50), 3.0);
        assert_eq!(percentile(&ms(&[5, 1, 4, 2, 3]), 95), 5.0);
        assert_eq!(percentile(&ms(&[7]), 50), 7.0);
    }

    #[test]
    fn a_missed_target_is_reported() {
        let mut report = BenchReport::default();
        report.start(&ms(&[60]));
        report.load(10, 1_000, Duration::from_secs(1));
        report.stream(250, Duration::from_millis(10), 1_000);
        report.stream(1_000, Duration::from_millis(18), 1_000);
        report.drain(50, Duration::from_millis(600), Duration::from_millis(350));
        assert_eq!(
            report.to_table(),
            "cold start to ready, median                        60.00 ms   ≤ 50    MISSED\n\
             runs a second, 10 sessions                       1000.00 /s   ≥ 500   ok\n\
             processor time of a chunk, 250 a run               10.00 µs   ≤ 20    ok\n\
             processor time of a chunk, 1000 a run              18.00 µs   ≤ 20    ok\n\
             … against the shortest stream, 1000                 1.80 x    ≤ 1.5   MISSED\n\
             50 messages to a busy session, drained            600.00 ms\n\
             … the same streams read directly                  350.00 ms\n\
             … each, beside the model                            5.00 ms   ≤ 2     MISSED\n"
        );
        assert_eq!(
            report.to_json()["cold start to ready, median"],
            json!({"value": 60.0, "unit": "ms", "aim": {"atMost": 50.0}, "met": false})
        );
    }

    #[test]
    fn frames_are_compared_with_those_of_fewer_sockets() {
        let mut report = BenchReport::default();
        report.fanout(1, Duration::from_millis(10), 100);
        report.fanout(10, Duration::from_millis(20), 1_000);
        report.beside_silent(Duration::from_millis(2_000), Duration::from_millis(2_500));
        assert_eq!(
            report.to_table(),
            "processor time of a frame, 1 socket               100.00 µs\n\
             processor time of a frame, 10 sockets              20.00 µs\n\
             … against 1, 10 sockets                             0.20 x    ≤ 1.5   ok\n\
             run with one reader                              2000.00 ms\n\
             … beside one that does not read                  2500.00 ms\n\
             … against the reader alone                          1.25 x    ≤ 1.1   MISSED\n"
        );
    }

    #[test]
    fn warm_turns_are_flat_and_cold_ones_linear() {
        let mut report = BenchReport::default();
        report.turn(10, &ms(&[2]), &ms(&[1]));
        report.turn(1_000, &ms(&[30]), &ms(&[2]));
        report.compaction(Duration::from_secs(3), 1 << 30);
        assert_eq!(
            report.to_table(),
            "turn after 10 messages, warm, median                1.00 ms\n\
             turn after 10 messages, cold, median                2.00 ms\n\
             turn after 1000 messages, warm, median              2.00 ms\n\
             … against the shortest, warm, 1000                  2.00 x    ≤ 1.5   MISSED\n\
             turn after 1000 messages, cold, median             30.00 ms\n\
             … against 10, cold, 1000                           15.00 x    ≤ 120   ok\n\
             compaction of 100 MB                             3000.00 ms\n\
             … memory, at most                                1024.00 MiB\n"
        );
    }

    #[test]
    fn hooks_are_compared_with_a_run_without_any() {
        let comparison = |what: &str, times: &[(&str, u64)]| Comparison {
            what: what.to_owned(),
            times: times.iter().map(|(name, time)| ((*name).to_owned(), ms(&[*time]))).collect(),
        };
        let mut report = BenchReport::default();
        report.hook(&comparison("short", &[("Rust", 1)]), &ms(&[4]));
        report.hooked(&comparison("run", &[("none", 4), ("Node", 6)]));
        report.start_with("50 plugins", &ms(&[30]), &ms(&[51]));
        assert_eq!(
            report.to_table(),
            "hook call, Rust, short                           1000.00 µs\n\
             … of a run without, Rust, short                    25.00 %\n\
             run, without hooks, median                          4.00 ms\n\
             … with 21 in Node, median                           6.00 ms\n\
             … with 21 in Node, against none                     1.50 x\n\
             start to ready, before 50 plugins, median          30.00 ms\n\
             … with 50 plugins, median                          51.00 ms\n\
             … more with 50 plugins                             21.00 ms   ≤ 20    MISSED\n"
        );
    }

    #[test]
    fn tools_are_compared_with_equivalent_programs() {
        let comparison = |what: &str, times: &[(&str, u64)]| Comparison {
            what: what.to_owned(),
            times: times.iter().map(|(name, time)| ((*name).to_owned(), ms(&[*time]))).collect(),
        };
        let mut report = BenchReport::default();
        report.exec(&comparison("exec", &[("bare", 3), ("tier A", 10), ("sh -c true", 2)]));
        report.secrets(&comparison("secrets", &[("ours", 4), ("JSON", 2)]));
        report.search(&comparison("grep x", &[("ours", 80), ("rg", 100)]));
        report.search(&comparison("find x", &[("ours", 80), ("fd", 50)]));
        assert_eq!(
            report.to_table(),
            "sh -c true, median                                  2.00 ms\n\
             exec, bare, median                                  3.00 ms\n\
             … bare against sh -c true                           1.50 x\n\
             exec, tier A, median                               10.00 ms\n\
             … tier A against sh -c true                         5.00 x\n\
             secrets, median                                     4.00 ms   ≤ 5     ok\n\
             … against JSON, secrets                             2.00 x\n\
             grep x, median                                     80.00 ms\n\
             … rg, grep x                                      100.00 ms\n\
             … against rg, grep x                                0.80 x    ≤ 1.5   ok\n\
             find x, median                                     80.00 ms\n\
             … fd, find x                                       50.00 ms\n\
             … against fd, find x                                1.60 x    ≤ 1.5   MISSED\n"
        );
    }
}
