//! `homard chat`: the interactive chat, with the running gateway or with one that is started for it.

use std::{
    env, fs,
    io::{self, IsTerminal},
    path::Path,
};

use anyhow::{Context, Result};
use homard_chat::{
    state::{ChatSettings, IdSource},
    terminal::{self, ChatOutcome, Environment},
};
use homard_chat_link::{SessionChoice, StateFiles};
use homard_client::GatewayTarget;
use homard_proto::AgentId;
use homard_runtime::Ambient;
use homard_sandbox::AccessMode;
use homard_settings::{
    Chosen,
    paths::{self, Paths},
};

use crate::{cli_error::CliError, render};

/// Arguments of `homard chat`.
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

impl Args {
    fn session(&self) -> SessionChoice<'_> {
        match &self.session {
            Some(session) => SessionChoice::Key(session),
            None if self.continues => SessionChoice::Last,
            None => SessionChoice::New(self.agent.as_deref()),
        }
    }
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
    let files = StateFiles::in_directory(&paths.state);
    let default = chosen.loaded.config.agents.member(None).map_or_else(AgentId::main, |agent| agent.id);
    let ambient = Ambient::system();
    let session = args.session().key(&default, &files.last_session, &ambient).map_err(session_error)?;
    let home = paths::home();
    let settings = ChatSettings {
        session: session.to_string(),
        history: files.read_history(),
        ids: IdSource::new(move || ambient.run_id().to_string()),
        size: terminal::size(),
        directory: Some(terminal::short_path(&cwd, home.as_deref())),
        working_directory,
        sandbox: target.is_own.then(|| sandbox_name(&chosen, &paths).to_owned()),
    };
    let editor = ["VISUAL", "EDITOR"].iter().find_map(|name| paths::env(name)?.into_string().ok());
    let environment = Environment {
        capabilities: homard_chat_link::capabilities(render::colours_wanted()),
        history_file: Some(files.history),
        session_file: Some(files.last_session),
        editor: editor.unwrap_or_else(|| "vi".to_owned()),
        home,
        directory: cwd,
    };
    let (link, connection) = homard_chat_link::start(chosen, paths);
    let outcome = terminal::run(settings, environment, link).await;
    connection.finish().await;
    report(&outcome?)
}

/// Returns true if both sides are a terminal that can show the chat.
pub(super) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal() && paths::env("TERM").is_none_or(|term| term != "dumb")
}

fn session_error(error: homard_chat_link::Error) -> anyhow::Error {
    match &error {
        homard_chat_link::Error::SessionKey(_) => CliError::usage(error.to_string()).into(),
        homard_chat_link::Error::NothingToContinue => CliError::not_found(error.to_string()).into(),
        homard_chat_link::Error::Process { .. } | homard_chat_link::Error::Settings(_) => error.into(),
    }
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
