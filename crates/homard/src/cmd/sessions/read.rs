//! `homard sessions show`, `tail` and `search`: the messages of sessions on the terminal.

use std::time::Duration;

use anyhow::Result;
use homard_transcripts::{Conversation, message_text, plain, search as search_messages, sequence_number};
use serde_json::{Value, json};

use super::{
    lookup::{find_session, named, unknown},
    messages,
};
use crate::{
    cli_error::CliError,
    cmd::query::CommandContext,
    render::{self, Table},
};

/// Interval at which `tail --follow` looks for new messages.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum number of new messages per look.
const MAX_NEW: usize = 1000;

/// Arguments of `homard sessions show`.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// Session key, session id, a unique prefix of either, or the session's label
    key: String,
    /// Number of newest messages [default: all]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Show tool results in full
    #[arg(long)]
    full: bool,
}

/// Arguments of `homard sessions tail`.
#[derive(Debug, clap::Args)]
pub(super) struct Tail {
    /// Session key, session id, a unique prefix of either, or the session's label
    key: String,
    /// Number of newest messages
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Continue with new messages, from the gateway; with --json, one message per line
    #[arg(short, long)]
    follow: bool,
    /// Show tool results in full
    #[arg(long)]
    full: bool,
}

/// Arguments of `homard sessions search`.
#[derive(Debug, clap::Args)]
pub(super) struct Search {
    /// Text to search for in one line of a message, in upper or lower case
    text: String,
    /// Search in one session: its key, session id, a unique prefix of either, or its label
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Maximum number of messages
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

fn count(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

pub(super) async fn show(args: &Show, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let found = load(&setup, &args.key, args.limit.map(count)).await?;
    print(&found, args.full, is_json)
}

/// Returns the session that was typed, with its newest messages.
pub(super) async fn load(setup: &CommandContext, input: &str, limit: Option<usize>) -> Result<Conversation> {
    let key = find_session(setup, input).await?;
    let mut source = messages(setup).await?;
    let found = source.conversation(&key, limit).await;
    source.close().await?;
    Ok(found?.ok_or_else(|| no_session(setup, &key))?)
}

fn no_session(setup: &CommandContext, key: &str) -> CliError {
    named(setup, key).map_or_else(|error| error, |key| unknown(&key))
}

fn print(found: &Conversation, full: bool, is_json: bool) -> Result<()> {
    if is_json {
        return Ok(render::print_json(&found.document())?);
    }
    let all = render::count(found.total, "message");
    let shown = match found.messages.len() {
        count if count == found.total => all,
        count => format!("the newest {count} of {all}"),
    };
    let mut lines = vec![plain(&format!("session {} ({}), {shown}", found.key, found.session_id))];
    lines.extend(found.messages.iter().map(|message| format!("\n{}", message_text(message, full))));
    Ok(render::print(&lines.join("\n"))?)
}

pub(super) async fn tail(args: &Tail, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let key = find_session(&setup, &args.key).await?;
    let mut source = messages(&setup).await?;
    if args.follow && !source.is_live() {
        source.close().await?;
        return Err(setup.not_running().into());
    }
    let found = source.conversation(&key, Some(count(args.limit))).await;
    if !args.follow {
        source.close().await?;
        return print(&found?.ok_or_else(|| no_session(&setup, &key))?, args.full, is_json);
    }
    let mut found = found?.ok_or_else(|| no_session(&setup, &key))?;
    // What was shown last. A new transcript starts over.
    let mut last = (found.session_id.clone(), 0);
    loop {
        if last.0 != found.session_id {
            last = (found.session_id.clone(), 0);
        }
        for message in found.messages.iter().filter(|message| sequence_number(message) > last.1) {
            let text = if is_json { message.to_string() } else { format!("{}\n", message_text(message, args.full)) };
            render::print(&text)?;
        }
        last.1 = found.messages.iter().map(sequence_number).max().unwrap_or_default().max(last.1);
        tokio::time::sleep(POLL_INTERVAL).await;
        found = source.conversation(&key, Some(MAX_NEW)).await?.ok_or_else(|| no_session(&setup, &key))?;
    }
}

pub(super) async fn search(args: &Search, is_json: bool) -> Result<()> {
    if args.text.trim().is_empty() {
        return Err(CliError::usage("TEXT is blank; pass what to search for").into());
    }
    let setup = CommandContext::load()?;
    let only = match &args.session {
        Some(input) => Some(find_session(&setup, input).await?),
        None => None,
    };
    let mut source = messages(&setup).await?;
    let found = search_messages(&mut source, &args.text, only, count(args.limit)).await;
    source.close().await?;
    let found = found?;
    if is_json {
        let document = json!({"ok": true, "text": args.text, "count": found.len(), "matches": found});
        return Ok(render::print_json(&document)?);
    }
    if found.is_empty() {
        return Ok(render::print("no message contains this text")?);
    }
    let titles = ["SESSION", "MESSAGE", "FROM", "TEXT"].map(str::to_owned).to_vec();
    let line = |row: &Value| {
        let text = |name: &str| plain(row[name].as_str().unwrap_or_default());
        vec![text("key"), row["seq"].to_string(), text("from"), text("snippet")]
    };
    Ok(render::print_table(&Table::list(std::iter::once(titles).chain(found.iter().map(line)).collect()))?)
}
