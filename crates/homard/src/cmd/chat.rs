//! `homard chat`: the interactive chat, with the running gateway or with one that is started for it.

mod link;
mod own_gateway;

use std::{
    env, fs,
    io::{self, IsTerminal},
    path::Path,
};

use anyhow::{Context, Result};
use homard_chat::{
    input_history::InputHistory,
    screen::Capabilities,
    state::{ChatSettings, IdSource},
    terminal::{self, ChatOutcome, Environment},
};
use homard_client::GatewayTarget;
use homard_proto::{AgentId, SessionKey};
use homard_runtime::Ambient;
use homard_settings::{
    Chosen,
    paths::{self, Paths},
};
use homard_tools::sandbox::AccessMode;

use crate::{cli_error::CliError, render};

/// File with earlier inputs, in the state directory.
const HISTORY_FILE: &str = "chat-history.jsonl";
/// File with the key of the session that was used last.
const SESSION_FILE: &str = "chat-session";
/// Size above which the oldest half of the history file is dropped.
const MAX_HISTORY: usize = 1 << 20;

/// The flags of `homard chat`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  homard chat                     start a chat
  homard chat -c                  continue the last one
  homard chat --session main      open a session

homard without arguments does the same. Without a running gateway, one is started for the chat and ends with it.")]
pub(super) struct Args {
    /// Continue the session that was used last
    #[arg(short, long = "continue")]
    continues: bool,
    /// Session key, such as project-x
    #[arg(long, value_name = "KEY", conflicts_with = "continues")]
    session: Option<String>,
    /// Agent id of a new session
    #[arg(long, value_name = "ID", conflicts_with_all = ["continues", "session"])]
    agent: Option<String>,
}

/// Runs the chat until the user leaves.
pub(super) async fn run(args: &Args) -> Result<()> {
    if !is_interactive() {
        let text = "the chat requires a terminal; to send one message: homard agent -m TEXT";
        return Err(CliError::usage(text).into());
    }
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let target = GatewayTarget::find(None, None, &chosen.loaded, &paths)?;
    let cwd = env::current_dir().context("cannot determine the current directory")?;
    let working_directory = if target.is_own { working_directory(&cwd, &chosen, &paths) } else { None };
    fs::create_dir_all(&paths.state).with_context(|| format!("cannot create {}", paths.state.display()))?;
    let history = read_history(&paths.state.join(HISTORY_FILE));
    let home = paths::home();
    let shown_directory = match home.as_ref().and_then(|home| cwd.strip_prefix(home).ok()) {
        Some(below) if below.as_os_str().is_empty() => "~".to_owned(),
        Some(below) => format!("~/{}", below.display()),
        None => cwd.display().to_string(),
    };
    let ambient = Ambient::system();
    let settings = ChatSettings {
        session: session_key(args, &chosen, &paths, &ambient)?.to_string(),
        history,
        ids: IdSource::new(move || ambient.run_id().to_string()),
        size: terminal::size(),
        directory: Some(shown_directory),
        working_directory,
        sandbox: target.is_own.then(|| sandbox_name(&chosen, &paths).to_owned()),
    };
    let environment = Environment {
        capabilities: capabilities(),
        history_file: Some(paths.state.join(HISTORY_FILE)),
        session_file: Some(paths.state.join(SESSION_FILE)),
        editor: ["VISUAL", "EDITOR"].iter().find_map(|name| text_of(name)).unwrap_or_else(|| "vi".to_owned()),
        home,
        directory: cwd,
    };
    let (link, connection) = link::start(chosen, paths);
    let outcome = terminal::run(settings, environment, link).await;
    connection.finish().await;
    report(&outcome?)
}

/// Returns true if both sides are a terminal that can show the chat.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && text_of("TERM").is_none_or(|term| term != "dumb")
}

/// Returns the text of an environment variable.
fn text_of(name: &str) -> Option<String> {
    paths::env(name).and_then(|value| value.into_string().ok())
}

