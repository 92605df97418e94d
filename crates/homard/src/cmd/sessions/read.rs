//! `homard sessions show`, `tail` and `search`: the messages of sessions on the terminal.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    conversation::{Conversation, MessageSource, ShownMessage, plain, sequence_number},
    lookup::{find_session, named, unknown},
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
/// Lines of a tool result that are shown without `--full`.
const MAX_RESULT_LINES: usize = 20;
/// Characters of a match that are shown, and how many of them before it.
const MAX_SNIPPET: usize = 160;
const SNIPPET_START: usize = 40;

/// What `homard sessions show` takes.
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

/// What `homard sessions tail` takes.
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

/// What `homard sessions search` takes.
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
    let mut source = MessageSource::open(setup).await?;
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
    lines.extend(found.messages.iter().map(|message| format!("\n{}", text_of(message, full))));
    Ok(render::print(&lines.join("\n"))?)
}

/// Formats a message. What it contains is indented, so that it cannot look like the title of another one.
fn text_of(message: &Value, full: bool) -> String {
    let shown = ShownMessage::new(message);
    let all: Vec<&str> = shown.text.lines().collect();
    let is_cut = !full && message["role"] == "toolResult" && all.len() > MAX_RESULT_LINES;
    let kept = if is_cut { &all[..MAX_RESULT_LINES] } else { &all[..] };
    let mut lines = vec![shown.title()];
    lines.extend(kept.iter().map(|line| format!("  {line}").trim_end().to_owned()));
    if is_cut {
        lines.push(format!("  … {} more lines; show them with --full", all.len() - MAX_RESULT_LINES));
    }
    lines.extend(shown.calls.iter().map(|call| format!("  · {}", call.replace('\n', "\n    ").trim_end())));
    lines.join("\n")
}

pub(super) async fn tail(args: &Tail, is_json: bool) -> Result<()> {
    let setup = CommandContext::load()?;
    let key = find_session(&setup, &args.key).await?;
    let mut source = MessageSource::open(&setup).await?;
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
            let text = if is_json { message.to_string() } else { format!("{}\n", text_of(message, args.full)) };
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
    let mut source = MessageSource::open(&setup).await?;
    let found = matches(&mut source, only, args).await;
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

/// Returns the matching messages, newest first in each session.
async fn matches(source: &mut MessageSource<'_>, only: Option<String>, args: &Search) -> Result<Vec<Value>> {
    let keys = match only {
        Some(key) => vec![key],
        None => source.keys().await?,
    };
    let (wanted, limit) = (args.text.to_lowercase(), count(args.limit));
    let mut found = Vec::new();
    for key in keys {
        let Some(conversation) = source.conversation(&key, None).await? else { continue };
        for message in conversation.messages.iter().rev() {
            let shown = ShownMessage::new(message);
            let texts = std::iter::once(&shown.text).chain(&shown.calls);
            let Some(snippet) = texts.flat_map(|text| text.lines()).find_map(|line| snippet(line, &wanted)) else {
                continue;
            };
            found.push(json!({
                "key": key, "sessionId": conversation.session_id, "id": message["__openclaw"]["id"],
                "seq": sequence_number(message), "from": shown.author, "timestamp": message["timestamp"],
                "snippet": snippet,
            }));
            if found.len() >= limit {
                return Ok(found);
            }
        }
    }
    Ok(found)
}

/// Returns the part of a line around a text in lower case, if the line contains it.
fn snippet(line: &str, wanted: &str) -> Option<String> {
    let lower = line.to_lowercase();
    let at = lower.find(wanted)?;
    let start = lower[..at].chars().count().saturating_sub(SNIPPET_START);
    let part: String = line.chars().skip(start).take(MAX_SNIPPET).collect();
    Some(part.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_contains_is_indented_and_shortened() {
        let lines = (1..=22).map(|number| number.to_string()).collect::<Vec<_>>().join("\n");
        let result = json!({"role": "toolResult", "toolName": "exec", "content": [{"type": "text", "text": lines}]});
        let text = text_of(&result, false);
        assert!(
            text.starts_with("exec result\n  1\n") && text.ends_with("  20\n  … 2 more lines; show them with --full")
        );
        assert_eq!(text_of(&result, true).lines().count(), 23);
        let fake = json!({"role": "user", "content": "hi\nassistant  now\n"});
        assert_eq!(text_of(&fake, false), "user\n  hi\n  assistant  now");
    }

    #[test]
    fn a_snippet_surrounds_the_match() {
        assert_eq!(snippet("We need MILK today", "milk").as_deref(), Some("We need MILK today"));
        let long = format!("{}MILK{}", "é".repeat(100), "ö".repeat(300));
        let found = snippet(&long, "milk").unwrap();
        assert_eq!((found.chars().count(), found.find("MILK")), (160, Some(80)));
        assert_eq!(snippet("nothing", "milk"), None);
    }
}
