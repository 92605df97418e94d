//! `homard setup`: from nothing to a model that answered. The questions and the changes are in `homard-setup`; this file
//! offers the import, asks on the terminal, and prints the result.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

use anyhow::{Context, Result};
use homard_app::model_check::{ModelTest, TestAnswer};
use homard_import::{ImportOptions, OpenclawState};
use homard_service::manager::InstallReport;
use homard_settings::{DEMO, paths::Paths};
use homard_setup::{
    Answers, Error, ModelsContext, confirm,
    wizard::{self, SetupOptions, SetupOutcome, failure},
};
use serde_json::{Value, json};

use super::models::{answer_text, read_context, test_document};
use crate::{
    cli_error::CliError,
    cmd::{
        gateway::{self, ServiceStatus},
        import::report::ImportReport,
        prompt,
    },
    render::{self, Table},
};

/// What is said when the user leaves before anything was written.
const UNCHANGED: &str = "nothing was changed; continue with: homard setup";

/// What is said when the user leaves while state is copied.
const IMPORT_INTERRUPTED: &str = "the import was interrupted; it is repeated by: homard setup";

/// What is said when the user leaves after an import.
const IMPORTED_ONLY: &str =
    "the state of OpenClaw was imported, and nothing else was changed; continue with: homard setup";

/// What is said when the user leaves at the last question.
const CONFIGURED: &str =
    "the setup is complete, and the service was not installed; install it with: homard gateway install";

/// Arguments of `homard setup`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  homard setup                                                  asks; Ctrl-C at any question changes nothing
  homard setup --yes                                            use the first key or local server that is found
  homard setup --yes --provider openai --key-from-env MY_KEY    stores the key that the variable contains
  homard setup --yes --url http://127.0.0.1:8000/v1             any server with an API of OpenAI or Anthropic
  homard setup --yes --install-service                          run the gateway as a service, too")]
pub(super) struct Args {
    /// Ask nothing and use the defaults
    #[arg(long, short)]
    yes: bool,
    /// Provider of the model; with --url, a name for the server
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Environment variable that contains the API key; the key is stored
    #[arg(long, value_name = "NAME")]
    key_from_env: Option<String>,
    /// Base URL of a server that is not a known provider
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Model, without the provider's name [default: the preferred one of the provider]
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Directory in which agents work [default: workspace in the state directory]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Environment variable that contains the token of a Telegram bot; the token is stored
    #[arg(long, value_name = "NAME")]
    telegram_token_from_env: Option<String>,
    /// Install the gateway as a service of this user, and start it
    #[arg(long)]
    install_service: bool,
    /// Do not import the state of OpenClaw, if there is any
    #[arg(long)]
    no_import: bool,
    /// Print JSON; implies --yes
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    fn is_unattended(&self) -> bool {
        self.yes || self.json
    }

    fn options(&self) -> SetupOptions {
        SetupOptions {
            is_unattended: self.is_unattended(),
            provider: self.provider.clone(),
            key_from_env: self.key_from_env.clone(),
            url: self.url.clone(),
            model: self.model.clone(),
            workspace: self.workspace.clone(),
            telegram_token_from_env: self.telegram_token_from_env.clone(),
        }
    }
}

/// The terminal: questions go to stderr.
struct TerminalAnswers;

impl Answers for TerminalAnswers {
    fn tell(&mut self, text: &str) {
        render::remark(text);
    }

    fn text(&mut self, label: &str) -> Result<String, Error> {
        prompt::text(label).map_err(|error| unanswered(&error))
    }

    fn secret(&mut self, label: &str) -> Result<String, Error> {
        prompt::secret(label).map_err(|error| unanswered(&error))
    }

    fn tested(&mut self, test: &ModelTest) {
        render::remark(&test_text(test));
    }
}

/// Returns why a question was not answered.
fn unanswered(error: &anyhow::Error) -> Error {
    match CliError::find(error) {
        Some(error) if error.kind == "interrupted" => Error::Interrupted(UNCHANGED.to_owned()),
        Some(_) | None => Error::Input(format!("{error:#}")),
    }
}

/// Returns the result of a test as text.
fn test_text(test: &ModelTest) -> String {
    test.outcome.as_ref().map_or_else(|_| failure(test), |answer| answer_text(test, answer))
}

/// Answers for a setup that asks nothing: the default of each question.
struct DefaultAnswers {
    /// True if texts are shown.
    tells: bool,
}

