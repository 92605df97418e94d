//! R2: the power fails at any moment of a recorded session. Whatever unsynced data the disk kept, including sectors of
//! the database and its WAL, everything that clients received is stored.
//!
//! `GRID=all` cuts the power ten thousand times.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use homard_journal::Journal;
use homard_proto::{RunId, SessionKey, transcript::Entry};
use homard_store::{Error, RunRow, RunState, StoreReader};
use homard_testkit::power_failure::{CALLS, DiskRecording, PowerFailure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    chaos::gateway::{GatewayUnderTest, TracedGateway, is_long, run},
    home::Home,
};

const NOW: u64 = 1_794_709_960_355;

/// Records a process of the gateway. `None` without `strace`.
async fn record(home: &Home, recording: &mut DiskRecording, name: &str, rounds: usize, end: Signal) -> Option<()> {
    let file = home.work().join(format!("{name}.txt"));
    let calls = format!("trace={CALLS}");
    let strace_args = ["-s", "100000000", "-e", &calls, "-o", file.to_str().unwrap()];
    let (gateway, stderr) = TracedGateway::begin(home, &strace_args)?.listen(home).await;
    let mut gateway = gateway.ok().expect("it ended before it listened");
    live(&mut gateway, name, rounds).await;
    if end == Signal::TERM {
        for number in 0..rounds {
            gateway.wait(&format!("{name}-{number}")).await;
        }
    }
    gateway.end(end);
    stderr.join().unwrap();
    // Files of commands are not part of the guarantee, and the reserve only occupies space.
    let ignored = ["workspace", "journal/reserve.bin"];
    let recorded = recording.add(&fs::read_to_string(file).unwrap(), &home.state(), &ignored);
    recorded.unwrap_or_else(|error| panic!("{error:#}"));
    Some(())
}

/// Keeps three sessions busy.
async fn live(gateway: &mut GatewayUnderTest, name: &str, rounds: usize) {
    for number in 0..rounds {
        let message = match number % 6 {
            0 => "help".to_owned(),
            1 => format!("run `echo {number} >> notes.txt`"),
            2 => "What files are here?".to_owned(),
            // Some are so long that the WAL fills up and is checkpointed.
            3 => "A long story. ".repeat(if is_long() && number < 12 { 5_000 } else { 200 }),
            4 => "What time is it?".to_owned(),
            _ => "Write a note: buy milk".to_owned(),
        };
        let id = gateway.accept(&run(&format!("{name}-{number}"), &format!("s{}", number % 3), &message)).await;
        if number % 4 == 0 {
            gateway.answer(&id).await;
        }
    }
}

/// The final state without a power cut.
struct FinalState {
    rows: BTreeMap<RunId, RunRow>,
    transcripts: BTreeMap<SessionKey, Vec<Entry>>,
    /// Minimum length of a transcript when a run has ended.
    min_lengths: BTreeMap<RunId, (SessionKey, usize)>,
}

impl FinalState {
    async fn read(state: &Path, runs: &[String]) -> Self {
        let journal = Journal::open(state, || NOW).unwrap();
        let (mut rows, mut transcripts, mut min_lengths) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (key, _) in journal.list().await.unwrap() {
            let entries = journal.load(&key).await.unwrap().unwrap().entries;
            transcripts.insert(key, entries);
        }
        for run in runs.iter().map(|run| RunId::parse(run).unwrap()) {
            let row = journal.run(&run).await.unwrap().unwrap_or_else(|| panic!("{run} is not known"));
            let RunState::Ended(ended) = &row.state else { panic!("{run} did not end: {row:?}") };
            let idempotency_key = json!(format!("{run}:user"));
            let is_own =
                |entry: &&Entry| serde_json::to_value(entry).unwrap()["message"]["idempotencyKey"] == idempotency_key;
            assert_eq!(transcripts[&row.key].iter().filter(is_own).count(), 1, "{run}");
            let last = ended.replies.last().unwrap_or_else(|| panic!("{run} has no answer"));
            let position = transcripts[&row.key].iter().position(|entry| entry.id == *last).unwrap();
            min_lengths.insert(run.clone(), (row.key.clone(), position + 1));
            rows.insert(run, row);
        }
        Self { rows, transcripts, min_lengths }
    }

    /// Returns what is wrong after a power cut.
    async fn broken(&self, state: &Path, failure: &PowerFailure) -> Vec<String> {
        let mut problems = self.lost(state, failure).await.unwrap_or_else(|error| vec![error.to_string()]);
        let sessions = failure.files.get(Path::new("agents/main/sessions/sessions.json"));
        if sessions.is_some_and(|text| serde_json::from_slice::<Value>(text).is_err()) {
            problems.push("sessions.json is no JSON".to_owned());
        }
        problems.extend(torn(state));
        problems
    }

    /// Returns what the journal lacks of the responses and events that clients received.
    async fn lost(&self, state: &Path, failure: &PowerFailure) -> Result<Vec<String>, Error> {
        let journal = Journal::open(state, || NOW)?;
        let (mut problems, mut lengths) = (Vec::new(), BTreeMap::new());
        for (key, _) in journal.list().await? {
            let entries = journal.load(&key).await?.map(|session| session.entries).unwrap_or_default();
            if self.transcripts.get(&key).is_none_or(|all| !all.starts_with(&entries)) {
                problems.push(format!("the transcript of {key} is not as it was written"));
            }
            lengths.insert(key, entries.len());
        }
        let (accepted, ended) = received_runs(failure);
        for (run, reference) in &self.rows {
            let row = journal.run(run).await?;
            if row.is_none() && accepted.contains(run.as_str()) {
                problems.push(format!("{run} was accepted and is lost"));
            }
            let Some(row) = row.filter(|row| matches!(row.state, RunState::Ended(_))) else {
                if ended.contains(run.as_str()) {
                    problems.push(format!("the end of {run} is lost"));
                }
                continue;
            };
            if row != *reference {
                problems.push(format!("{run} ended in another way: {row:?}"));
            }
            let (key, length) = &self.min_lengths[run];
            if lengths.get(key).is_none_or(|found| found < length) {
                problems.push(format!("{run} ended, and its answer is lost"));
            }
        }
        let order: Vec<_> = journal.recover().await?.iter().map(|recovered| recovered.row.accepted_at).collect();
        if !order.is_sorted() {
            problems.push(format!("unfinished runs are out of order: {order:?}"));
        }
        Ok(problems)
    }
}

