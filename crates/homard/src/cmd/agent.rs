//! `homard agent`: one turn, through the gateway if it runs, or else in this process.

mod local;
mod remote;
mod working_dir;

use std::{
    env,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use homard_agent::wire::TRUNCATED_FIELD;
use homard_client::ConnectResult;
use homard_command::{self as command, Command, Triggers};
use homard_proto::{RunId, SessionId, method::agent::AgentParams};
use homard_runtime::Ambient;
use homard_settings::{Chosen, DEMO, paths::Paths};
use serde_json::Value;

use self::remote::GatewayLink;
use crate::{
    cli_error::CliError,
    cmd::flags,
    render::{self, RenderOptions, RunRenderer},
    signal::{Signal, Signals},
};

/// Maximum size of a message file.
const MAX_FILE: u64 = 4 << 20;
/// How long to wait for the end of a run after the user interrupts it.
const ABORT_WAIT: Duration = Duration::from_secs(1);

/// Names of parameters in errors, and the flags that set them.
const FLAGS: [(&str, &str); 7] = [
    ("sessionKey", "--session-key"),
    ("sessionId", "--session-id"),
    ("agentId", "--agent"),
    ("unknown thinking level", "--thinking: unknown level"),
    ("unknown channel: ", "--channel: unknown channel "),
    ("unknown model", "--model: unknown model"),
    ("timeout: ", "--timeout: "),
];

/// The flags of `homard agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard agent -m \"What files are here?\"
  homard agent -m \"Read README.md\" --json
  homard agent --message-file question.txt --session-key project-x
  homard agent -m 'Run `date`' --local --timeout 120

Without a session, the message goes to the main session of the default agent.")]
pub(super) struct Args {
    /// Message text
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    message: Option<String>,
    /// Read the message from a file (UTF-8, at most 4 MiB)
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    message_file: Option<PathBuf>,
    /// Session key, such as project-x
    #[arg(long, value_name = "KEY")]
    session_key: Option<String>,
    /// Session id; continues the transcript with that id
    #[arg(long, value_name = "ID", conflicts_with = "session_key")]
    session_id: Option<String>,
    /// Agent id; without a session, its main session is used
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Model for this run, as provider/model; the session keeps its own
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Reasoning level: off, minimal, low, medium, high or xhigh
    #[arg(long, value_name = "LEVEL")]
    thinking: Option<String>,
    /// Show a line for each tool call on stderr [default: on if stderr is a terminal]
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
    verbose: Option<String>,
    /// Channel of the message, such as telegram
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Run in this process, even if a gateway is running
    #[arg(long)]
    local: bool,
    /// Allow the current directory as the workspace without asking, even if it is the home directory or contains the
    /// state directory
    #[arg(long)]
    work_here: bool,
    /// Reject a message that does not fit into the context window, instead of sending its beginning and end
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Maximum duration of the run, such as 90s or 5m; a bare number is seconds, 0 is no limit
    #[arg(long, value_name = "DURATION", value_parser = turn_timeout)]
    timeout: Option<Duration>,
    /// How long to try to reconnect after the connection to the gateway is lost; a bare number is seconds, 0 is never
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = flags::seconds)]
    reconnect: Duration,
    /// Also deliver the reply: to the chat where the session last received a message, or as set by the flags below
    #[arg(long, conflicts_with = "local")]
    deliver: bool,
    /// Recipient on the channel
    #[arg(short, long, value_name = "TARGET")]
    to: Option<String>,
    /// Recipient of the reply [default: the value of --to]
    #[arg(long, value_name = "TARGET", requires = "deliver")]
    reply_to: Option<String>,
    /// Channel of the reply [default: the value of --channel]
    #[arg(long, value_name = "NAME", requires = "deliver")]
    reply_channel: Option<String>,
    /// Account that sends the reply
    #[arg(long, value_name = "ID", requires = "deliver")]
    reply_account: Option<String>,
}

fn turn_timeout(text: &str) -> Result<Duration, String> {
    match flags::seconds(text)? {
        timeout if timeout > Duration::from_secs(homard_app::MAX_TIMEOUT) => {
            Err(format!("at most {}s", homard_app::MAX_TIMEOUT))
        }
        timeout => Ok(timeout),
    }
}

/// A turn in progress.
struct Turn {
    params: AgentParams,
    timeout: Duration,
    /// How long to wait for a gateway whose connection breaks.
    reconnect: Duration,
    /// True if it may work in any directory without confirmation.
    work_here: bool,
    renderer: RunRenderer,
    signals: Signals,
}

impl Turn {
    fn run(&self) -> &str {
        self.params.idempotency_key.as_str()
    }
}

