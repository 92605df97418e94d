//! `homard agent`: one turn, through the gateway if it runs, or else in this process.

mod local;
mod message;
mod remote;
mod wait_notes;
mod working_dir;

use std::{
    env,
    future::pending,
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
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use self::{
    message::{MessageArgs, MessageInput},
    remote::GatewayLink,
    wait_notes::WaitNotes,
};
use crate::{
    cli_error::{self, CliError},
    cmd::{flags, query::CommandContext, sessions},
    render::{self, RenderOptions, RunRenderer, ToolLines},
    signal::{Signal, Signals},
};

/// How long after `--timeout` the run may report that its time is over, before it is stopped from here.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
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

/// Arguments of `homard agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard agent \"What files are here?\"
  cat app.log | homard agent \"Explain the last error\"
  homard agent --continue \"And the one before?\"
  homard agent \"What is in this picture?\" --image photo.png
  homard agent -m \"Read README.md\" --json
  homard agent \"Run the tests\" --cwd src --jsonl
  homard agent --message-file question.txt --session-key project-x
  homard agent -m 'Run `date`' --local --timeout 120

Piped input is appended to PROMPT, or is the message if there is none. -m sends its text only. Without a session, the
message goes to the main session of the default agent.")]
pub(super) struct Args {
    #[command(flatten)]
    message: MessageArgs,
    /// Session key, such as project-x
    #[arg(long, value_name = "KEY")]
    session_key: Option<String>,
    /// Session id; continues the transcript with that id
    #[arg(long, value_name = "ID", conflicts_with = "session_key")]
    session_id: Option<String>,
    /// Continue the session that was used last; with --agent, the last one of that agent
    #[arg(short, long = "continue", conflicts_with_all = ["session_key", "session_id"])]
    continues: bool,
    /// Agent id; without a session, its main session is used
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Model for this run, as provider/model; the session keeps its own
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Reasoning level: off, minimal, low, medium, high or xhigh
    #[arg(long, value_name = "LEVEL")]
    thinking: Option<String>,
    /// Show a line for each tool call on stderr [default: on if stderr is a terminal; failed calls are always shown]
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
    verbose: Option<String>,
    /// Channel of the message, such as telegram
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    /// Directory to work in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Run in this process, even if a gateway is reachable; refused while one uses the state directory
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
    /// Print one JSON event per line while the run is active; the last line is the result or the error
    #[arg(long, conflicts_with = "json")]
    jsonl: bool,
    /// Maximum duration of the turn, such as 90s or 5m, with waiting and retries; a bare number is seconds, 0 is no
    /// limit
    #[arg(long, value_name = "DURATION", value_parser = turn_timeout)]
    timeout: Option<Duration>,
    /// How long to try to reconnect after the connection to the gateway is lost; a bare number is seconds, 0 is never
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = flags::seconds)]
    reconnect: Duration,
    #[command(flatten)]
    delivery: DeliveryArgs,
}

/// Where the reply is also sent.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct DeliveryArgs {
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
    /// When the turn is stopped from here; `None` without `--timeout`.
    time_limit: Option<TimeLimit>,
    /// Where a local turn, or one in the gateway of this machine, works.
    directory: WorkingDirectory,
    /// How long to wait for a gateway whose connection breaks.
    reconnect: Duration,
    /// True if it may work in any directory without confirmation.
    work_here: bool,
    renderer: RunRenderer,
    wait_notes: WaitNotes,
    signals: Signals,
}

/// The working directory of a turn.
#[derive(Debug)]
struct WorkingDirectory {
    path: PathBuf,
    /// True if it was given by `--cwd`.
    is_explicit: bool,
}

/// The limit that `--timeout` sets to the whole turn.
#[derive(Debug, Clone, Copy)]
struct TimeLimit {
    span: Duration,
    until: Instant,
}

impl TimeLimit {
    fn new(span: Duration) -> Option<Self> {
        (!span.is_zero()).then(|| Self { span, until: Instant::now() + span + TIMEOUT_GRACE })
    }
}

/// Waits until the time of a turn is over; without a limit for ever.
async fn time_over(limit: Option<TimeLimit>) -> TimeLimit {
    match limit {
        Some(limit) => {
            sleep_until(limit.until).await;
            limit
        }
        None => pending().await,
    }
}

/// Returns the failure of a turn that took too long. `state` says how its run ended.
fn timed_out(limit: TimeLimit, state: &str) -> CliError {
    let span = render::duration(limit.span);
    CliError::new("timeout", format!("the turn did not finish within {span} (--timeout): {state}"))
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
    let is_jsonl = args.jsonl;
    match run_and_print(args).await {
        Err(error) if is_jsonl && !cli_error::is_reported(&error) => {
            let mut line = json!({"type": "error"});
            line["error"] = cli_error::document(&error)["error"].take();
            render::print(&line.to_string())?;
            let known = CliError::find(&error).unwrap_or_else(|| CliError::new("failed", format!("{error:#}")));
            Err(CliError { is_reported: true, ..known }.into())
        }
        outcome => outcome,
    }
}

