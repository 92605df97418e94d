//! `homard sessions compact` and `compactions`: compact a session, list its compactions, and undo one.
//!
//! Without a gateway the transcript is read directly. Changes need the session's lane, so they go through the gateway.

use std::time::Duration;

use anyhow::{Error, Result};
use clap::Subcommand;
use homard_runtime::Ambient;
use homard_store::{StoreReader, branch};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::lookup::{find_session, named, unknown};
use crate::{
    cli_error::CliError,
    cmd::{
        ids::{self, Candidate},
        query::{Call, CommandContext},
    },
    render::{self, Table},
};

/// Timeout for a compaction, which may have to wait for the active run.
const COMPACT_TIMEOUT: Duration = Duration::from_secs(1_260);
/// The parameter of the session key in the gateway's errors.
const FLAGS: [(&str, &str); 1] = [("key: ", "session key: ")];
/// The gateway's message for an unknown session. There is no code for it.
const NO_SESSION: &str = "session not found";

/// Arguments of `homard sessions compact`.
#[derive(Debug, clap::Args)]
pub(super) struct Compact {
    /// Session key, session id, a unique prefix of either, or the session's label
    key: String,
    /// What the summary should focus on
    #[arg(long, value_name = "TEXT")]
    focus: Option<String>,
}

/// Arguments of `homard sessions compactions`.
#[derive(Debug, clap::Args)]
pub(super) struct Compactions {
    /// Session key, session id, a unique prefix of either, or the session's label
    key: String,
    #[command(subcommand)]
    command: Option<CompactionChange>,
}

#[derive(Debug, Subcommand)]
enum CompactionChange {
    /// Undo a compaction: restore the messages that it replaced
    Undo {
        /// Compaction id or a unique prefix of it [default: the latest]
        id: Option<String>,
    },
}

/// Compacts a session.
pub(super) async fn compact(args: &Compact, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let key = &find_session(&setup, &args.key).await?;
    let mut params = json!({"key": key});
    if let Some(focus) = &args.focus {
        params["focus"] = focus.as_str().into();
    }
    let response = setup.call(change("sessions.compact", params)).await;
    let answer = response.map_err(|error| translate_error(&setup, key, error))?.ok_or_else(|| setup.not_running())?;
    // Other clients also compact sessions that have no messages yet, so for them this is not an error.
    if answer.get("reason").and_then(Value::as_str) == Some(NO_SESSION) {
        return Err(unknown(&named(&setup, key)?).into());
    }
    if is_json {
        return Ok(render::print_json(&answer)?);
    }
    Ok(render::print(&compacted(&answer))?)
}

/// Lists the compactions of a session, or undoes one.
pub(super) async fn run(args: &Compactions, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let key = find_session(&setup, &args.key).await?;
    match &args.command {
        None => list(&setup, &key, is_json).await,
        Some(CompactionChange::Undo { id }) => undo(&setup, &key, id.as_deref(), is_json).await,
    }
}

async fn list(setup: &CommandContext, key: &str, is_json: bool) -> Result<()> {
    let listed = match compactions_of(setup, key).await? {
        Some(listed) => listed,
        None => read_transcript(setup, key).await?,
    };
    if is_json {
        return Ok(render::print_json(&listed)?);
    }
    let rows = listed.get("compactions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return Ok(render::print(&format!("no compactions yet; create one with: homard sessions compact {key}"))?);
    }
    Ok(render::print_table(&table(rows, Ambient::system().now_ms()))?)
}

/// Returns the compactions of a session; `None` if no gateway listens.
async fn compactions_of(setup: &CommandContext, key: &str) -> Result<Option<Value>> {
    let call = Call::new(&["operator.read"], "sessions.compactions", json!({"key": key}));
    setup.call(Call { flags: &FLAGS, ..call }).await.map_err(|error| translate_error(setup, key, error))
}