/// The result of a successful turn.
#[derive(Debug, Clone, PartialEq)]
struct TurnOutput {
    /// The gateway's final response, or the same for a run in this process: `{runId, status, summary, result}`.
    document: Value,
    /// `{payloads, meta}`.
    result: Value,
}

/// Runs one turn and prints the result.
pub(super) async fn run(args: Args) -> Result<()> {
    let message = args.read_message()?;
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    let timeout = args.timeout.unwrap_or_else(|| homard_app::timeout(&chosen.loaded.config).unwrap_or_default());
    let params = args.params(Ambient::system().run_id(), message, timeout)?;
    let tools = args.verbose.as_deref().map(|word| word == "on");
    let options = if args.json { RenderOptions::nothing() } else { RenderOptions::for_terminal(tools) };
    let reconnect = args.reconnect;
    let (renderer, signals) = (RunRenderer::new(options), Signals::listen()?);
    let mut turn = Turn { params, timeout, reconnect, work_here: args.work_here, renderer, signals };
    let outcome = if args.local {
        local::run(&chosen, &paths, &mut turn, "to send the message through the gateway, omit --local").await
    } else {
        run_turn(&chosen, &paths, &mut turn, options).await
    };
    let answer = match outcome {
        Ok(answer) => answer,
        Err(error) => {
            turn.renderer.break_line()?;
            return Err(error);
        }
    };
    turn.renderer.truncated(&answer.result["meta"][TRUNCATED_FIELD])?;
    let delivery = delivery_failure(&answer.document["delivery"], turn.run());
    if args.json {
        // One document: the failure or the result.
        return match delivery {
            Some((failure, true)) => Err(failure.into()),
            Some((_, false)) | None => Ok(render::print_json(&document(answer))?),
        };
    }
    let payloads = answer.result.get("payloads").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    turn.renderer.finish(payloads)?;
    if is_demo(&answer.result) && !is_modelless(&turn.params.message) {
        render::remark(&format!(
            "(answered by the built-in demo model, {DEMO}; to configure a real model, see: homard docs models)"
        ));
    }
    match delivery {
        Some((failure, true)) => Err(failure.into()),
        Some((failure, false)) => {
            render::remark(&failure.message);
            Ok(())
        }
        None => Ok(()),
    }
}

/// Returns the document that `--json` prints. It has the result twice, as OpenClaw prints it with a gateway (`result`)
/// and without one (`payloads` and `meta`).
fn document(answer: TurnOutput) -> Value {
    let mut document = answer.document;
    for name in ["payloads", "meta"] {
        document[name] = answer.result[name].clone();
    }
    document
}

/// Returns the failure to report if the reply was not delivered on its channel, and whether that is final.
fn delivery_failure(delivery: &Value, run: &str) -> Option<(CliError, bool)> {
    let why = delivery["error"].as_str();
    let (text, is_lost) = match delivery["status"].as_str()? {
        "failed" => (why.unwrap_or("the reply was not delivered").to_owned(), true),
        "unknown" => (why.unwrap_or("it is not known whether the reply was delivered").to_owned(), false),
        "pending" => {
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            (format!("the reply is not delivered yet{why}\nsee: homard channels status"), false)
        }
        _ => return None,
    };
    Some((CliError::new("delivery", text).of(run, "gateway"), is_lost))
}

impl TurnOutput {
    /// Builds the output from the final response. `failed_candidates` are the models that failed before one answered.
    fn new(mut document: Value, failed_candidates: Vec<Value>) -> Self {
        if !failed_candidates.is_empty() {
            document["result"]["meta"]["fallbackAttempts"] = Value::Array(failed_candidates);
        }
        let result = document["result"].clone();
        Self { document, result }
    }
}

/// Runs the turn in the gateway if one answers; in this process only if nothing at all was sent.
async fn run_turn(chosen: &Chosen, paths: &Paths, turn: &mut Turn, options: RenderOptions) -> Result<TurnOutput> {
    let caps: &[&str] = if options.tools { &["tool-events"] } else { &[] };
    let link = GatewayLink { chosen, paths, caps, patience: turn.reconnect };
    let target = link.target()?;
    let connection = tokio::select! {
        biased;
        signal = turn.signals.next() => return Err(interrupted(signal, "nothing was sent").into()),
        connection = link.connect(&target) => connection?,
    };
    match connection {
        ConnectResult::Gateway(client) => {
            if target.is_own {
                turn.params.cwd = working_directory(chosen, paths, turn.work_here)?;
            }
            remote::run(*client, turn, link).await
        }
        ConnectResult::NotRunning if turn.params.deliver == Some(true) => {
            let text = format!(
                "no gateway answers at {}, and --deliver requires one\n\
                 start it with: homard gateway run, or omit --deliver",
                target.url
            );
            Err(CliError::new("connection", text).into())
        }
        ConnectResult::NotRunning if target.is_own => {
            let hint = format!("no gateway answers at {}; to use another port, set HOMARD_GATEWAY_PORT", target.url);
            local::run(chosen, paths, turn, &hint).await
        }
        ConnectResult::NotRunning => {
            let text =
                format!("no gateway answers at {}\nstart it there, or run in this process with --local", target.url);
            Err(CliError::new("connection", text).into())
        }
    }
}

