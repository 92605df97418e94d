//! `homard sessions rename`, `reset` and `delete`: through the gateway, or in this process if none runs.

use anyhow::Result;
use homard_agent::{Hub, Patch};
use homard_app::{App, Purpose};
use homard_proto::{Extra, SessionKey};
use homard_transcripts::plain;
use serde_json::{Value, json};

use super::lookup::{find_existing, named};
use crate::{
    cli_error::CliError,
    cmd::{
        prompt,
        query::{Call, CommandContext},
    },
    render,
};

/// The parameter of the session key in the gateway's errors.
const FLAGS: [(&str, &str); 2] = [("key: ", "session key: "), ("label: ", "LABEL: ")];

/// Arguments of `homard sessions rename`.
#[derive(Debug, clap::Args)]
pub(super) struct Rename {
    /// Session key, session id, a unique prefix of either, or the session's label
    key: String,
    /// New label, by which the session can be selected; empty removes it
    label: String,
}

/// What `homard sessions reset` and `delete` take.
#[derive(Debug, clap::Args)]
pub(super) struct SessionTarget {
    /// Session key, session id, a unique prefix of either, or the session's label
    key: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

pub(super) async fn rename(args: &Rename, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let key = find_existing(&setup, &args.key).await?;
    let label = args.label.trim();
    let new: Value = if label.is_empty() { Value::Null } else { label.into() };
    let params = json!({"key": key, "label": new});
    if call(&setup, "sessions.patch", params).await?.is_none() {
        let changes = Extra::from_iter([("label".to_owned(), new.clone())]);
        offline(&setup, &key, async |hub, key| {
            Ok(json!(hub.sessions().patch(key, Patch { expected: None, changes }).await?.label))
        })
        .await?;
    }
    let text = match new.is_null() {
        true => format!("session {key} has no label any more"),
        false => format!("session {key} is now labelled \"{label}\""),
    };
    finish(&json!({"ok": true, "key": key, "label": new}), &text, is_json)
}

pub(super) async fn reset(args: &SessionTarget, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let key = find_existing(&setup, &args.key).await?;
    confirm(args, &format!("Start session {key} over? Its messages are kept in the old transcript."))?;
    let answer = call(&setup, "sessions.reset", json!({"key": key})).await?;
    let id = match answer {
        Some(answer) => answer["entry"]["sessionId"].clone(),
        None => {
            offline(&setup, &key, async |hub, key| Ok(json!(hub.sessions().reset(key, "reset").await?.session_id)))
                .await?
        }
    };
    finish(&json!({"ok": true, "key": key, "sessionId": id}), &format!("session {key} starts over"), is_json)
}

pub(super) async fn delete(args: &SessionTarget, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let key = find_existing(&setup, &args.key).await?;
    confirm(args, &format!("Delete session {key}? Its transcript is archived."))?;
    let archived = match call(&setup, "sessions.delete", json!({"key": key})).await? {
        Some(answer) => answer["archived"].clone(),
        None => {
            offline(&setup, &key, async |hub, key| {
                let deleted = hub.sessions().delete(key, None).await?;
                Ok(deleted.and_then(|deleted| deleted.archive).into_iter().map(|path| json!(path)).collect())
            })
            .await?
        }
    };
    let paths: Vec<_> = archived.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let transcript = paths.first().map(|path| format!("; transcript: {path}")).unwrap_or_default();
    let text = format!("session {key} is deleted{transcript}");
    finish(&json!({"ok": true, "key": key, "deleted": true, "archived": archived}), &text, is_json)
}

async fn call(setup: &CommandContext, method: &str, params: Value) -> Result<Option<Value>> {
    setup.call(Call { flags: &FLAGS, ..Call::admin(method, params) }).await
}

fn confirm(args: &SessionTarget, question: &str) -> Result<()> {
    let is_confirmed = if args.yes { Some(true) } else { prompt::confirm(&plain(question))? };
    match is_confirmed {
        Some(true) => Ok(()),
        Some(false) => Err(CliError::new("usage", "nothing was changed").into()),
        None => Err(CliError::usage("without a terminal this cannot be confirmed; pass --yes").into()),
    }
}

/// Changes a session in this process, which owns the state directory for this time.
async fn offline(
    setup: &CommandContext,
    key: &str,
    change: impl AsyncFnOnce(&Hub, &SessionKey) -> Result<Value>,
) -> Result<Value> {
    if !setup.target.is_own {
        return Err(setup.not_running().into());
    }
    let chosen = crate::cmd::config_of(&setup.paths)?;
    let (app, _) = App::open(&chosen, &setup.paths, Purpose::OneTurn)?;
    for warning in app.settle(&chosen.loaded).await? {
        render::remark(&warning);
    }
    let changed = change(&app.hub, &named(setup, key)?).await;
    let closed = app.close().await;
    let changed = changed?;
    closed?;
    Ok(changed)
}

fn finish(document: &Value, text: &str, is_json: bool) -> Result<()> {
    if is_json {
        return Ok(render::print_json(document)?);
    }
    Ok(render::print(&plain(text))?)
}
