//! `homard setup`: from nothing to a model that answered. Nothing is written before the last question is answered, so it
//! can be interrupted at every question and run again.
//!
//! `detect` finds what exists, `questions` asks, `plan` computes the changes; this file runs them in order.

mod detect;
mod plan;
mod questions;

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    time::Duration,
};

use anyhow::Result;
use homard_app::{
    model_check::{ModelTest, ServerAddress, TestAnswer},
    models::Models,
};
use homard_credentials::auth_profiles::{CredentialProfile, Keyring, Kind, credentials_file};
use homard_import::{ImportOptions, OpenclawState};
use homard_model::catalog::{self, provider_name};
use homard_providers::{Credentials, ListedModel};
use homard_settings::{Config, DEMO, NamedModel, paths, paths::Paths};
use serde_json::{Value, json};

use self::{
    plan::{NewServer, SetupPlan},
    questions::{Answers, ModelSource},
};
use super::models::{
    ModelsContext, agent_section, answer_text,
    auth::{self, check_key},
    failure, test_document, variable_value,
};
use crate::{
    cli_error::CliError,
    cmd::{channels::edit_config, import::report::ImportReport, prompt},
    render,
};

/// Time limit of the test of the chosen model: a local server may have to load it first.
const TEST_LIMIT: Duration = Duration::from_secs(120);

/// Number of models of a new server that are written.
const WRITTEN_MODELS: usize = 50;

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
}

/// The terminal: questions go to stderr.
struct TerminalAnswers;

impl Answers for TerminalAnswers {
    fn tell(&mut self, text: &str) {
        render::remark(text);
    }

    fn text(&mut self, label: &str) -> Result<String> {
        prompt::text(label)
    }

    fn secret(&mut self, label: &str) -> Result<String> {
        prompt::secret(label)
    }
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

    fn text(&mut self, _: &str) -> Result<String> {
        Ok(String::new())
    }

    fn secret(&mut self, label: &str) -> Result<String> {
        Err(CliError::usage(format!("{label} is missing; pass --key-from-env NAME")).into())
    }
}

/// A key that is not stored yet.
#[derive(Clone)]
struct NewKey {
    provider: String,
    key: String,
}

/// What was chosen, and what the model answered.
struct SetupOutcome {
    model: String,
    /// The test; absent for the built-in model.
    test: Option<ModelTest>,
    imported: Option<Value>,
    changed: Vec<String>,
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
    let setup = ModelsContext::read(Paths::find()?)?;
    let was_imported = imported.is_some();
    let outcome = configure(args, answers, &setup, imported).await;
    let outcome = outcome.map_err(|error| if was_imported { after_import(error) } else { error })?;
    report(args, &setup, &outcome)
}