async fn run_and_print(mut args: Args) -> Result<()> {
    let message = args.message.read().await?;
    let time_limit = args.timeout.and_then(TimeLimit::new);
    let directory = working_directory(args.cwd.as_deref())?;
    let paths = Paths::find()?;
    let chosen = crate::cmd::config_of(&paths)?;
    if args.continues {
        args.session_key = Some(last_session(args.agent.as_deref()).await?);
    }
    let timeout = args.timeout.unwrap_or_else(|| homard_app::timeout(&chosen.loaded.config).unwrap_or_default());
    let params = args.params(Ambient::system().run_id(), message, timeout)?;
    let options = args.render_options();
    let (renderer, signals) = (RunRenderer::new(options), Signals::listen()?);
    let (reconnect, work_here) = (args.reconnect, args.work_here);
    let wait_notes = WaitNotes::new(timeout);
    let mut turn = Turn { params, timeout, time_limit, directory, reconnect, work_here, renderer, wait_notes, signals };
    if args.jsonl {
        render::print(&json!({"type": "run", "runId": turn.run()}).to_string())?;
    }
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
    if args.json || args.jsonl {
        // One document: the failure or the result.
        return match delivery {
            Some((failure, true)) => Err(failure.into()),
            Some((_, false)) | None if args.jsonl => Ok(render::print(&result_line(answer).to_string())?),
            Some((_, false)) | None => Ok(render::print_json(&document(answer))?),
        };
    }
    let payloads = answer.result.get("payloads").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    turn.renderer.finish(payloads)?;
    if is_demo(&answer.result) && !is_modelless(&turn.params.message) {
        render::remark(&format!("(answered by the built-in demo model, {DEMO}; to set up a real model: homard setup)"));
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

/// Returns the key of the session that was used last.
async fn last_session(agent: Option<&str>) -> Result<String> {
    let found = sessions::last_used(&CommandContext::load()?, agent).await?;
    let of_agent = agent.map(|agent| format!(" of agent {agent}")).unwrap_or_default();
    let none = || CliError::not_found(format!("no session{of_agent} to continue; omit --continue to start one"));
    Ok(found.ok_or_else(none)?)
}

/// Returns the absolute path of the directory that was given, or the current directory.
fn working_directory(given: Option<&Path>) -> Result<WorkingDirectory> {
    let Some(given) = given else {
        let path = env::current_dir().context("cannot determine the current directory")?;
        return Ok(WorkingDirectory { path, is_explicit: false });
    };
    let path = given.canonicalize().map_err(|error| CliError::usage(format!("--cwd: {}: {error}", given.display())))?;
    if !path.is_dir() {
        return Err(CliError::usage(format!("--cwd: {} is not a directory", given.display())).into());
    }
    Ok(WorkingDirectory { path, is_explicit: true })
}

/// Returns the last line that `--jsonl` prints for a successful turn: the document of `--json` with a type.
fn result_line(answer: TurnOutput) -> Value {
    let mut line = json!({"type": "result"});
    if let (Some(fields), Value::Object(document)) = (line.as_object_mut(), document(answer)) {
        fields.extend(document);
    }
    line
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
    let caps: &[&str] = if options.tools == ToolLines::None && !options.json_lines { &[] } else { &["tool-events"] };
    let link = GatewayLink { chosen, paths, caps, patience: turn.reconnect };
    let target = link.target()?;
    let connection = tokio::select! {
        biased;
        signal = turn.signals.next() => return Err(interrupted(signal, "nothing was sent").into()),
        limit = time_over(turn.time_limit) => return Err(timed_out(limit, "nothing was sent").into()),
        connection = link.connect(&target) => connection?,
    };
    match connection {
        ConnectResult::Gateway(client) => {
            if target.is_own {
                turn.params.cwd = requested_directory(chosen, paths, turn)?;
            } else if turn.directory.is_explicit {
                let text = format!("--cwd works with a gateway on this machine only, not with {}", target.url);
                return Err(CliError::usage(text).into());
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

/// Returns the working directory of a turn in the gateway of this machine. If the current directory is risky, the
/// agent's workspace is used, with a remark; a directory that was requested fails.
fn requested_directory(chosen: &Chosen, paths: &Paths, turn: &mut Turn) -> Result<Option<String>> {
    let cwd = &turn.directory.path;
    let why = match homard_app::working_dir::check_requested(cwd, &chosen.loaded.config, paths) {
        // A path that is not UTF-8 cannot be sent.
        Ok(_) => match cwd.to_str() {
            Some(cwd) => {
                turn.renderer.working_in(&turn.directory.path)?;
                return Ok(Some(cwd.to_owned()));
            }
            None => format!("{} is not UTF-8", cwd.display()),
        },
        Err(why) => why,
    };
    if turn.work_here || turn.directory.is_explicit {
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
    fn render_options(&self) -> RenderOptions {
        if self.json || self.jsonl {
            return RenderOptions { json_lines: self.jsonl, ..RenderOptions::nothing() };
        }
        RenderOptions::for_terminal(self.verbose.as_deref().map(|word| word == "on"))
    }

    fn params(&self, run: RunId, message: MessageInput, timeout: Duration) -> Result<AgentParams> {
        let id =
            |text: &String| SessionId::parse(text).map_err(|error| CliError::usage(format!("--session-id: {error}")));
        Ok(AgentParams {
            message: message.text,
            idempotency_key: run,
            agent_id: self.agent.clone(),
            session_key: self.session_key.clone(),
            session_id: self.session_id.as_ref().map(id).transpose()?,
            thinking: self.thinking.clone(),
            channel: self.channel.clone(),
            reply_channel: self.delivery.reply_channel.clone(),
            deliver: self.delivery.deliver.then_some(true),
            // With `--deliver`, a failed delivery must be reported.
            best_effort_deliver: self.delivery.deliver.then_some(false),
            to: self.delivery.to.clone(),
            reply_to: self.delivery.reply_to.clone(),
            account_id: None,
            reply_account_id: self.delivery.reply_account.clone(),
            thread_id: None,
            timeout: Some(flags::whole_seconds(timeout)),
            lane: None,
            extra_system_prompt: None,
            label: None,
            spawned_by: None,
            on_restart: None,
            strict: self.strict.then_some(true),
            attachments: message.attachments,
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
