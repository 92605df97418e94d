//! `homard setup`: from nothing to a model that answered. The questions and the changes are in `homard-setup`; this file
//! offers the import, asks on the terminal, and prints the result.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

use anyhow::Result;
use homard_app::model_check::{ModelTest, TestAnswer};
use homard_import::{ImportOptions, OpenclawState};
use homard_settings::{DEMO, paths::Paths};
use homard_setup::{
    Answers, Error, ModelsContext, confirm,
    wizard::{self, SetupOptions, SetupOutcome, failure},
};
use serde_json::{Value, json};

use super::models::{answer_text, read_context, test_document};
use crate::{
    cli_error::CliError,
    cmd::{import::report::ImportReport, prompt},
    render,
};

/// What `homard setup` takes.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  homard setup                                                  asks; Ctrl-C at any question changes nothing
  homard setup --yes                                            use the first key or local server that is found
  homard setup --yes --provider openai --key-from-env MY_KEY    stores the key that the variable contains
  homard setup --yes --url http://127.0.0.1:8000/v1             any server with an API of OpenAI or Anthropic")]
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
        Some(error) if error.kind == "interrupted" => Error::Interrupted(error.message),
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
    let paths = Paths::find()?;
    if !is_unattended {
        answers.tell("The config is written at the end. Ctrl-C leaves at any question.");
    }
    let imported = import(args, answers, &paths).await?;
    // An import may have changed the name of the config.
    let setup = read_context(Paths::find()?)?;
    let outcome = wizard::configure(&args.options(), answers, &setup).await;
    let outcome = outcome.map_err(|error| if imported.is_some() { after_import(error) } else { error })?;
    report(args, &setup, &outcome, imported.as_ref())
}

/// Corrects the message of an interruption after an import, which is not undone.
fn after_import(error: Error) -> Error {
    if matches!(error, Error::Interrupted(_)) {
        let text = "the state of OpenClaw was imported, and nothing else was changed; continue with: homard setup";
        return Error::Interrupted(text.to_owned());
    }
    error
}

/// Offers the setup at the first start: there is neither a config nor a state, and no key in the environment.
pub(super) async fn offer() -> Result<()> {
    let paths = Paths::find()?;
    if paths.config.exists() || paths.state.exists() {
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

/// Prints what was set up and what to do next.
fn report(args: &Args, setup: &ModelsContext, outcome: &SetupOutcome, imported: Option<&Value>) -> Result<()> {
    let answer: Option<&TestAnswer> = outcome.test.as_ref().and_then(|test| test.outcome.as_ref().ok());
    let next =
        ["homard agent -m \"What files are here?\"", "homard gateway", "homard channels add telegram --token TOKEN"];
    if args.json {
        let test = outcome.test.as_ref().zip(answer).map(|(test, answer)| test_document(test, answer));
        return Ok(render::print_json(&json!({
            "ok": true, "model": outcome.model, "config": setup.paths.config, "changed": outcome.changed, "test": test,
            "import": imported, "next": next,
        }))?);
    }
    let state = match (outcome.model.as_str(), answer) {
        (DEMO, _) => "the built-in demo model, which is not a language model".to_owned(),
        (model, Some(_)) => format!("{model}, which answered"),
        (model, None) => format!("{model}, which did not answer"),
    };
    render::print(&format!("The model is {state}. The config is {}.", setup.paths.config.display()))?;
    render::print("Next:")?;
    render::print(&format!("  {}     send a message", next[0]))?;
    render::print(&format!("  {}                              serve clients and chat channels", next[1]))?;
    render::print(&format!("  {}   connect a chat channel", next[2]))?;
    Ok(render::print("Run homard setup again to change this.")?)
}
