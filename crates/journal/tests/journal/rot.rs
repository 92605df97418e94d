//! Many damaged transcripts in one state directory: each is read as far as possible, and none affects another.

use std::{fs, path::Path};

use homard_proto::{
    message::{Message, User},
    transcript::{Entry, Kind},
};
use homard_store::Rec;
use serde_json::{Map, json};

use crate::words::*;

/// Creates a state directory in memory if possible: these tests are about bytes, not about syncs.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Builds a transcript as another program would write it.
fn transcript(lines: &[Entry]) -> Vec<u8> {
    let mut text = format!("{}\n", serde_json::to_string(&header("s")).unwrap());
    for line in lines {
        text += &format!("{}\n", serde_json::to_string(line).unwrap());
    }
    text.into_bytes()
}

fn entries(count: usize) -> Vec<Entry> {
    let name = |at: usize| format!("e{at}");
    (0..count).map(|at| child_entry(at.checked_sub(1).map(name).as_deref(), &name(at))).collect()
}

/// Like `entries`, with longer texts.
fn long_entries(count: usize) -> Vec<Entry> {
    let mut entries = entries(count);
    for entry in &mut entries {
        entry.kind = Kind::message(Message::User(User::text("Grüße, \"lobster\" 🦞 ".repeat(40), NOW)));
    }
    entries
}

/// Writes transcripts `s0`, `s1`, … and their records.
fn lay_out(state: &Path, files: &[Vec<u8>]) {
    fs::create_dir_all(sessions(state)).unwrap();
    let mut records = Map::new();
    for (at, bytes) in files.iter().enumerate() {
        fs::write(sessions(state).join(format!("s{at}.jsonl")), bytes).unwrap();
        records.insert(format!("agent:main:k{at}"), json!({"sessionId": format!("s{at}"), "updatedAt": 1}));
    }
    fs::write(sessions(state).join("sessions.json"), json!(records).to_string()).unwrap();
}

/// Appends one line to every session, in large batches.
async fn add_to_all(journal: &homard_journal::Journal, count: usize) {
    let line = |at: usize| append([&format!("k{at}"), &format!("s{at}")], "new");
    let all: Vec<Rec> = (0..count).map(line).collect();
    for batch in all.chunks(512) {
        commit_all(journal, batch.to_vec()).await;
    }
}

// R8; case 82, pitfall 32.
#[tokio::test]
async fn a_transcript_cut_in_its_last_three_lines_keeps_earlier_ones() {
    let state = folder();
    let complete = transcript(&long_entries(6));
    let ends: Vec<_> = (0..complete.len()).filter(|&at| complete[at] == b'\n').map(|at| at + 1).collect();
    let cuts: Vec<_> = (ends[3]..=complete.len()).collect();
    assert!(cuts.len() > 3000, "{}", cuts.len());
    lay_out(state.path(), &cuts.iter().map(|&cut| complete[..cut].to_vec()).collect::<Vec<_>>());
    let journal = open(state.path());
    let kept_entries = |cut: usize| {
        // A line that lacks only its line break is complete.
        let count = ends.iter().filter(|&&end| end - 1 <= cut).count() - 1;
        long_entries(count)
    };
    for (at, &cut) in cuts.iter().enumerate() {
        assert_eq!(lines(&journal, &format!("k{at}")).await, kept_entries(cut), "cut at {cut}");
    }
    add_to_all(&journal, cuts.len()).await;
    for (at, &cut) in cuts.iter().enumerate() {
        let before = kept_entries(cut);
        let leaf = before.last().unwrap().id.to_string();
        let expected = [before, vec![child_entry(Some(&leaf), "new")]].concat();
        assert_eq!(lines(&journal, &format!("k{at}")).await, expected, "cut at {cut}");
        let path = sessions(state.path()).join(format!("s{at}.jsonl"));
        let whole_lines = ends.iter().copied().rfind(|&end| end <= cut).unwrap();
        assert_eq!(fs::read(&path).unwrap()[..whole_lines], complete[..whole_lines]);
        let torn = fs::read(path.with_added_extension(format!("torn-{NOW}"))).unwrap_or_default();
        let is_whole = ends.iter().any(|&end| end == cut || end - 1 == cut);
        assert_eq!(torn, if is_whole { &[] } else { &complete[whole_lines..cut] }, "cut at {cut}");
    }
}

// R9
#[tokio::test]
async fn a_thousand_flipped_bytes_damage_only_their_lines() {
    let state = folder();
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    let files: Vec<_> = (0..1000)
        .map(|_| {
            let mut bytes = transcript(&entries(8));
            let at = next(bytes.len());
            bytes[at] ^= u8::try_from(1 + next(255)).unwrap();
            bytes
        })
        .chain([transcript(&entries(8))])
        .collect();
    lay_out(state.path(), &files);
    let journal = open(state.path());
    let is_json = |line: &[u8]| serde_json::from_slice::<Map<String, serde_json::Value>>(line).is_ok();
    let mut quarantined = 0;
    for (at, bytes) in files.iter().enumerate() {
        let read = lines(&journal, &format!("k{at}")).await;
        assert!(read.len() >= 6, "one flip harms two lines at most: {at}");
        let path = sessions(state.path()).join(format!("s{at}.jsonl"));
        assert_eq!(&fs::read(&path).unwrap(), bytes, "reading changes nothing");
        let last_line_start = bytes.iter().rposition(|&byte| byte == b'\n').unwrap();
        if !bytes[..last_line_start].split(|&byte| byte == b'\n').all(is_json) {
            quarantined += 1;
            assert_eq!(&fs::read(path.with_added_extension(format!("corrupt-{NOW}"))).unwrap(), bytes);
        }
    }
    assert!(quarantined > 100, "{quarantined}");
    add_to_all(&journal, files.len()).await;
    for at in 0..files.len() {
        let after = lines(&journal, &format!("k{at}")).await;
        assert_eq!(after.last().unwrap().id.as_str(), "new");
        assert!(after.last().unwrap().parent_id.is_some());
    }
    let undamaged = lines(&journal, &format!("k{}", files.len() - 1)).await;
    assert_eq!(undamaged, [entries(8), vec![child_entry(Some("e7"), "new")]].concat());
    // Repaired files stay intact.
    journal.flush().await.unwrap();
    drop(journal);
    let journal = open(state.path());
    assert_eq!(lines(&journal, "k1000").await, undamaged);
    assert_eq!(list_sessions(&journal).await.unwrap().len(), files.len());
}
