//! The questions of `homard setup`, from the first to the last. Nothing is written before the last one is answered, so it
//! can be interrupted at every question and run again.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use homard_app::{
    model_check::{ModelTest, ServerAddress},
    models::Models,
};
use homard_credentials::auth_profiles::{CredentialProfile, Keyring, Kind, credentials_file};
use homard_model::catalog::{self, provider_name};
use homard_providers::{Credentials, ListedModel};
use homard_settings::{Config, DEMO, NamedModel, paths};
use homard_stdx::text::strip_controls;

use crate::{
    Error, ModelsContext, channel,
    context::edit_config,
    credentials::{self, NewCredential, check_key},
    detect,
    model_choice::agent_section,
    plan::{self, NewServer, SetupPlan},
    provider::{MAX_MODELS, variable_value},
    questions::{self, Answers, ModelSource},
};

/// Time limit of the test of the chosen model: a local server may have to load it first.
const TEST_LIMIT: Duration = Duration::from_secs(120);

/// What the user decided before the first question.
#[derive(Debug, Clone, Default)]
pub struct SetupOptions {
    /// True if nothing may be asked: every question has its default answer.
    pub is_unattended: bool,
    /// Provider of the model; with a URL, a name for the server.
    pub provider: Option<String>,
    /// Environment variable that contains the API key, which is stored.
    pub key_from_env: Option<String>,
    /// Base URL of a server that is not a known provider.
    pub url: Option<String>,
    /// Model, without the provider's name.
    pub model: Option<String>,
    /// Directory in which agents work.
    pub workspace: Option<PathBuf>,
    /// Environment variable that contains the token of a Telegram bot, which is written into the config.
    pub telegram_token_from_env: Option<String>,
}

/// What was chosen, and what the model answered.
#[derive(Debug)]
pub struct SetupOutcome {
    /// Full name of the model.
    pub model: String,
    /// The test; absent for the built-in model.
    pub test: Option<ModelTest>,
    /// The keys of the config that changed.
    pub changed: Vec<String>,
    /// True if a chat channel is configured now.
    pub has_channel: bool,
}

/// A key that is not stored yet.
#[derive(Clone)]
struct NewKey {
    provider: String,
    key: String,
}

/// The model that was chosen, and what has to be written for it.
struct ChosenModel {
    /// Full name.
    name: String,
    server: Option<NewServer>,
    key: Option<NewKey>,
    /// True if the config names it already, or nothing is to be written.
    is_kept: bool,
}

/// Chooses a model, a workspace and a chat channel, tests the model, and writes the result.
///
/// # Errors
///
/// The model does not answer, the user leaves, or a file cannot be written. The config is then unchanged.
pub async fn configure(
    args: &SetupOptions,
    answers: &mut dyn Answers,
    setup: &ModelsContext,
) -> Result<SetupOutcome, Error> {
    let source = source(args, answers, setup).await?;
    let ChosenModel { name: model, server, key, is_kept } = choose_model(args, answers, setup, &source).await?;
    let agent = setup.agent(None)?;
    let own = |has_own: bool| has_own.then(|| agent_section(setup, agent.id.as_str())).transpose();
    let plan = SetupPlan {
        model: (!is_kept).then(|| model.clone()),
        server,
        workspace: workspace(args, answers, setup)?,
        telegram_token: channel::telegram_token(args, answers, setup).await?,
        model_section: own(agent.config.model.is_some())?,
        workspace_section: own(agent.config.workspace.is_some())?,
    };
    let old = Config::read_file(&setup.paths.config).text.unwrap_or_default();
    let new = plan.apply(&old).map_err(|error| Error::Config(error.to_string()))?;
    let test =
        if source == ModelSource::Demo { None } else { Some(test(answers, setup, &new, &model, key.as_ref()).await?) };
    if let Some(test) = &test {
        if args.is_unattended && test.outcome.is_err() {
            return Err(Error::Model(format!("{}\nthe config was not changed", failure(test))));
        }
        answers.tested(test);
        if test.outcome.is_err() && !questions::confirm(answers, "The model did not answer. Use it anyway?", false)? {
            let text = "the config was not changed; correct the cause, and run again: homard setup";
            return Err(Error::Model(text.to_owned()));
        }
    }
    let difference = plan::difference(&old, &new).map_err(|error| Error::Config(error.to_string()))?;
    let changed = write(answers, setup, &plan, &difference, key.as_ref())?;
    let has_channel = channel::has_telegram(setup) || plan.telegram_token.is_some();
    Ok(SetupOutcome { model, test, changed, has_channel })
}