impl Answers for DefaultAnswers {
    fn tell(&mut self, text: &str) {
        if self.tells {
            render::remark(text);
        }
    }

    fn text(&mut self, _: &str) -> Result<String, Error> {
        Ok(String::new())
    }

    fn secret(&mut self, label: &str) -> Result<String, Error> {
        Err(Error::Usage(format!("{label} is missing; pass --key-from-env NAME")))
    }

    fn tested(&mut self, test: &ModelTest) {
        self.tell(&test_text(test));
    }
}

pub(super) async fn run(args: &Args) -> Result<()> {
    let is_unattended = args.is_unattended();
    let can_ask = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !is_unattended && !can_ask {
        let text = "setup asks questions and needs a terminal; without one, run: homard setup --yes";
        return Err(CliError::usage(text).into());
    }
    let mut terminal = TerminalAnswers;
    let mut defaults = DefaultAnswers { tells: !args.json };
    let answers: &mut dyn Answers = if is_unattended { &mut defaults } else { &mut terminal };
    let service = ServiceStatus::find()?;
    if args.install_service && service == ServiceStatus::NoManager {
        return Err(gateway::no_manager(false).into());
    }
    let paths = Paths::find()?;
    if !is_unattended {
        answers.tell("The config is written at the end. Ctrl-C leaves at any question.");
    }
    let imported = interruptible(import(args, answers, &paths), IMPORT_INTERRUPTED).await?;
    // An import may have changed the name of the config.
    let setup = read_context(Paths::find()?)?;
    let options = args.options();
    let configured = async { Ok(wizard::configure(&options, answers, &setup).await?) };
    let outcome = interruptible(configured, UNCHANGED).await;
    let outcome = outcome.map_err(|error| if imported.is_some() { after_import(error) } else { error })?;
    let installed = offer_service(args, answers, &outcome, service);
    if args.json && installed.is_err() {
        return installed.map(drop);
    }
    let next = next_steps(&outcome, if matches!(installed, Ok(Some(_))) { ServiceStatus::Installed } else { service });
    let files = installed.as_ref().ok().and_then(Option::as_ref).map(|report| &report.files[..]);
    report(args, &setup, &SetupReport { outcome: &outcome, imported: imported.as_ref(), files, next })?;
    installed.map(drop)
}

/// Installs the gateway as a service, if the user wants that and there is a service manager. Returns the result; `None`
/// if nothing was installed.
fn offer_service(
    args: &Args,
    answers: &mut dyn Answers,
    outcome: &SetupOutcome,
    status: ServiceStatus,
) -> Result<Option<InstallReport>> {
    if status != ServiceStatus::NotInstalled {
        return Ok(None);
    }
    let question = "Run the gateway as a service, from every login on?";
    // The demo model needs no service.
    let is_wanted = args.install_service
        || !args.is_unattended()
            && outcome.model != DEMO
            && confirm(answers, question, false).map_err(|error| {
                let is_left = matches!(error, Error::Interrupted(_));
                if is_left { Error::Interrupted(CONFIGURED.to_owned()) } else { error }
            })?;
    if !is_wanted {
        return Ok(None);
    }
    let report = gateway::install_for_user().context("the service was not installed")?;
    report.warnings.iter().for_each(|warning| answers.tell(&format!("warning: {warning}")));
    Ok(Some(report))
}

/// Runs a part of the setup to its end, or until Ctrl-C is pressed while no question is open.
async fn interruptible<T>(part: impl Future<Output = Result<T>>, left: &str) -> Result<T> {
    tokio::select! {
        biased;
        pressed = tokio::signal::ctrl_c() => {
            pressed?;
            Err(Error::Interrupted(left.to_owned()).into())
        }
        ended = part => ended,
    }
}

/// Corrects the message of an interruption after an import, which is not undone.
fn after_import(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(Error::Interrupted(_)) => Error::Interrupted(IMPORTED_ONLY.to_owned()).into(),
        Some(_) | None => error,
    }
}

