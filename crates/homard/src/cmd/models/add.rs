//! `homard models add`: adds a server to the config, with the models that it lists and the API that it speaks.

use anyhow::Result;
use homard_app::model_check::{ServerAddress, ServerReport};
use homard_config::{
    edit::{self, EditError},
    path::Path,
};
use homard_credentials::auth_profiles::credentials_file;
use homard_model::catalog::provider_name;
use homard_providers::{Credentials, ListedModel, Wire};
use homard_settings::paths;
use serde_json::{Value, json};

use super::{ModelsContext, auth, set::primary_edit};
use crate::{
    cli_error::CliError,
    cmd::{channels::edit_config, prompt},
    render,
};

/// Maximum number of models that are written without being named.
const MAX_MODELS: usize = 50;

/// A server to be added.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  homard models add mine http://127.0.0.1:8000/v1
  homard models add proxy https://llm.example.com --key-from-env PROXY_KEY --set
  homard models add proxy https://llm.example.com/v1 --key --model large")]
pub(super) struct Args {
    /// Name of the provider, chosen by you; models are named NAME/MODEL
    name: String,
    /// Base URL, such as http://127.0.0.1:8000/v1
    url: String,
    /// Write only this model; may be repeated [default: the models that the server lists, if they are at most 50]
    #[arg(long, value_name = "ID")]
    model: Vec<String>,
    /// API [default: detected]
    #[arg(long, value_name = "API")]
    api: Option<String>,
    /// Read an API key from stdin, or prompt for it without echo, and store it
    #[arg(long)]
    key: bool,
    /// Use the API key in this environment variable; the config names the variable
    #[arg(long, value_name = "NAME", conflicts_with = "key")]
    key_from_env: Option<String>,
    /// Use its first model as the model of all agents without one of their own
    #[arg(long)]
    set: bool,
}

/// Asks the server, and writes the provider into the config.
pub(super) async fn run(setup: &ModelsContext, add: &Args, wants_json: bool) -> Result<()> {
    let name = add.name.trim();
    if name.is_empty() || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control()) {
        return Err(CliError::usage("the name must not be empty or contain a slash, colon or space").into());
    }
    let wire = add.api.as_deref().map(|api| {
        let supported = || Wire::ALL.map(Wire::api).join(", ");
        Wire::from_api(api).ok_or_else(|| CliError::usage(format!("unknown API \"{api}\"; supported: {}", supported())))
    });
    let wire = wire.transpose()?;
    let key = match (&add.key_from_env, add.key) {
        (Some(variable), _) => Some(variable_value(variable)?),
        (None, true) => Some(prompt::secret(&format!("The API key for {name}"))?.trim().to_owned()),
        (None, false) => None,
    };
    if let Some(key) = &key {
        auth::check_key(key)?;
    }
    let server = ServerAddress {
        provider: name.to_owned(),
        base_url: add.url.trim().to_owned(),
        auth: key.as_deref().map(|key| Credentials::Key(key.into())),
        wire,
        model: add.model.first().cloned(),
    };
    let report = server.examine(&setup.models.client).await.map_err(|error| CliError::new("model", error.message))?;
    let models = written_models(&report, &add.model)?;
    let first = format!("{name}/{}", models.first().map(|model| model.id.as_str()).unwrap_or_default());
    // Before the config: a provider whose key is missing would not work.
    if let (Some(key), true) = (&key, add.key) {
        let path = credentials_file(&setup.paths, &setup.agent(None)?);
        let provider = provider_name(name);
        auth::store(&path, &provider, &format!("{provider}:default"), auth::StoredKind::ApiKey, key)?;
    }
    let change = edit_config(&setup.paths, |text| {
        let text = provider_edits(text, name, &report, &models, add.key_from_env.as_deref())?;
        match add.set {
            true => primary_edit(&text, &Path::root().key("agents").key("defaults"), &first),
            false => Ok(text),
        }
    })?;
    let ids: Vec<_> = models.iter().map(|model| model.id.as_str()).collect();
    if wants_json {
        return Ok(render::print_json(&json!({
            "ok": true, "provider": name, "baseUrl": report.base_url, "api": report.wire.api(), "models": ids,
            "listed": report.models.len(), "changed": change.changed, "path": setup.paths.config,
        }))?);
    }
    render::print(&render::strip_controls(&format!(
        "added {name} ({}, {}) with {} to {}",
        report.base_url,
        report.wire.api(),
        render::count(ids.len(), "model"),
        setup.paths.config.display()
    )))?;
    if ids.len() < report.models.len() {
        render::print(&format!(
            "the server lists {}; those that are not in the config work, too",
            render::count(report.models.len(), "model")
        ))?;
    }
    let next = if add.set { String::new() } else { format!(" {first}") };
    Ok(render::print(&render::strip_controls(&format!("check that it answers with: homard models test{next}")))?)
}