async fn undo(setup: &CommandContext, key: &str, id: Option<&str>, is_json: bool) -> Result<()> {
    let mut params = json!({"key": key});
    if let Some(input) = id {
        let listed = compactions_of(setup, key).await?.ok_or_else(|| setup.not_running())?;
        let rows = listed["compactions"].as_array().into_iter().flatten();
        let all: Vec<_> = rows.filter_map(|row| Some(Candidate { id: row["id"].as_str()?, name: None })).collect();
        params["id"] = ids::resolve("compaction", input, &all)?.unwrap_or(input).into();
    }
    let response = setup.call(change("sessions.compactions.undo", params)).await;
    let answer = response.map_err(|error| translate_error(setup, key, error))?.ok_or_else(|| setup.not_running())?;
    if is_json {
        return Ok(render::print_json(&answer)?);
    }
    let id = answer.get("id").and_then(Value::as_str).unwrap_or("-");
    let message = format!("compaction {id} is undone; the replaced messages are part of the context again");
    Ok(render::print(&render::strip_controls(&message))?)
}

/// Returns the call of a method that changes a session.
fn change(method: &str, params: Value) -> Call<'_> {
    Call { timeout: COMPACT_TIMEOUT, flags: &FLAGS, ..Call::admin(method, params) }
}

/// Replaces the gateway's error by the message that is used without a gateway.
fn translate_error(setup: &CommandContext, text: &str, error: Error) -> Error {
    match CliError::find(&error) {
        Some(failure) if failure.message == NO_SESSION => {
            named(setup, text).map_or_else(Error::from, |key| unknown(&key).into())
        }
        Some(_) | None => error,
    }
}

/// Reads the compactions from the transcript in the state directory, in the gateway's format.
async fn read_transcript(setup: &CommandContext, text: &str) -> Result<Value> {
    let key = named(setup, text)?;
    let wanted = key.clone();
    let session = setup.read_state(async move |journal| Ok(journal.load(&wanted).await?)).await?.flatten();
    let session = session.ok_or_else(|| unknown(&key))?;
    let rows: Vec<_> = branch::compactions(&session.entries)
        .into_iter()
        .map(|compaction| {
            json!({
                "id": compaction.id, "timestamp": compaction.at, "tokensBefore": compaction.tokens_before,
                "way": compaction.strategy, "undone": compaction.is_undone, "summary": compaction.summary,
            })
        })
        .collect();
    Ok(json!({"ok": true, "key": key, "compactions": rows}))
}

/// Describes the result in a sentence.
fn compacted(answer: &Value) -> String {
    let number =
        |name: &str| answer.get(name).and_then(Value::as_u64).map_or_else(|| "?".to_owned(), |n| n.to_string());
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    let message = match answer.get("compacted").and_then(Value::as_bool) {
        Some(true) => {
            let way = text("way").map(|way| format!(" ({way})")).unwrap_or_default();
            format!("compacted: {} tokens before, {} after{way}", number("tokensBefore"), number("tokensAfter"))
        }
        Some(false) | None => {
            let reason = text("reason").unwrap_or("Nothing was done.");
            // The rest of the text says the same.
            reason.strip_prefix("Nothing was done: ").unwrap_or(reason).to_owned()
        }
    };
    render::strip_controls(&message)
}

