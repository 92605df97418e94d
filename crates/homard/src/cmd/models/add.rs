//! `homard models add`: adds a server to the config, with the models that it lists and the API that it speaks.

use anyhow::Result;
use homard_app::model_check::ServerAddress;
use homard_config::path::Path;
use homard_credentials::auth_profiles::credentials_file;
use homard_model::catalog::provider_name;
use homard_providers::{Credentials, Wire};
use homard_setup::{
    ModelsContext,
    credentials::{self, NewCredential},
    edit_config,
    model_choice::primary_edit,
    provider::{check_name, provider_edits, variable_value, written_models},
};
use serde_json::json;

use crate::{cli_error::CliError, cmd::prompt, render};

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
    let name = check_name(&add.name)?;
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
        credentials::check_key(key)?;
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
        credentials::store(
            &path,
            &provider,
            &format!("{provider}:default"),
            &NewCredential::ApiKey(key.as_str().into()),
        )?;
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
    render::print(&render::strip_controls(&format!("check that it answers with: homard models test{next}")))?;
    if !add.set {
        render::print(&render::strip_controls(&format!("use it with: homard models set {first}")))?;
    }
    Ok(())
}