/// Corrects the message of an interruption after an import, which is not undone.
fn after_import(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<CliError>() {
        Ok(error) if error.kind == "interrupted" => {
            let message =
                "the state of OpenClaw was imported, and nothing else was changed; continue with: homard setup";
            CliError { message: message.to_owned(), ..error }.into()
        }
        Ok(error) => error.into(),
        Err(error) => error,
    }
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
    match questions::confirm(&mut TerminalAnswers, "No model is set up yet. Set one up now?", true)? {
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
    if !questions::confirm(answers, &question, true)? {
        return Ok(None);
    }
    let options = ImportOptions { replace_existing: false, write_defaults: false };
    let plan = homard_import::import(&source, paths, options, &mut |_, _| {}).await?;
    let report = ImportReport { plan: &plan, source: &source.root, state: &paths.state, is_dry: false };
    answers.tell(&report.text());
    Ok(Some(report.document()))
}

/// Chooses a model and a workspace, tests the model, and writes the result.
async fn configure(
    args: &Args,
    answers: &mut dyn Answers,
    setup: &ModelsContext,
    imported: Option<Value>,
) -> Result<SetupOutcome> {
    let source = source(args, answers, setup).await?;
    let mut plan = SetupPlan::default();
    let mut key = None;
    let mut model = DEMO.to_owned();
    match &source {
        ModelSource::Current(name) => model.clone_from(name),
        ModelSource::Demo => {}
        ModelSource::Server { name, base_url, key: server_key } => {
            let server = ServerAddress {
                provider: name.clone(),
                base_url: base_url.clone(),
                auth: server_key.as_deref().map(|key| Credentials::Key(key.into())),
                wire: None,
                model: args.model.clone(),
            };
            let report = server.examine(&setup.models.client).await;
            let report = report.map_err(|error| CliError::new("model", error.message))?;
            answers.tell(&format!("{base_url} speaks {}.", report.wire.api()));
            let id = chosen_model(args, answers, name, &report.models)?;
            model = format!("{name}/{id}");
            let models = written_models(&report.models, &id);
            plan.server = Some(NewServer { name: name.clone(), report, models });
            key = server_key.as_ref().map(|key| NewKey { provider: name.clone(), key: key.clone() });
        }
        ModelSource::Known(provider) | ModelSource::NewKey { provider, .. } => {
            if let ModelSource::NewKey { key: new, .. } = &source {
                key = Some(NewKey { provider: provider.clone(), key: new.clone() });
            }
            let listed = listed_models(setup, provider, key.as_ref()).await?;
            model = format!("{provider}/{}", chosen_model(args, answers, provider, &listed)?);
        }
        ModelSource::Local(server) => {
            model = format!("{}/{}", server.provider, chosen_model(args, answers, &server.provider, &server.models)?);
        }
    }
    if !matches!(source, ModelSource::Current(_) | ModelSource::Demo) {
        plan.model = Some(model.clone());
    }
    plan.workspace = workspace(args, answers, setup)?;
    let agent = setup.agent(None)?;
    let own = |has_own: bool| has_own.then(|| agent_section(setup, agent.id.as_str())).transpose();
    plan.model_section = own(agent.config.model.is_some())?;
    plan.workspace_section = own(agent.config.workspace.is_some())?;
    let old = Config::read_file(&setup.paths.config).text.unwrap_or_default();
    let new = plan.apply(&old).map_err(|error| CliError::new("config", error.to_string()))?;
    let test =
        if matches!(source, ModelSource::Demo) { None } else { Some(test(setup, &new, &model, key.as_ref()).await?) };
    if let Some(test) = &test {
        match &test.outcome {
            Ok(answer) => answers.tell(&answer_text(test, answer)),
            Err(_) if args.is_unattended() => {
                let text = format!("{}\nthe config was not changed", failure(test));
                return Err(CliError::new("model", text).into());
            }
            Err(_) => {
                answers.tell(&failure(test));
                if !questions::confirm(answers, "The model did not answer. Use it anyway?", false)? {
                    let text = "the config was not changed; correct the cause, and run again: homard setup";
                    return Err(CliError::new("model", text).into());
                }
            }
        }
    }
    let difference = plan::difference(&old, &new).map_err(|error| CliError::new("config", error.to_string()))?;
    let changed = write(answers, setup, &plan, &difference, key.as_ref())?;
    Ok(SetupOutcome { model, test, imported, changed })
}

/// Returns where the model comes from: from the arguments, the only default, or the answer to a question.
async fn source(args: &Args, answers: &mut dyn Answers, setup: &ModelsContext) -> Result<ModelSource> {
    let key = args.key_from_env.as_deref().map(variable_value).transpose()?;
    if let Some(key) = &key {
        check_key(key)?;
    }
    if let Some(url) = &args.url {
        let typed = args.provider.as_deref().unwrap_or_default();
        let Some(name) = questions::server_name(typed) else {
            let text = format!("--provider \"{typed}\" cannot be the name of a new server; choose another one");
            return Err(CliError::usage(text).into());
        };
        return Ok(ModelSource::Server { name, base_url: url.trim().to_owned(), key });
    }
    if let Some(typed) = &args.provider {
        let configured = setup.config.models.providers.keys().any(|id| provider_name(id) == provider_name(typed));
        let provider = if configured { provider_name(typed) } else { questions::check_provider(typed)? };
        return Ok(match key {
            Some(key) => ModelSource::NewKey { provider, key },
            None => ModelSource::Known(provider),
        });
    }
    if key.is_some() || args.model.is_some() {
        return Err(CliError::usage("--key-from-env and --model need --provider or --url").into());
    }
    let detected = detect::detect(setup).await?;
    let is_nothing = detected.current.is_none() && detected.keys.is_empty() && detected.servers.is_empty();
    if args.is_unattended() && is_nothing {
        let text = "no API key, no configured model and no model server on this machine was found; nothing was changed\n\
                    with a key in a variable, run: homard setup --yes --provider PROVIDER --key-from-env NAME\n\
                    with a server, run: homard setup --yes --url http://HOST:PORT/v1";
        return Err(CliError::new("no_model", text).into());
    }
    questions::source(answers, &detected)
}

/// Returns the models of a provider: those that its server lists, else those of the catalogue.
async fn listed_models(setup: &ModelsContext, provider: &str, key: Option<&NewKey>) -> Result<Vec<ListedModel>> {
    let keyring = keyring(setup, key)?;
    match setup.models.listed_by_server(&keyring, provider).await {
        Ok(models) => Ok(models),
        Err(error) if error.kind == homard_model::ErrorKind::Auth => Err(CliError::new("model", error.message).into()),
        // Not every server has such a list. If it cannot be reached, the test says so.
        Err(_) => {
            let known = catalog::provider(provider).map(|entry| entry.spec.model);
            Ok(known.map(|id| ListedModel { id, ..ListedModel::default() }).collect())
        }
    }
}

/// Returns the credentials of the default agent, with a new key that is not stored yet.
fn keyring(setup: &ModelsContext, key: Option<&NewKey>) -> Result<Keyring> {
    let mut keyring = setup.keyring(&setup.agent(None)?)?;
    if let Some(NewKey { provider, key }) = key {
        let (provider, id) = (provider_name(provider), profile_id(provider));
        keyring.profiles.retain(|profile| profile.provider != provider);
        keyring.order.remove(&provider);
        keyring.profiles.push(CredentialProfile { id, provider, kind: Kind::Key(key.as_str().into()) });
    }
    Ok(keyring)
}

fn profile_id(provider: &str) -> String {
    format!("{}:default", provider_name(provider))
}

fn chosen_model(args: &Args, answers: &mut dyn Answers, provider: &str, listed: &[ListedModel]) -> Result<String> {
    match (&args.model, args.is_unattended()) {
        (Some(id), _) => Ok(id.strip_prefix(&format!("{provider}/")).unwrap_or(id).to_owned()),
        (None, true) => questions::default_model(provider, listed)
            .ok_or_else(|| CliError::usage(format!("{provider} lists no models; pass --model MODEL")).into()),
        (None, false) => questions::model(answers, provider, listed),
    }
}

/// Returns the models of a new server to write: the listed ones, and the chosen one in any case.
fn written_models(listed: &[ListedModel], chosen: &str) -> Vec<ListedModel> {
    let mut models: Vec<_> = listed.iter().take(WRITTEN_MODELS).cloned().collect();
    if !models.iter().any(|model| model.id == chosen) {
        let other = listed.iter().find(|model| model.id == chosen).cloned();
        models.push(other.unwrap_or_else(|| ListedModel { id: chosen.to_owned(), ..ListedModel::default() }));
    }
    models
}

/// Returns the workspace, if it is to be written into the config.
fn workspace(args: &Args, answers: &mut dyn Answers, setup: &ModelsContext) -> Result<Option<String>> {
    if let Some(folder) = &args.workspace {
        let folder = paths::expand(folder, paths::home().as_deref());
        return Ok(Some(std::path::absolute(folder)?.display().to_string()));
    }
    let agent = setup.agent(None)?;
    let current = homard_settings::agent_directories::workspace(&setup.config, &setup.paths, &agent);
    let typed = answers.text(&format!("Workspace, in which the agent works [{}]:", current.display()))?;
    if typed.trim().is_empty() {
        return Ok(None);
    }
    let folder = paths::expand(typed.trim().as_ref(), paths::home().as_deref());
    Ok(Some(std::path::absolute(folder)?.display().to_string()))
}

/// Sends the model one request, with the config and the key that are not written yet.
async fn test(setup: &ModelsContext, text: &str, model: &str, key: Option<&NewKey>) -> Result<ModelTest> {
    let loaded = Config::read(&setup.paths.config, text);
    let models = Models::new(&loaded.config, homard_app::environment(&loaded.variables), &setup.paths.state);
    let named: NamedModel = models.entry(model).map_err(|error| CliError::new("config", error.to_string()))?;
    let keyring = keyring(setup, key)?;
    Ok(models.test(&keyring, &named, TEST_LIMIT).await?)
}

/// Shows the difference, asks, stores the key and writes the config. Returns the keys that changed.
fn write(
    answers: &mut dyn Answers,
    setup: &ModelsContext,
    plan: &SetupPlan,
    difference: &[String],
    key: Option<&NewKey>,
) -> Result<Vec<String>> {
    let file = credentials_file(&setup.paths, &setup.agent(None)?);
    if difference.is_empty() && key.is_none() {
        return Ok(Vec::new());
    }
    if !difference.is_empty() {
        answers.tell(&format!("{}:\n{}", setup.paths.config.display(), difference.join("\n")));
    }
    if let Some(NewKey { provider, .. }) = key {
        answers.tell(&format!("{}: the key {}", file.display(), profile_id(provider)));
    }
    if !questions::confirm(answers, "Write this?", true)? {
        return Err(CliError { exit: 130, ..CliError::new("interrupted", "nothing was changed") }.into());
    }
    // First the key: a config whose key is missing would not work.
    if let Some(NewKey { provider, key }) = key {
        let name = provider_name(provider);
        auth::store(&file, &name, &profile_id(provider), auth::StoredKind::ApiKey, key)?;
    }
    if difference.is_empty() {
        return Ok(Vec::new());
    }
    Ok(edit_config(&setup.paths, |text| plan.apply(text))?.changed)
}

/// Prints what was set up and what to do next.
fn report(args: &Args, setup: &ModelsContext, outcome: &SetupOutcome) -> Result<()> {
    let answer: Option<&TestAnswer> = outcome.test.as_ref().and_then(|test| test.outcome.as_ref().ok());
    let next =
        ["homard agent -m \"What files are here?\"", "homard gateway", "homard channels add telegram --token TOKEN"];
    if args.json {
        let test = outcome.test.as_ref().zip(answer).map(|(test, answer)| test_document(test, answer));
        return Ok(render::print_json(&json!({
            "ok": true, "model": outcome.model, "config": setup.paths.config, "changed": outcome.changed, "test": test,
            "import": outcome.imported, "next": next,
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