/// Formats compactions as a table, oldest first.
fn table(rows: &[Value], now: u64) -> Table {
    let titles = ["ID", "WHEN", "TOKENS BEFORE", "WAY", "UNDONE"].map(str::to_owned).to_vec();
    let line = |row: &Value| {
        let text = |name: &str| row.get(name).and_then(Value::as_str);
        let at_ms = text("timestamp").and_then(|at| at.parse::<Timestamp>().ok());
        let at_ms = at_ms.and_then(|at| u64::try_from(at.as_millisecond()).ok());
        let age = at_ms.map(|at_ms| render::age(now, at_ms));
        let tokens = row.get("tokensBefore").and_then(Value::as_u64).map(|tokens| tokens.to_string());
        let undone = row.get("undone").and_then(Value::as_bool).unwrap_or(false).then(|| "yes".to_owned());
        let cells = [text("id").map(str::to_owned), age, tokens, text("way").map(str::to_owned), undone];
        cells.map(|cell| render::strip_controls(&cell.unwrap_or_else(|| "-".to_owned()))).to_vec()
    };
    Table::list(std::iter::once(titles).chain(rows.iter().map(line)).collect())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use homard_client::GatewayTarget;
    use homard_settings::{Config, paths::Paths};

    fn without_gateway(state: &Path) -> CommandContext {
        let paths = Paths { config: state.join("homard.json"), state: state.to_owned() };
        let target =
            GatewayTarget { url: "ws://127.0.0.1:9".to_owned(), secret: None, pin: None, is_own: true, is_down: true };
        CommandContext { loaded: Config::read(&paths.config, "{}"), paths, config_warning: None, target }
    }

    #[tokio::test]
    async fn without_a_gateway_compactions_are_read_from_the_transcript() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("agents/main/sessions");
        fs::create_dir_all(&folder).unwrap();
        let record = json!({"agent:main:garden": {"sessionId": "s1", "updatedAt": 1}});
        fs::write(folder.join("sessions.json"), record.to_string()).unwrap();
        let at = "2026-11-15T00:00:00.000Z";
        let compaction = |id: &str, parent: &str, details: Value| {
            json!({"type": "compaction", "id": id, "parentId": parent, "timestamp": at, "summary": id.to_uppercase(),
                   "firstKeptEntryId": "u", "tokensBefore": 90, "details": details})
        };
        let lines = [
            json!({"type": "session", "version": 3, "id": "s1", "timestamp": at, "cwd": "/"}),
            json!({"type": "message", "id": "u", "parentId": null, "timestamp": at,
                   "message": {"role": "user", "content": "hi", "timestamp": 1}}),
            compaction("a", "u", json!({})),
            compaction("b", "a", json!({"way": "extract"})),
            json!({"type": "custom", "customType": "homard.compaction-undone", "data": {"compactionId": "b"},
                   "id": "c", "parentId": "b", "timestamp": at}),
        ];
        let lines = lines.map(|line| format!("{line}\n")).concat();
        fs::write(folder.join("s1.jsonl"), &lines).unwrap();
        let setup = without_gateway(state.path());
        let row = |id: &str, way: Value, undone: bool| {
            json!({"id": id, "timestamp": at, "tokensBefore": 90, "way": way, "undone": undone,
                   "summary": id.to_uppercase()})
        };
        let expected = json!({
            "ok": true, "key": "agent:main:garden",
            "compactions": [row("a", Value::Null, false), row("b", "extract".into(), true)],
        });
        assert_eq!(read_transcript(&setup, "garden").await.unwrap(), expected);
        for input in ["garden", "agent:main:g", "s1"] {
            assert_eq!(find_session(&setup, input).await.unwrap(), "agent:main:garden", "{input}");
        }
        assert_eq!(find_session(&setup, "nowhere").await.unwrap(), "nowhere");
        assert_eq!(fs::read_to_string(folder.join("s1.jsonl")).unwrap(), lines, "looking changes nothing");
        assert_eq!(
            read_transcript(&setup, "nowhere").await.unwrap_err().to_string(),
            "session agent:main:nowhere not found; list sessions with: homard sessions"
        );
    }

    #[tokio::test]
    async fn reading_creates_no_directory() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        read_transcript(&without_gateway(&state), "garden").await.unwrap_err();
        assert!(!state.exists());
    }

    #[test]
    fn compactions_are_listed_in_a_table() {
        let rows = [
            json!({"id": "3f2a", "timestamp": "1970-01-01T00:00:00.000Z", "tokensBefore": 180_000, "way": "asked",
                   "undone": true, "summary": "…"}),
            json!({"id": "x\u{1b}[2J", "timestamp": "long ago", "undone": false}),
        ];
        assert_eq!(
            table(&rows, 61_000).to_string(),
            "ID    WHEN    TOKENS BEFORE  WAY    UNDONE\n\
             3f2a  1m ago  180000         asked  yes\n\
             x[2J  -       -              -      -"
        );
    }

    #[test]
    fn the_result_of_a_compaction_is_one_sentence() {
        let compacted_answer =
            json!({"ok": true, "compacted": true, "tokensBefore": 90, "tokensAfter": 7, "way": "extract"});
        assert_eq!(compacted(&compacted_answer), "compacted: 90 tokens before, 7 after (extract)");
        let old = json!({"ok": true, "compacted": true});
        assert_eq!(compacted(&old), "compacted: ? tokens before, ? after");
        let skipped_answer = json!({"ok": true, "compacted": false, "reason": "Nothing was done: already compacted."});
        assert_eq!(compacted(&skipped_answer), "already compacted.");
    }
}