/// Offers the setup at the first start: there is neither a config nor a state, and no key in the environment.
pub(super) async fn offer() -> Result<()> {
    let paths = Paths::find()?;
    // A setup that was left may have created the directory.
    if paths.config.exists() || paths.state.join("agents").exists() {
        return Ok(());
    }
    let chosen = super::config_of(&paths)?;
    if !super::models::model_status(&chosen.loaded, &paths, None)?.is_demo {
        return Ok(());
    }
    match confirm(&mut TerminalAnswers, "No model is set up yet. Set one up now?", true)? {
        true => run(&Args::default()).await,
        false => Ok(()),
    }
}

/// Offers to import the state of OpenClaw, if there is any and Homard has no config yet.
async fn import(args: &Args, answers: &mut dyn Answers, paths: &Paths) -> Result<Option<Value>> {
    if args.no_import || paths.config.exists() {
        return Ok(None);
    }
    let Ok(source) = OpenclawState::find(None) else { return Ok(None) };
    if homard_import::is_same(&source, paths) {
        return Ok(None);
    }
    let question = format!("Import the state of OpenClaw from {}? It is not changed.", source.root.display());
    if !confirm(answers, &question, true)? {
        return Ok(None);
    }
    let options = ImportOptions { replace_existing: false, write_defaults: false };
    let plan = homard_import::import(&source, paths, options, &mut |_, _| {}).await?;
    let report = ImportReport { plan: &plan, source: &source.root, state: &paths.state, is_dry: false };
    answers.tell(&report.text());
    Ok(Some(report.document()))
}

/// What a setup did.
struct SetupReport<'a> {
    outcome: &'a SetupOutcome,
    imported: Option<&'a Value>,
    /// The files of the service, if it was installed.
    files: Option<&'a [PathBuf]>,
    /// What to do next: commands, and what each is for.
    next: Vec<(&'static str, &'static str)>,
}

/// Prints what was set up and what to do next.
fn report(args: &Args, setup: &ModelsContext, done: &SetupReport<'_>) -> Result<()> {
    let SetupReport { outcome, imported, files, next } = done;
    let answer: Option<&TestAnswer> = outcome.test.as_ref().and_then(|test| test.outcome.as_ref().ok());
    if args.json {
        let test = outcome.test.as_ref().zip(answer).map(|(test, answer)| test_document(test, answer));
        return Ok(render::print_json(&json!({
            "ok": true, "model": outcome.model, "config": setup.paths.config, "changed": outcome.changed, "test": test,
            "import": imported, "service": files.map(|files| json!({"files": files})),
            "next": next.iter().map(|(command, _)| command).collect::<Vec<_>>(),
        }))?);
    }
    let state = match (outcome.model.as_str(), answer) {
        (DEMO, _) => "the built-in demo model, which is not a language model".to_owned(),
        (model, Some(_)) => format!("{model}, which answered"),
        (model, None) => format!("{model}, which did not answer"),
    };
    render::print(&format!("The model is {state}. The config is {}.", setup.paths.config.display()))?;
    if let Some(files) = files {
        let files: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
        render::print(&format!("The gateway runs as a service ({}).", files.join(", ")))?;
    }
    render::print("Next:")?;
    let row = |(command, meaning): &(&str, &str)| vec![format!("  {command}"), (*meaning).to_owned()];
    render::print_table(&Table::fields(next.iter().map(row).collect()))?;
    Ok(render::print("Run homard setup again to change this.")?)
}

/// Returns what to do next: commands, and what each is for.
fn next_steps(outcome: &SetupOutcome, service: ServiceStatus) -> Vec<(&'static str, &'static str)> {
    let channel = match outcome.has_channel {
        true => ("homard pairing approve telegram CODE", "after you have written to your bot: allow your account"),
        false => ("homard channels add telegram --token TOKEN", "connect a chat channel"),
    };
    let gateway = match service {
        ServiceStatus::Installed => {
            ("homard gateway status", "show the service, which serves clients and chat channels")
        }
        ServiceStatus::NotInstalled | ServiceStatus::NoManager => ("homard gateway", "serve clients and chat channels"),
    };
    let background = match service {
        ServiceStatus::Installed => None,
        ServiceStatus::NotInstalled => {
            Some(("homard gateway install", "run the gateway as a service, from every login on"))
        }
        ServiceStatus::NoManager => Some((
            "homard gateway start",
            "run the gateway in the background, as no service manager runs for this user",
        )),
    };
    let chat = ("homard chat", "talk to the agent in the terminal");
    let message = ("homard agent -m \"What files are here?\"", "send one message");
    [chat, message, gateway, channel].into_iter().chain(background).collect()
}