/// Asks a server for its models, and chooses one.
async fn choose_model(
    args: &SetupOptions,
    answers: &mut dyn Answers,
    setup: &ModelsContext,
    source: &ModelSource,
) -> Result<ChosenModel, Error> {
    let known = |name: String| ChosenModel { name, server: None, key: None, is_kept: false };
    Ok(match source {
        ModelSource::Current(name) => ChosenModel { is_kept: true, ..known(name.clone()) },
        ModelSource::Demo => ChosenModel { is_kept: true, ..known(DEMO.to_owned()) },
        ModelSource::Server { name, base_url, key } => {
            let server = ServerAddress {
                provider: name.clone(),
                base_url: base_url.clone(),
                auth: key.as_deref().map(|key| Credentials::Key(key.into())),
                wire: None,
                model: args.model.clone(),
            };
            let report = server.examine(&setup.models.client).await;
            let report = report.map_err(|error| Error::Model(error.message))?;
            answers.tell(&format!("{base_url} speaks {}.", report.wire.api()));
            let id = chosen_model(args, answers, name, &report.models)?;
            let models = written_models(&report.models, &id);
            ChosenModel {
                server: Some(NewServer { name: name.clone(), report, models }),
                key: key.as_ref().map(|key| NewKey { provider: name.clone(), key: key.clone() }),
                ..known(format!("{name}/{id}"))
            }
        }
        ModelSource::Known(provider) | ModelSource::NewKey { provider, .. } => {
            let key = match source {
                ModelSource::NewKey { key, .. } => Some(NewKey { provider: provider.clone(), key: key.clone() }),
                ModelSource::Current(_)
                | ModelSource::Known(_)
                | ModelSource::Local(_)
                | ModelSource::Server { .. }
                | ModelSource::Demo => None,
            };
            let listed = listed_models(answers, setup, provider, key.as_ref()).await?;
            let name = format!("{provider}/{}", chosen_model(args, answers, provider, &listed)?);
            ChosenModel { key, ..known(name) }
        }
        ModelSource::Local(server) => {
            known(format!("{}/{}", server.provider, chosen_model(args, answers, &server.provider, &server.models)?))
        }
    })
}