/// Determines what the terminal can show from the environment.
fn capabilities() -> Capabilities {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| text_of(name));
    // Without any setting, terminals of today show UTF-8.
    let has_unicode = locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    });
    let is_multiplexed = paths::env("TMUX").is_some();
    let is_fixed = paths::env("XTERM_VERSION").is_some() || text_of("TERM").is_some_and(|term| term == "linux");
    Capabilities { has_colors: render::colours_wanted(), has_unicode, reflows: is_multiplexed || !is_fixed }
}

/// Returns the directory in which the tools work: the current one. If that is risky, it is the agent's workspace, with a
/// remark.
fn working_directory(cwd: &Path, chosen: &Chosen, paths: &Paths) -> Option<String> {
    let why = match homard_app::working_dir::check_requested(cwd, &chosen.loaded.config, paths) {
        // A path that is not UTF-8 cannot be sent.
        Ok(_) => match cwd.to_str() {
            Some(cwd) => return Some(cwd.to_owned()),
            None => format!("{} is not UTF-8", cwd.display()),
        },
        Err(why) => why,
    };
    render::remark(&format!("(working in the agent's workspace: {why})"));
    None
}

/// Names how commands are confined.
fn sandbox_name(chosen: &Chosen, paths: &Paths) -> &'static str {
    match homard_settings::sandbox_policy(&chosen.loaded.config, paths).mode {
        AccessMode::Full => "no sandbox",
        AccessMode::ReadOnly => "sandbox: read-only",
        AccessMode::Workspace => "sandbox: workspace",
        AccessMode::Guarded => "sandbox: guarded",
    }
}

fn session_key(args: &Args, chosen: &Chosen, paths: &Paths, ambient: &Ambient) -> Result<SessionKey> {
    let default = chosen.loaded.config.agents.member(None).map_or_else(AgentId::main, |agent| agent.id);
    let parse = |text: &str| {
        SessionKey::parse(text, &default).map_err(|error| CliError::usage(format!("session key: {error}")))
    };
    if let Some(session) = &args.session {
        return Ok(parse(session)?);
    }
    if args.continues {
        return match fs::read_to_string(paths.state.join(SESSION_FILE)) {
            Ok(text) => Ok(parse(text.trim())?),
            Err(_) => {
                let text = "no chat to continue yet; start one with: homard chat, or open a session with --session KEY";
                Err(CliError::not_found(text.to_owned()).into())
            }
        };
    }
    let agent = args.agent.as_deref().map_or(default.clone(), AgentId::normalize);
    let id: String = ambient.run_id().as_str().chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    Ok(parse(&format!("agent:{agent}:chat-{}", id.to_lowercase()))?)
}

/// Reads the earlier inputs, and drops the older half of a file that has become large. Without it the chat works.
fn read_history(path: &Path) -> InputHistory {
    let Ok(text) = fs::read_to_string(path) else { return InputHistory::default() };
    if text.len() > MAX_HISTORY {
        let middle = text.len() - MAX_HISTORY / 2;
        let start = text.bytes().skip(middle).position(|byte| byte == b'\n').map_or(text.len(), |at| middle + at + 1);
        // A failure leaves a file that is too large.
        homard_stdx::file::replace(path, &text.as_bytes()[start..]).ok();
    }
    InputHistory::parse(&text)
}

/// Prints what the user needs after the chat.
fn report(outcome: &ChatOutcome) -> Result<()> {
    for text in &outcome.unsent {
        render::remark(&format!("(not sent: {})", homard_stdx::text::fit(&homard_stdx::text::one_line(text), 200)));
    }
    if outcome.is_failed {
        return Err(CliError::new("connection", "the chat ended, because the gateway cannot be used").into());
    }
    if outcome.has_messages {
        render::remark("(continue with: homard chat -c)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_file_does_not_grow_without_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(HISTORY_FILE);
        let line = format!("\"{}\"\n", "x".repeat(998));
        fs::write(&path, line.repeat(1_100)).unwrap();
        assert_eq!(read_history(&path).search("x", 0).map(str::len), Some(998));
        let left = fs::read_to_string(&path).unwrap();
        assert!(left.len() < MAX_HISTORY && left.starts_with('"'), "{}", left.len());
    }
}
