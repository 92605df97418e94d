//! Cost of preparing a turn, by length of the transcript: cold, when the session is read from disk, and warm; and the
//! time to compact a huge conversation.
//!
//! The transcripts were compacted near their end, as long ones are, so the prompts of all of them have the same size.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::Path,
    rc::Rc,
    time::Duration,
};

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};

use super::{client::BenchClient, process, report::BenchReport};
use crate::gateway::{self, GatewayHome, RunningGateway};

/// Numbers of messages in a transcript.
const LENGTHS: [usize; 5] = [10, 100, 1_000, 10_000, 50_000];
/// Sessions of each length: each is cold once.
const SESSIONS: usize = 5;
/// Runs measured in each session after the first, which is cold.
const RUNS: usize = 20;
/// Length of a message in characters.
const SIZE: usize = 300;
/// Number of messages that the last compaction kept, and number of messages since.
const KEPT: usize = 4;
const SINCE: usize = 4;

/// A conversation of 100 MB: number of messages and length of each.
const HUGE: (usize, usize) = (50_000, 1_850);
/// Minimum size of the huge transcript in bytes.
const HUGE_BYTES: u64 = 100_000_000;

/// Measures a gateway of its own.
pub(super) async fn measure(binary: &Path, config: &Value, logs: &Path, report: &mut BenchReport) -> Result<()> {
    let home = GatewayHome::new(binary, config, &logs.join("turn.log"))?;
    let huge = create_sessions(&home.state())?;
    ensure!(huge >= HUGE_BYTES, "the huge transcript has only {huge} bytes");
    let gateway = RunningGateway::start_at(Rc::new(home))?;
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    // The first run of a gateway warms it up and is not measured.
    client.run("agent:main:turn-first", 1).await?;
    for length in LENGTHS {
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        for number in 0..SESSIONS {
            cold.push(client.run(&key(length, number), 1).await?);
            for _ in 0..RUNS {
                warm.push(client.run(&key(length, number), 1).await?);
            }
        }
        report.turn(length, &cold, &warm);
    }
    let elapsed = compact(&mut client).await?;
    report.compaction(elapsed, process::peak_memory(gateway.pid())?);
    Ok(())
}

/// Compacts the huge conversation and checks the result.
async fn compact(client: &mut BenchClient) -> Result<Duration> {
    let (elapsed, answer) = client.compact(&key(HUGE.0, SESSIONS)).await?;
    let (before, after) = (answer["tokensBefore"].as_u64(), answer["tokensAfter"].as_u64());
    let is_short = before > Some(10_000_000) && after < Some(100_000);
    ensure!(answer["compacted"] == true && is_short, "the huge conversation was not compacted: {answer}");
    Ok(elapsed)
}

fn key(length: usize, number: usize) -> String {
    format!("agent:main:turn-{length}-{number}")
}

/// Creates sessions as OpenClaw leaves them; returns the size of the huge one in bytes.
fn create_sessions(state: &Path) -> Result<u64> {
    let folder = state.join("agents/main/sessions");
    fs::create_dir_all(&folder)?;
    let mut records = Map::new();
    let mut add = |length: usize, number: usize, size: usize, is_compacted: bool| -> Result<u64> {
        let id = format!("00000000-0000-4000-8000-{:012}", records.len());
        let path = folder.join(format!("{id}.jsonl"));
        write(BufWriter::new(File::create(&path)?), &id, length, size, is_compacted)?;
        records.insert(key(length, number), json!({"sessionId": id, "updatedAt": TIME}));
        Ok(fs::metadata(path)?.len())
    };
    for length in LENGTHS {
        for number in 0..SESSIONS {
            add(length, number, SIZE, true)?;
        }
    }
    let huge = add(HUGE.0, SESSIONS, HUGE.1, false)?;
    fs::write(folder.join("sessions.json"), Value::Object(records).to_string())?;
    Ok(huge)
}

/// Timestamp of all messages.
pub(super) const TIME: u64 = 1_767_225_600_000;
const DATE: &str = "2026-01-01T00:00:00.000Z";

/// Writes a transcript with this many messages of this size.
pub(super) fn write(mut file: BufWriter<File>, id: &str, length: usize, size: usize, is_compacted: bool) -> Result<()> {
    writeln!(file, "{}", json!({"type": "session", "version": 3, "id": id, "timestamp": DATE, "cwd": "/"}))?;
    let text = "All about the house by the sea. ".repeat(size / 32 + 1);
    let name = |index: usize| format!("{index:08x}");
    let mut parent = Value::Null;
    for index in 0..length {
        if is_compacted && index + SINCE == length {
            let (compaction_id, first_kept) = (name(length), name(index - KEPT));
            let compaction = json!({
                "type": "compaction", "id": compaction_id, "parentId": parent, "timestamp": DATE,
                "summary": "## Goal\nTo keep the house.", "firstKeptEntryId": first_kept, "tokensBefore": 100_000,
            });
            writeln!(file, "{compaction}")?;
            parent = compaction_id.into();
        }
        let content = [json!({"type": "text", "text": &text[..size]})];
        let message = match index % 2 {
            0 => json!({"role": "user", "content": content, "timestamp": TIME}),
            _ => json!({
                "role": "assistant", "content": content, "api": "openai-completions", "provider": "fake",
                "model": "fake-1", "stopReason": "stop", "timestamp": TIME,
            }),
        };
        let entry =
            json!({"type": "message", "id": name(index), "parentId": parent, "timestamp": DATE, "message": message});
        writeln!(file, "{entry}")?;
        parent = name(index).into();
    }
    Ok(file.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_is_one_chain_with_a_compaction_near_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        write(BufWriter::new(File::create(&path).unwrap()), "a", 10, 5, true).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 12, "a header, ten messages and a compaction");
        assert!(lines[2..].windows(2).all(|pair| pair[1]["parentId"] == pair[0]["id"]));
        assert_eq!(lines[7]["type"], "compaction");
        assert_eq!(lines[7]["firstKeptEntryId"], lines[3]["id"]);
        assert_eq!(lines[1]["message"]["content"][0]["text"], "All a");
    }
}