/// Returns where the model comes from: from the arguments, the only default, or the answer to a question.
async fn source(args: &SetupOptions, answers: &mut dyn Answers, setup: &ModelsContext) -> Result<ModelSource, Error> {
    let key = args.key_from_env.as_deref().map(variable_value).transpose()?;
    if let Some(key) = &key {
        check_key(key)?;
    }
    if let Some(url) = &args.url {
        let typed = args.provider.as_deref().unwrap_or_default();
        let Some(name) = questions::server_name(typed) else {
            let text = format!("--provider \"{typed}\" cannot be the name of a new server; choose another one");
            return Err(Error::Usage(text));
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
        return Err(Error::Usage("--key-from-env and --model need --provider or --url".to_owned()));
    }
    let detected = detect::detect(setup).await?;
    let is_nothing = detected.current.is_none() && detected.keys.is_empty() && detected.servers.is_empty();
    if args.is_unattended && is_nothing {
        let text = "no API key, no configured model and no model server on this machine was found; nothing was changed\n\
                    with a key in a variable, run: homard setup --yes --provider PROVIDER --key-from-env NAME\n\
                    with a server, run: homard setup --yes --url http://HOST:PORT/v1";
        return Err(Error::NoModel(text.to_owned()));
    }
    questions::source(answers, &detected)
}

/// Returns the models of a provider: those that its server lists, else those of the catalogue.
async fn listed_models(
    answers: &mut dyn Answers,
    setup: &ModelsContext,
    provider: &str,
    key: Option<&NewKey>,
) -> Result<Vec<ListedModel>, Error> {
    let keyring = keyring(setup, key)?;
    match setup.models.listed_by_server(&keyring, provider).await {
        Ok(models) => Ok(models),
        Err(error) if error.kind == homard_model::ErrorKind::Auth => Err(Error::Model(error.message)),
        // Not every server has such a list. If it cannot be reached, the test says so.
        Err(error) => {
            if error.kind == homard_model::ErrorKind::Connect {
                answers.tell(&strip_controls(&error.message));
            }
            let known = catalog::provider(provider).map(|entry| entry.spec.model);
            Ok(known.map(|id| ListedModel { id, ..ListedModel::default() }).collect())
        }
    }
}

/// Returns the credentials of the default agent, with a new key that is not stored yet.
fn keyring(setup: &ModelsContext, key: Option<&NewKey>) -> Result<Keyring, Error> {
    let mut keyring = setup.keyring(&setup.agent(None)?)?;
    if let Some(NewKey { provider, key }) = key {
        let (provider, id) = (provider_name(provider), profile_of(provider));
        keyring.profiles.retain(|profile| profile.provider != provider);
        keyring.order.remove(&provider);
        keyring.profiles.push(CredentialProfile { id, provider, kind: Kind::Key(key.as_str().into()) });
    }
    Ok(keyring)
}

/// Returns the id under which the key of a provider is stored.
fn profile_of(provider: &str) -> String {
    format!("{}:default", provider_name(provider))
}

fn chosen_model(
    args: &SetupOptions,
    answers: &mut dyn Answers,
    provider: &str,
    listed: &[ListedModel],
) -> Result<String, Error> {
    match (&args.model, args.is_unattended) {
        (Some(id), _) => Ok(id.strip_prefix(&format!("{provider}/")).unwrap_or(id).to_owned()),
        (None, true) => questions::default_model(provider, listed)
            .ok_or_else(|| Error::Usage(format!("{provider} lists no models; pass --model MODEL"))),
        (None, false) => questions::model(answers, provider, listed),
    }
}

/// Returns the models of a new server to write: the listed ones, and the chosen one in any case.
fn written_models(listed: &[ListedModel], chosen: &str) -> Vec<ListedModel> {
    let mut models: Vec<_> = listed.iter().take(MAX_MODELS).cloned().collect();
    if !models.iter().any(|model| model.id == chosen) {
        let other = listed.iter().find(|model| model.id == chosen).cloned();
        models.push(other.unwrap_or_else(|| ListedModel { id: chosen.to_owned(), ..ListedModel::default() }));
    }
    models
}

/// Returns the workspace, if it is to be written into the config.
fn workspace(args: &SetupOptions, answers: &mut dyn Answers, setup: &ModelsContext) -> Result<Option<String>, Error> {
    if let Some(folder) = &args.workspace {
        let folder = paths::expand(folder, paths::home().as_deref());
        return Ok(Some(absolute(&folder)?));
    }
    let agent = setup.agent(None)?;
    let current = homard_settings::agent_directories::workspace(&setup.config, &setup.paths, &agent);
    let typed = answers.text(&format!("Workspace, in which the agent works [{}]:", current.display()))?;
    if typed.trim().is_empty() {
        return Ok(None);
    }
    let folder = paths::expand(typed.trim().as_ref(), paths::home().as_deref());
    Ok(Some(absolute(&folder)?))
}

/// Sends the model one request, with the config and the key that are not written yet.
async fn test(
    answers: &mut dyn Answers,
    setup: &ModelsContext,
    text: &str,
    model: &str,
    key: Option<&NewKey>,
) -> Result<ModelTest, Error> {
    let loaded = Config::read(&setup.paths.config, text);
    let models = Models::new(&loaded.config, homard_app::environment(&loaded.variables), &setup.paths.state);
    let named: NamedModel = models.entry(model).map_err(|error| Error::Config(error.to_string()))?;
    let keyring = keyring(setup, key)?;
    Ok(models.test(&keyring, &named, TEST_LIMIT, &mut |notice| answers.tell(&strip_controls(notice))).await?)
}

/// Shows the difference, asks, stores the key and writes the config. Returns the keys that changed.
fn write(
    answers: &mut dyn Answers,
    setup: &ModelsContext,
    plan: &SetupPlan,
    difference: &[String],
    key: Option<&NewKey>,
) -> Result<Vec<String>, Error> {
    let file = credentials_file(&setup.paths, &setup.agent(None)?);
    if difference.is_empty() && key.is_none() {
        return Ok(Vec::new());
    }
    if !difference.is_empty() {
        answers.tell(&format!("{}:\n{}", setup.paths.config.display(), difference.join("\n")));
    }
    if let Some(NewKey { provider, .. }) = key {
        answers.tell(&format!("{}: the key {}", file.display(), profile_of(provider)));
    }
    if !questions::confirm(answers, "Write this?", true)? {
        return Err(Error::Interrupted("nothing was changed; run again: homard setup".to_owned()));
    }
    // First the key: a config whose key is missing would not work.
    if let Some(NewKey { provider, key }) = key {
        let name = provider_name(provider);
        credentials::store(&file, &name, &profile_of(provider), &NewCredential::ApiKey(key.as_str().into()))?;
    }
    if difference.is_empty() {
        return Ok(Vec::new());
    }
    Ok(edit_config(&setup.paths, |text| plan.apply(text))?.changed)
}

/// Formats where and why a test failed; empty if it did not.
pub fn failure(result: &ModelTest) -> String {
    let Err(error) = &result.outcome else { return String::new() };
    let place = match (&result.url, result.api.as_str()) {
        (Some(url), api) if !api.is_empty() && !error.message.contains(&format!("({api})")) => {
            format!(" ({api} at {url})")
        }
        _ => String::new(),
    };
    strip_controls(&format!("{} did not answer{place}: {}", result.model, error.message))
}

fn absolute(folder: &Path) -> Result<String, Error> {
    let path = std::path::absolute(folder);
    let path = path.map_err(|error| homard_settings::Error::Path { path: folder.to_owned(), error })?;
    Ok(path.display().to_string())
}