/// Returns the runs for which clients received `accepted`, and those for which they received an end.
fn received_runs(failure: &PowerFailure) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut accepted, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for frame in &failure.sent_frames {
        let payload = &frame["payload"];
        let Some(run) = payload["runId"].as_str() else { continue };
        match (frame["event"].as_str(), payload["status"].as_str(), payload["data"]["phase"].as_str()) {
            (None, Some("accepted"), _) => accepted.insert(run),
            (None, Some("ok" | "error"), _) | (Some("agent"), _, Some("end" | "error"))
                if frame["event"].is_null() || payload["stream"] == "lifecycle" =>
            {
                ended.insert(run)
            }
            _ => false,
        };
    }
    (accepted, ended)
}

/// Returns transcripts with incomplete lines, and a database that was moved aside.
fn torn(state: &Path) -> Vec<String> {
    let files = |folder: &str| fs::read_dir(state.join(folder)).into_iter().flatten().map(|item| item.unwrap().path());
    let is_whole = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.ends_with('\n') && text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
    };
    let transcripts = files("agents/main/sessions").filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    let torn = transcripts.filter(|path| !is_whole(path)).map(|path| format!("{} is torn", path.display()));
    let moved_aside = files("journal").filter(|path| path.to_string_lossy().contains("corrupt"));
    torn.chain(moved_aside.map(|path| format!("{} was set aside", path.display()))).collect()
}

/// Writes the files that a power cut left.
fn write_files(failure: &PowerFailure) -> TempDir {
    // The power cut is simulated, so memory is good enough, and it is fast.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for path in &failure.folders {
        fs::create_dir(folder.path().join(path)).unwrap();
    }
    for (path, bytes) in &failure.files {
        fs::write(folder.path().join(path), bytes).unwrap();
    }
    folder
}

/// Cuts the power once per seed, and returns the number of failures, with the first one.
async fn cut(recording: &DiskRecording, final_state: &FinalState, seeds: u64) -> (u64, Option<String>) {
    let (mut count, mut first) = (0, None);
    for (done, cut) in recording.cuts(0..seeds).enumerate() {
        let state = write_files(&cut);
        let problems = final_state.broken(state.path(), &cut).await;
        if !problems.is_empty() {
            count += 1;
            first.get_or_insert_with(|| format!("seed {}:\n  {}", cut.seed, problems.join("\n  ")));
        }
        if done % 1_000 == 999 {
            println!("{} power cuts", done + 1);
        }
    }
    (count, first)
}

fn names(name: &str, rounds: usize) -> impl Iterator<Item = String> {
    (0..rounds).map(move |number| format!("{name}-{number}"))
}

#[tokio::test]
async fn r2_after_any_power_cut_everything_clients_received_is_stored() {
    let home = Home::new();
    let mut recording = DiskRecording::default();
    let (rounds, seeds) = if is_long() { (50, 10_000) } else { (12, 200) };
    // The second is killed, so the third has runs to recover.
    for (name, end) in [("a", Signal::TERM), ("b", Signal::KILL), ("c", Signal::TERM)] {
        if record(&home, &mut recording, name, rounds, end).await.is_none() {
            crate::home::skip("r2", "strace is not installed, or this is not root");
            return;
        }
    }
    let mut files = recording.files();
    files.retain(|path, bytes| fs::read(home.state().join(path)).ok().as_ref() != Some(bytes));
    assert_eq!(files.keys().collect::<Vec<_>>(), Vec::<&std::path::PathBuf>::new(), "the recording lacks something");
    let runs: Vec<_> = ["a", "b", "c"].into_iter().flat_map(|name| names(name, rounds)).collect();
    let final_state = FinalState::read(&home.state(), &runs).await;
    let (failures, first) = cut(&recording, &final_state, seeds).await;
    println!("{seeds} power cuts in {} frames: {failures} broke something", recording.sent_frames());
    assert_eq!((failures, first), (0, None));
    let without_syncs = cut(&recording.without_syncs(), &final_state, 40).await;
    assert!(without_syncs.0 > 10, "nobody noticed that there was no sync: {without_syncs:?}");
}

#[tokio::test]
async fn r2_a_journal_in_an_existing_state_directory_is_not_lost() {
    let home = Home::new();
    let folders = ["agents", "agents/main", "agents/main/sessions"];
    fs::create_dir_all(home.state().join(folders[2])).unwrap();
    let mut recording = DiskRecording::with_folders(&folders).unwrap();
    if record(&home, &mut recording, "a", 3, Signal::TERM).await.is_none() {
        crate::home::skip("r2", "strace is not installed, or this is not root");
        return;
    }
    let final_state = FinalState::read(&home.state(), &names("a", 3).collect::<Vec<_>>()).await;
    assert_eq!(cut(&recording, &final_state, if is_long() { 1_000 } else { 200 }).await, (0, None));
}