/// Returns the models to write: the named ones, else the listed ones if they are few, else the first.
fn written_models(report: &ServerReport, named: &[String]) -> Result<Vec<ListedModel>, CliError> {
    if named.is_empty() {
        return Ok(report.models.iter().take(MAX_MODELS).cloned().collect());
    }
    let model = |id: &String| {
        if let Some(listed) = report.models.iter().find(|listed| listed.id == *id) {
            return Ok(listed.clone());
        }
        let ids = report.models.iter().map(|listed| listed.id.as_str());
        match homard_config::nearest(id, ids) {
            Some(similar) => Err(CliError::usage(format!(
                "the server does not list the model \"{id}\"; did you mean \"{similar}\"?"
            ))),
            None => Ok(ListedModel { id: id.clone(), ..ListedModel::default() }),
        }
    };
    named.iter().map(model).collect()
}

/// Writes a provider into the text of a config.
pub(in crate::cmd) fn provider_edits(
    text: &str,
    name: &str,
    report: &ServerReport,
    models: &[ListedModel],
    key_variable: Option<&str>,
) -> Result<String, EditError> {
    let section = Path::root().key("models").key("providers").key(name);
    let model = |model: &ListedModel| {
        let mut entry = json!({"id": model.id});
        for (name, number) in [("contextWindow", model.context_window), ("maxTokens", model.max_output)] {
            if let Some(number) = number {
                entry[name] = json!(number);
            }
        }
        entry
    };
    let settings: [(&str, Value); 3] = [
        ("baseUrl", json!(report.base_url)),
        ("api", json!(report.wire.api())),
        ("models", models.iter().map(model).collect()),
    ];
    let key = key_variable.map(|variable| ("apiKey", json!(format!("${{{variable}}}"))));
    let mut all = settings.into_iter().chain(key);
    all.try_fold(text.to_owned(), |text, (name, value)| edit::set(&text, &section.key(name), &value))
}

/// Returns the value of an environment variable that holds a key.
pub(in crate::cmd) fn variable_value(name: &str) -> Result<String, CliError> {
    let value = paths::env(name).and_then(|value| value.into_string().ok()).unwrap_or_default();
    match value.trim() {
        "" => Err(CliError::usage(format!("the environment variable {name} is not set"))),
        value => Ok(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ids: &[&str]) -> ServerReport {
        let model = |id: &&str| ListedModel { id: (*id).to_owned(), ..ListedModel::default() };
        let models = ids.iter().map(model).collect();
        ServerReport { base_url: "http://h/v1".to_owned(), wire: Wire::OpenAiCompletions, models }
    }

    #[test]
    fn a_provider_is_written_next_to_comments_and_other_settings() {
        let mut report = report(&["m"]);
        report.models[0].context_window = Some(9);
        let text = "{models: {providers: {mine: {headers: {a: 'b'} /* kept */}}}}";
        let text = provider_edits(text, "mine", &report, &report.models, Some("MY_KEY")).unwrap();
        assert!(text.contains("/* kept */"), "{text}");
        let mine = &edit::value(&text).unwrap()["models"]["providers"]["mine"];
        assert_eq!(
            *mine,
            json!({"headers": {"a": "b"}, "baseUrl": "http://h/v1", "api": "openai-completions",
                "models": [{"id": "m", "contextWindow": 9}], "apiKey": "${MY_KEY}"})
        );
    }

    #[test]
    fn a_mistyped_model_is_refused_and_an_unlisted_one_is_not() {
        let report = report(&["qwen3-large"]);
        let ids = |named: &[&str]| {
            let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
            let models = written_models(&report, &named).map_err(|error| error.message)?;
            Ok::<_, String>(models.into_iter().map(|model| model.id).collect::<Vec<_>>())
        };
        assert_eq!(ids(&[]).unwrap(), ["qwen3-large"]);
        assert_eq!(ids(&["other"]).unwrap(), ["other"]);
        assert!(ids(&["qwen3-lage"]).unwrap_err().contains("did you mean \"qwen3-large\"?"));
    }
}