/// Returns the working directory of a turn in the gateway of this machine: the current directory. If that is risky, the
/// agent's workspace is used, with a remark.
fn working_directory(chosen: &Chosen, paths: &Paths, work_here: bool) -> Result<Option<String>> {
    let cwd = env::current_dir().context("cannot determine the current directory")?;
    let why = match homard_app::working_dir::check_requested(&cwd, &chosen.loaded.config, paths) {
        // A path that is not UTF-8 cannot be sent.
        Ok(_) => match cwd.to_str() {
            Some(cwd) => return Ok(Some(cwd.to_owned())),
            None => format!("{} is not UTF-8", cwd.display()),
        },
        Err(why) => why,
    };
    if work_here {
        return Err(CliError::usage(why).into());
    }
    render::remark(&format!("(working in the agent's workspace: {why})"));
    Ok(None)
}

fn interrupted(signal: Signal, state: &str) -> CliError {
    let message = format!("stopped by {signal}: {state}");
    CliError { exit: signal.exit_code(), ..CliError::new("interrupted", message) }
}

fn is_demo(result: &Value) -> bool {
    let meta = |name: &str| result.pointer(&format!("/meta/agentMeta/{name}")).and_then(Value::as_str);
    matches!((meta("provider"), meta("model")), (Some(provider), Some(model)) if format!("{provider}/{model}") == DEMO)
}

/// Returns true for `/compact`: its reply is not a model's answer, although its result names the model that wrote the
/// summary. Other commands that are answered without a model need no check here.
fn is_modelless(message: &str) -> bool {
    matches!(command::parse(message, &Triggers::default()).command, Some(Command::Compact(_)))
}

impl Args {
    fn read_message(&self) -> Result<String> {
        let (message, source) = match (&self.message, &self.message_file) {
            (Some(message), _) => (message.clone(), "--message".to_owned()),
            (None, Some(path)) => (read_file(path)?, path.display().to_string()),
            (None, None) => {
                return Err(CliError::usage("no message; pass --message TEXT or --message-file FILE").into());
            }
        };
        if message.trim().is_empty() {
            return Err(CliError::usage(format!("{source} is blank; pass a message")).into());
        }
        Ok(message)
    }

    fn params(&self, run: RunId, message: String, timeout: Duration) -> Result<AgentParams> {
        let id =
            |text: &String| SessionId::parse(text).map_err(|error| CliError::usage(format!("--session-id: {error}")));
        Ok(AgentParams {
            message,
            idempotency_key: run,
            agent_id: self.agent.clone(),
            session_key: self.session_key.clone(),
            session_id: self.session_id.as_ref().map(id).transpose()?,
            thinking: self.thinking.clone(),
            channel: self.channel.clone(),
            reply_channel: self.reply_channel.clone(),
            deliver: self.deliver.then_some(true),
            // With `--deliver`, a failed delivery must be reported.
            best_effort_deliver: self.deliver.then_some(false),
            to: self.to.clone(),
            reply_to: self.reply_to.clone(),
            account_id: None,
            reply_account_id: self.reply_account.clone(),
            thread_id: None,
            timeout: Some(flags::whole_seconds(timeout)),
            lane: None,
            extra_system_prompt: None,
            label: None,
            spawned_by: None,
            on_restart: None,
            strict: self.strict.then_some(true),
            attachments: Vec::new(),
            model: self.model.clone(),
            provider: None,
            cwd: None,
            prompt_mode: None,
            bootstrap_context_mode: None,
            disable_message_tool: None,
            expected_existing_session_id: None,
            input_provenance: None,
        })
    }
}

fn read_file(path: &Path) -> Result<String, CliError> {
    let usage_error = |why: String| CliError::usage(format!("{} {why}", path.display()));
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    read.map_err(|error| usage_error(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(usage_error("is larger than 4 MiB".to_owned()));
    }
    let text = String::from_utf8(bytes).map_err(|error| usage_error(format!("is not UTF-8: {error}")))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}
